// SPDX-License-Identifier: Apache-2.0
// What the drive remembers over its whole life: SMART counters, errors, saved features.
//
// All of it is kept in the journal. Counters are stored together with the next commit. Entries that must not be lost
// get a commit of their own when the drive is closed. Thread-safe.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <mutex>
#include <optional>
#include <vector>

#include "storage/records.hpp"

namespace kvdrive {

struct HealthCounters {
  std::uint64_t power_cycles = 0, unsafe_shutdowns = 0, power_on_seconds = 0;
  std::uint64_t host_reads = 0, host_writes = 0, bytes_read = 0, bytes_written = 0;
  std::uint64_t busy_ns = 0, media_errors = 0, errors = 0, unused = 0;
  std::uint64_t running = 0;  // 1: the drive has not been closed since
};

class Health {
 public:
  using Entry = std::vector<std::byte>;
  static constexpr std::size_t kMostErrors = 64;  // that are kept

  // To be called when the drive was opened.
  void open();
  // To be called when the drive is closed in order.
  void close();

  // Counts a command of the host.
  void count(bool read, bool write, std::uint64_t bytes_read, std::uint64_t bytes_written);
  // Sets the values since this opening; they are added to those of earlier openings.
  void set_device(std::uint64_t busy_ns, std::uint64_t media_errors);
  HealthCounters counters() const;

  // Adds an error, which the next commit stores. `make` builds its entry from its number, counted from 1 over the
  // drive's life.
  template <typename Make>
  void add_error(Make make) {
    const std::lock_guard lock(mutex_);
    append(make(++counters_.errors));
    fresh_.push_back(errors_.front());
    must_save_ = true;
  }
  // The newest one comes first.
  std::deque<Entry> errors() const;

  // The value that a feature has after a reset.
  std::optional<std::uint32_t> saved_feature(std::uint32_t key) const;
  void save_feature(std::uint32_t key, std::uint32_t value);

  // True if there are entries that need a commit even if nothing else has changed.
  bool must_save() const;
  void save(RecordWriter& writer, bool everything);
  void committed();
  void load_counters(RecordReader& reader);
  void load_entry(RecordReader& reader);
  void load_feature(RecordReader& reader);

 private:
  using Clock = std::chrono::steady_clock;
  void append(Entry error);
  HealthCounters now() const;

  mutable std::mutex mutex_;
  HealthCounters counters_;  // without what was counted since the opening
  std::uint64_t busy_ns_ = 0, media_errors_ = 0;
  Clock::time_point opened_ = Clock::now();
  std::deque<Entry> errors_, fresh_;  // the newest first; those not yet committed, the oldest first
  std::map<std::uint32_t, std::uint32_t> features_;
  std::size_t saving_ = 0;  // number of `fresh_` entries in the present commit
  bool must_save_ = false, features_changed_ = false;
};

}  // namespace kvdrive
