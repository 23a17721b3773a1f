// SPDX-License-Identifier: Apache-2.0
// Conversions between binary32 and binary16, to nearest and ties to even, as ggml's. They use the processor's own
// instructions where it has them. ggml's functions for other libraries convert one number at a time.
#pragma once

#include <cstddef>
#include <cstdint>

namespace kvdrive::llama {

void to_halves(const float* numbers, std::size_t count, std::uint16_t* halves);
void to_singles(const std::uint16_t* halves, std::size_t count, float* numbers);

}  // namespace kvdrive::llama
