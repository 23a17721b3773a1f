// SPDX-License-Identifier: Apache-2.0
// What the parts of the plugin share: the drive, the buffers that llama.cpp has allocated, the log, the counters.
//
// There is one object of the process. It is never destroyed, because a program may free its contexts after the
// destructors of libraries have run; the drive is closed when the program ends.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <set>
#include <string>

#include "configuration.hpp"
#include "session_drive.hpp"

namespace kvdrive::llama {

struct Buffer;
class KvCache;

// Writes a sentence for the user.
void report(const std::string& sentence);
// Where sentences go: to `hear`; null: to stderr.
void report_to(void (*hear)(const char* sentence));

class Plugin {
 public:
  static Plugin& get();

  // Reads the configuration and opens the drive. After a failure, which is reported, no cache can be allocated, so that
  // llama.cpp does not go on with K and V elsewhere.
  void start(const Lookup& lookup);
  // Throws std::runtime_error if there is no drive.
  SessionDrive& drive();
  // Null if there is none.
  const SessionDrive* drive_or_null() const { return drive_.get(); }

  void add(Buffer* buffer);
  void remove(Buffer* buffer);
  // The first refusal of a cache that lives: what its model needs cannot be served. Empty: there is none.
  std::string refusal();
  // All counters as JSON. Throws std::runtime_error if there is no drive.
  std::string statistics();
  // The cache of the only context of this process. Throws std::runtime_error if there are none or several.
  KvCache& only_cache();
  // Forgets a stream in all caches.
  void forget(std::uint32_t stream);
  // Says what is to be said at the end, and closes the drive unless there is a context. May be called twice.
  void finish();
  // Cells of the longest cache.
  std::uint32_t most_cells();

  std::atomic<std::uint64_t> graphs{0}, in_drive{0}, in_host{0};  // nodes of attention by where they were computed

 private:
  Plugin() = default;

  Configuration configuration_;
  std::unique_ptr<SessionDrive> drive_;
  std::mutex mutex_;
  std::set<Buffer*> buffers_;
};

}  // namespace kvdrive::llama
