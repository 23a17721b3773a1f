// SPDX-License-Identifier: Apache-2.0
// What the user says by variables of the environment.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>

#include "formats.hpp"
#include "policy.hpp"

namespace kvdrive::llama {

struct Configuration {
  std::filesystem::path drive;         // KVDRIVE_DRIVE: the drive's file, or the socket at which it is served
  bool served = false;                 // the latter
  RowFormat format = nvme::kBinary16;  // KVDRIVE_FORMAT: f16, int8, int4
  Policy policy;                       // KVDRIVE_ATTENTION: exact, groups; KVDRIVE_RATIO and KVDRIVE_UNREAD of groups
  std::uint64_t capacity_bytes = 0;    // KVDRIVE_CAPACITY: of K and V, where a new drive is made
  std::uint64_t cache_bytes = 0;       // KVDRIVE_CACHE: K and V that may stay in the page cache
  int threads = 0;                     // KVDRIVE_THREADS: that compute attention
  std::filesystem::path statistics;    // KVDRIVE_STATISTICS: file for the counters at the end; empty: none
};

// Looks a variable up; null if it is not set.
using Lookup = std::function<const char*(const char*)>;

// Throws std::runtime_error with a sentence for the user.
Configuration read_configuration(const Lookup& lookup);

}  // namespace kvdrive::llama
