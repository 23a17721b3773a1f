// SPDX-License-Identifier: Apache-2.0
// The two jobs of SparF that choose: embedding rows by q, and tokens by the chosen rows of K.
#pragma once

#include <cstdint>

#include "engine/fast/context.hpp"
#include "engine/fast/job.hpp"

namespace kvdrive::fast {

std::uint32_t choose_rows(const Job& job);
std::uint32_t choose_tokens(const Context& context, const Job& job);

}  // namespace kvdrive::fast
