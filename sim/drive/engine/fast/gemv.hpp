// SPDX-License-Identifier: Apache-2.0
// The matrix-vector products on plain arrays. Signatures and status bits are those of SingleKernels.
#pragma once

#include <cstdint>

#include "engine/fast/context.hpp"
#include "engine/single_kernels.hpp"

namespace kvdrive::fast {

std::uint32_t gemv_rows(const Context& context, const std::uint16_t* q, const std::uint16_t* k, std::uint32_t g,
                        std::uint32_t d, std::uint32_t tokens, std::uint32_t* dots);
std::uint32_t gemv_columns(const Context& context, const std::uint16_t* q, const std::uint16_t* k, std::uint32_t g,
                           std::uint32_t r, std::uint32_t tokens, std::uint32_t* dots);
std::uint32_t gemv_accumulate(const Context& context, const std::uint32_t* p, const std::uint16_t* v, std::uint32_t g,
                              std::uint32_t d, std::uint32_t tokens, Wide* acc);

}  // namespace kvdrive::fast
