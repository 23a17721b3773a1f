// SPDX-License-Identifier: Apache-2.0
// Some neurons of a feed-forward part, in plain memory: what an engine computes for FFN_SUBMIT (docs/arithmetic.md,
// Feed-forward neurons).
#pragma once

#include <cstddef>
#include <cstdint>

#include "commands/wire.hpp"
#include "common/abi.hpp"

namespace kvdrive {

// A sum over neurons, LSB 2^-48. 2^16 products of two binary16 numbers stay below 2^96.
using FfnSum = __int128;

// Numbers of x and y in a call of the kernel: whole beats.
constexpr unsigned whole_lanes(unsigned numbers) { return (numbers + abi::kLanes - 1) / abi::kLanes * abi::kLanes; }

struct FfnBlock {
  nvme::FfnActivation activation = nvme::kFfnGiven;
  unsigned matrices = 1;  // 1: down; 2: up and down; 3: gate, up and down
  unsigned hidden = 0;    // a multiple of 8
  unsigned neurons = 0;
  unsigned tokens = 0;
  const std::uint16_t* x = nullptr;            // [tokens][hidden] binary16; null for down alone
  const std::uint16_t* activations = nullptr;  // kFfnGiven: [tokens][activation_stride] binary16
  std::size_t activation_stride = 0;
  const std::uint16_t* rows = nullptr;  // [neurons][matrices][hidden] binary16

  const std::uint16_t* row(std::size_t neuron, unsigned matrix) const {
    return rows + (neuron * matrices + matrix) * hidden;
  }
};

}  // namespace kvdrive
