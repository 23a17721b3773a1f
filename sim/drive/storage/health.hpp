// SPDX-License-Identifier: Apache-2.0
// What the drive remembers of its life: SMART's counters, errors, events, results of self-tests, saved features.
//
// Kept in the journal. Counters go along with whatever is committed; what must not be lost is committed by itself when
// the drive is closed. Thread-safe.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "storage/records.hpp"

namespace kvdrive {

struct HealthCounters {
  std::uint64_t power_cycles = 0, unsafe_shutdowns = 0, power_on_seconds = 0;
  std::uint64_t host_reads = 0, host_writes = 0, bytes_read = 0, bytes_written = 0;
  std::uint64_t busy_ns = 0, media_errors = 0, errors = 0, events = 0;
  std::uint64_t running = 0;  // 1: the drive was not closed since
};

class Health {
 public:
  enum class Log : std::uint32_t { kErrors, kSelfTests, kEvents };
  using Entry = std::vector<std::byte>;
  // Entries that a log keeps.
  static constexpr std::array<std::size_t, 3> kMost{64, 20, 128};

  // The drive is open from now on.
  void open();
  // And is closed in order.
  void close();

  // What the host did.
  void count(bool read, bool write, std::uint64_t bytes_read, std::uint64_t bytes_written);
  // Of this opening so far; they are added to those before.
  void set_device(std::uint64_t busy_ns, std::uint64_t media_errors);
  HealthCounters counters() const;

  // Appends an entry, which the next commit stores, and returns its number in the drive's life, from 1 on.
  // `make`: gives the entry by its number.
  template <typename Make>
  void add(Log log, Make make) {
    const std::lock_guard lock(mutex_);
    std::uint64_t none = 0;
    std::uint64_t& number = log == Log::kErrors ? counters_.errors : log == Log::kEvents ? counters_.events : none;
    append(log, make(++number));
    fresh_.emplace_back(log, entries(log).front());
    must_save_ = true;
  }
  // Newest first.
  std::deque<Entry> log(Log log) const;

  // Values that features have after a reset.
  std::optional<std::uint32_t> saved_feature(std::uint32_t key) const;
  void save_feature(std::uint32_t key, std::uint32_t value);

  // True if there is something that a commit has to store even where nothing else has changed.
  bool must_save() const;
  void save(RecordWriter& writer, bool everything);
  void committed();
  void load_counters(RecordReader& reader);
  void load_entry(RecordReader& reader);
  void load_feature(RecordReader& reader);

 private:
  using Clock = std::chrono::steady_clock;
  std::deque<Entry>& entries(Log log) { return logs_.at(static_cast<std::size_t>(log)); }
  void append(Log log, Entry entry);
  HealthCounters now() const;

  mutable std::mutex mutex_;
  HealthCounters counters_;  // but for what is counted from the opening on
  std::uint64_t busy_ns_ = 0, media_errors_ = 0;
  Clock::time_point opened_ = Clock::now();
  std::array<std::deque<Entry>, 3> logs_;
  std::deque<std::pair<Log, Entry>> fresh_;  // not committed yet
  std::map<std::uint32_t, std::uint32_t> features_;
  std::size_t saving_ = 0;  // of them, those that the commit under way stores
  bool must_save_ = false, features_changed_ = false;
};

}  // namespace kvdrive
