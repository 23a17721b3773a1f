// SPDX-License-Identifier: Apache-2.0
// The choice of policy groups: scores of all indexed tokens from the 2-bit index of K, and the units with the most
// mass.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "engine/fast/context.hpp"

namespace kvdrive::fast {

// Runs the GroupChoiceJob at byte `job` of `memory`. Its numbers are checked, its addresses are not. `index`: the pages
// of the index, if it is not in `memory`.
std::uint32_t choose_groups(const Context& context, std::span<std::byte> memory, std::uint64_t job,
                            std::span<const std::byte* const> index);

}  // namespace kvdrive::fast
