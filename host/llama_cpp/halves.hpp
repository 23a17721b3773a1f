// SPDX-License-Identifier: Apache-2.0
// Conversion of binary32 to binary16, to nearest and ties to even, as ggml's. ggml's own function for other libraries
// converts one number at a time.
#pragma once

#include <cstddef>
#include <cstdint>

namespace kvdrive::llama {

// Converts `count` numbers with the processor's own instructions, where it has them.
void to_halves(const float* numbers, std::size_t count, std::uint16_t* halves);

}  // namespace kvdrive::llama
