// SPDX-License-Identifier: Apache-2.0
// Runs jobs of any shape on kernels that are built for few groups (abi GROUP_SIZES) and head dimensions in steps of 32.
//
// EXACT, PARTIAL and SPARF_ATTEND take 8 query heads a call. The last call uses the smallest built group that fits and
// fills it with zero heads. So K and V are read once for every 8 heads. A head dimension between two steps gets columns
// of zeros, for which K and V are copied once. Neither changes an exact sum. SPARF_ROWS and SPARF_TOKENS choose for all
// heads together. The kernel does that for a group that it is built for. The drive's processor (engine/fast) does it
// for other groups, because a zero head would count in the choice.
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
  // A kernel for the group of the job at byte `job`.
  using Kernel = std::function<std::uint32_t(std::span<std::byte> memory, std::uint64_t job)>;

  explicit BuiltShapes(Kernel kernel) : kernel_(std::move(kernel)) {}

  // Runs the job at byte `job` of the memory in use. Memory behind the part in use is overwritten. Returns the status
  // word.
  std::uint32_t attend(EngineMemory& memory, std::uint64_t job);

 private:
  class Calls;

  const Kernel kernel_;
  const std::unique_ptr<SingleKernels> processor_ = make_fast_kernels();
};

}  // namespace kvdrive
