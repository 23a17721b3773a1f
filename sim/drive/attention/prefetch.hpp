// SPDX-License-Identifier: Apache-2.0
// A checksum of a page is over before the processor has noticed where its reader is going: it is told.
#pragma once

#include <cstddef>

#include "common/abi.hpp"

namespace kvdrive {

// Asks for a page in memory; null for none.
inline void prefetch(const std::byte* page) {
  if (page == nullptr) return;
  for (std::size_t at = 0; at < abi::kPageBytes; at += abi::kBeatBytes) __builtin_prefetch(page + at);
}

}  // namespace kvdrive
