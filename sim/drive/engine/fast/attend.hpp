// SPDX-License-Identifier: Apache-2.0
// The jobs that read V: EXACT, PARTIAL and SPARF_ATTEND.
#pragma once

#include <cstdint>

#include "engine/fast/context.hpp"
#include "engine/fast/job.hpp"

namespace kvdrive::fast {

std::uint32_t attend(const Context& context, const Job& job);

}  // namespace kvdrive::fast
