// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>

#include "engine/engine.hpp"

namespace kvdrive::fast {

FilterResult page_filter(std::span<const std::uint8_t> pages, std::span<const std::uint8_t> bitmap, std::uint32_t rows,
                         std::uint32_t row_bytes, std::uint32_t page_bytes);

}  // namespace kvdrive::fast
