// SPDX-License-Identifier: Apache-2.0
// The shapes of attention that a command may have, and the shapes that the compiled kernels are built for.
#pragma once

#include <algorithm>
#include <iterator>

#include "common/abi.hpp"

namespace kvdrive {

// True if a command may have `group` query heads per KV head.
constexpr bool serves_group(unsigned group) {
  return std::find(std::begin(abi::kCommandGroups), std::end(abi::kCommandGroups), group) !=
         std::end(abi::kCommandGroups);
}

constexpr bool serves_head_dim(unsigned head_dim) {
  return head_dim % abi::kCommandHeadDimStep == 0 && head_dim >= abi::kCommandHeadDimStep &&
         head_dim <= abi::kMaxHeadDim;
}

// The number of records of a job: one for every 8 query heads.
constexpr unsigned records_of(unsigned group) { return (group + abi::kMaxGroup - 1) / abi::kMaxGroup; }

// The smallest group that a kernel is built for and that holds `heads` heads. Precondition: `heads` is at most 8.
constexpr unsigned built_group(unsigned heads) {
  return *std::lower_bound(std::begin(abi::kGroupSizes), std::end(abi::kGroupSizes), heads);
}

constexpr unsigned built_head_dim(unsigned head_dim) {
  return (head_dim + abi::kHeadDimStep - 1) / abi::kHeadDimStep * abi::kHeadDimStep;
}

// The kernel calls of a group: 8 heads each, and the rest in the last call.
struct KernelCall {
  unsigned first;  // first query head of the call
  unsigned heads;
};
constexpr unsigned kernel_calls(unsigned group) { return records_of(group); }
constexpr KernelCall kernel_call(unsigned group, unsigned call) {
  return {call * abi::kMaxGroup, std::min<unsigned>(abi::kMaxGroup, group - call * abi::kMaxGroup)};
}

}  // namespace kvdrive
