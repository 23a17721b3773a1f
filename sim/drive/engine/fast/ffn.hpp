// SPDX-License-Identifier: Apache-2.0
// Feed-forward neurons: dot products in binary64 with a test of their rounding, exact sums in integers.
#pragma once

#include "engine/fast/context.hpp"
#include "engine/ffn.hpp"

namespace kvdrive::fast {

// Adds to sums [tokens][hidden]. Returns NON_FINITE or 0; after NON_FINITE the sums mean nothing.
std::uint32_t ffn(const Context& context, const FfnBlock& block, FfnSum* sums);

}  // namespace kvdrive::fast
