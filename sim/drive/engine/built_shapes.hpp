// SPDX-License-Identifier: Apache-2.0
// Jobs of any shape on kernels that are built for a few groups (abi GROUP_SIZES) and head dimensions in steps of 32.
//
// EXACT, PARTIAL and SPARF_ATTEND: 8 query heads a call, the last call on the next built group with zero heads, so K
// and V are read once for every 8 heads. A head dimension between two steps gets columns of zeros, for which K and V
// are copied once. Neither changes an exact sum. SPARF_ROWS and SPARF_TOKENS choose for all heads together: the kernel
// does that for a group that it is built for, the drive's processor (engine/fast) for the others, because a zero head
// would count in the choice.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>

#include "engine/engine.hpp"
#include "engine/single_kernels.hpp"

namespace kvdrive {

class BuiltShapes {
 public:
  // A kernel for the group that the job at byte `job` names.
  using Kernel = std::function<std::uint32_t(std::span<std::byte> memory, std::uint64_t job)>;

  explicit BuiltShapes(Kernel kernel) : kernel_(std::move(kernel)) {}

  // Runs the job at byte `job` of the memory in use; what is behind that is overwritten. Returns the status word.
  std::uint32_t attend(EngineMemory& memory, std::uint64_t job);

 private:
  class Calls;

  const Kernel kernel_;
  const std::unique_ptr<SingleKernels> processor_ = make_fast_kernels();
};

}  // namespace kvdrive
