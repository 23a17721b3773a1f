// SPDX-License-Identifier: Apache-2.0
// What a call of ffn does, and which arguments it refuses.
#pragma once

#include "common/types.hpp"

namespace kvdrive {
namespace ffn {

// The values are those of FfnActivation in abi/nvme.toml.
enum class Activation : int { kGiven = 0, kRelu = 1, kSilu = 2 };

constexpr int kMostHidden = 8192;
constexpr int kLeastHidden = 256;  // eight beats lie between two additions to the same sum
constexpr int kMostNeurons = 65535;
constexpr int kMostChunks = kMostHidden / abi::kLanes;  // beats of x

struct Plan {
  int status = 0;
  Activation activation = Activation::kGiven;
  int matrices = 1;  // 1: down; 2: up and down; 3: gate, up and down
  int chunks = kLeastHidden / abi::kLanes;
  int neurons = 1;
  int beats = 0;  // of all rows
};

inline Plan make_plan(int activation, int matrices, int hidden, int neurons) {
#pragma HLS INLINE
  Plan plan;
  const bool known = activation >= 0 && activation <= static_cast<int>(Activation::kSilu);
  const bool given = activation == static_cast<int>(Activation::kGiven);
  const bool fits = matrices >= 1 && matrices <= 3 && (matrices < 3) == given;
  if (!known || !fits) plan.status |= abi::kBadMode;
  if (hidden < kLeastHidden || hidden > kMostHidden || hidden % abi::kLanes != 0) plan.status |= abi::kBadHeadDim;
  if (neurons < 1 || neurons > kMostNeurons) plan.status |= abi::kBadLength;
  if (plan.status != 0) return plan;
  plan.activation = static_cast<Activation>(activation);
  plan.matrices = matrices;
  plan.chunks = hidden / abi::kLanes;
  plan.neurons = neurons;
  plan.beats = neurons * matrices * plan.chunks;
  return plan;
}

}  // namespace ffn
}  // namespace kvdrive
