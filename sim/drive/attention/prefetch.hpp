// SPDX-License-Identifier: Apache-2.0
// The checksum of a page takes less time than the processor needs to recognise the access pattern, so pages are
// prefetched explicitly.
#pragma once

#include <cstddef>

#include "common/abi.hpp"

namespace kvdrive {

// Prefetches a page in memory; null is ignored.
inline void prefetch(const std::byte* page) {
  if (page == nullptr) return;
  for (std::size_t at = 0; at < abi::kPageBytes; at += abi::kBeatBytes) __builtin_prefetch(page + at);
}

}  // namespace kvdrive
