// SPDX-License-Identifier: Apache-2.0
// A geometry without a flash model, for groups in a file on any disk. The row size suits disk writes, and operations
// take no device time.
#pragma once

#include "nand/preset.hpp"

namespace kvdrive {

inline constexpr Preset kPlain{"plain",
                               "no flash: a file, in real time",
                               {.channels = 1, .dies_per_channel = 1, .page_bytes = 1 << 20, .pages_per_block = 64},
                               7,
                               {}};

}  // namespace kvdrive
