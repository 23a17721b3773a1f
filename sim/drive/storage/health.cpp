// SPDX-License-Identifier: Apache-2.0
#include "storage/health.hpp"

#include <stdexcept>
#include <utility>

namespace kvdrive {
namespace {

// Values of HealthCounters::running. kLeftRunning exists in memory only: the drive was not closed last time, and no
// command has come since it was opened.
constexpr std::uint64_t kClosed = 0, kRunning = 1, kLeftRunning = 2;

// Logs in the journal. Earlier versions also wrote self-tests and events, which are passed over.
enum class Log : std::uint32_t { kErrors, kSelfTests, kEvents };

struct EntryHead {
  Log log;
  std::uint32_t bytes;
};

struct SavedFeature {
  std::uint32_t key, value;
};

}  // namespace

void Health::open() {
  const std::lock_guard lock(mutex_);
  if (counters_.running == kRunning) return;
  counters_.unsafe_shutdowns += counters_.running == kLeftRunning;
  counters_.running = kRunning;
  ++counters_.power_cycles;
  opened_ = Clock::now();
}

void Health::close() {
  const std::lock_guard lock(mutex_);
  if (counters_.running != kRunning) return;
  counters_ = now();
  busy_ns_ = media_errors_ = 0;
  opened_ = Clock::now();
  counters_.running = kClosed;
  must_save_ = true;
}

void Health::count(bool read, bool write, std::uint64_t bytes_read, std::uint64_t bytes_written) {
  const std::lock_guard lock(mutex_);
  counters_.host_reads += read;
  counters_.host_writes += write;
  counters_.bytes_read += bytes_read;
  counters_.bytes_written += bytes_written;
}

void Health::set_device(std::uint64_t busy_ns, std::uint64_t media_errors) {
  const std::lock_guard lock(mutex_);
  busy_ns_ = busy_ns;
  media_errors_ = media_errors;
}

HealthCounters Health::now() const {
  HealthCounters sum = counters_;
  sum.busy_ns += busy_ns_;
  sum.media_errors += media_errors_;
  const auto age = std::chrono::duration_cast<std::chrono::seconds>(Clock::now() - opened_);
  if (sum.running == kRunning) sum.power_on_seconds += static_cast<std::uint64_t>(age.count());
  if (sum.running == kLeftRunning) sum.running = kRunning;
  return sum;
}

HealthCounters Health::counters() const {
  const std::lock_guard lock(mutex_);
  return now();
}

void Health::append(Entry error) {
  errors_.push_front(std::move(error));
  if (errors_.size() > kMostErrors) errors_.pop_back();
}

std::deque<Health::Entry> Health::errors() const {
  const std::lock_guard lock(mutex_);
  return errors_;
}

std::optional<std::uint32_t> Health::saved_feature(std::uint32_t key) const {
  const std::lock_guard lock(mutex_);
  const auto found = features_.find(key);
  return found == features_.end() ? std::nullopt : std::optional(found->second);
}

void Health::save_feature(std::uint32_t key, std::uint32_t value) {
  const std::lock_guard lock(mutex_);
  features_[key] = value;
  must_save_ = features_changed_ = true;
}

bool Health::must_save() const {
  const std::lock_guard lock(mutex_);
  return must_save_;
}

void Health::save(RecordWriter& writer, bool everything) {
  const std::lock_guard lock(mutex_);
  saving_ = fresh_.size();
  writer.put(RecordType::kHealth);
  writer.put(now());
  writer.end_record();
  for (const Entry& entry : everything ? std::deque<Entry>(errors_.rbegin(), errors_.rend()) : fresh_) {
    writer.put(RecordType::kLogEntry);
    writer.put(EntryHead{Log::kErrors, static_cast<std::uint32_t>(entry.size())});
    writer.put_all(std::span<const std::byte>(entry));
    writer.end_record();
  }
  if (!everything && !features_changed_) return;
  for (const auto& [key, value] : features_) {
    writer.put(RecordType::kSavedFeature);
    writer.put(SavedFeature{key, value});
    writer.end_record();
  }
}

void Health::committed() {
  const std::lock_guard lock(mutex_);
  fresh_.erase(fresh_.begin(), fresh_.begin() + static_cast<std::ptrdiff_t>(saving_));
  saving_ = 0;
  must_save_ = !fresh_.empty();
  features_changed_ = false;
}

void Health::load_counters(RecordReader& reader) {
  counters_ = reader.get<HealthCounters>();
  if (counters_.running != kClosed) counters_.running = kLeftRunning;
}

void Health::load_entry(RecordReader& reader) {
  const auto head = reader.get<EntryHead>();
  if (head.log > Log::kEvents) throw std::runtime_error("a log entry of an unknown log");
  const auto bytes = reader.take(head.bytes);
  if (head.log == Log::kErrors) append(Entry(bytes.begin(), bytes.end()));
}

void Health::load_feature(RecordReader& reader) {
  const auto saved = reader.get<SavedFeature>();
  features_[saved.key] = saved.value;
}

}  // namespace kvdrive
