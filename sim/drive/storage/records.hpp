// SPDX-License-Identifier: Apache-2.0
// Metadata records as bytes: plain little-endian structs in sequence.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <span>
#include <stdexcept>
#include <type_traits>
#include <utility>
#include <vector>

#include "storage/aligned_buffer.hpp"

namespace kvdrive {

// The kind of a journal record. The kind is followed by the struct of the class that writes such records.
enum class RecordType : std::uint32_t {
  kList = 1,
  kBuffered,
  kBands,
  kSession,
  kSessionEnd,
  kRows,
  kBlocks,
  kLimits,
  kEraseMarks,
  kHealth,
  kLogEntry,
  kSavedFeature,
  kCounters,
  kValue
};

class RecordWriter {
 public:
  static constexpr std::uint64_t kMostBytes = 4 << 20, kFewestBytes = 16 << 10;

  RecordWriter() = default;
  // Long lists of records are passed to `spill` in pieces of about `piece_bytes`, which is clamped to the limits above.
  RecordWriter(std::function<void(RecordWriter&)> spill, std::uint64_t piece_bytes)
      : spill_(std::move(spill)), piece_bytes_(std::clamp(piece_bytes, kFewestBytes, kMostBytes)) {}

  template <typename T>
  void put(const T& value) {
    static_assert(std::has_unique_object_representations_v<T>, "padding would be written");
    put_all(std::span(&value, 1));
  }

  template <typename T>
  void put_all(std::span<const T> values) {
    bytes_.append(std::as_bytes(values));
  }

  // To be called after each record.
  void end_record() {
    if (!spill_ || size() < piece_bytes_) return;
    spill_(*this);
    clear();
  }

  void clear() { bytes_.resize(0); }

  bool empty() const { return bytes_.size() == 0; }
  std::span<const std::byte> span() const { return bytes_.span(); }
  std::size_t size() const { return bytes_.size(); }

 private:
  AlignedBuffer bytes_;
  std::function<void(RecordWriter&)> spill_;
  std::uint64_t piece_bytes_ = kMostBytes;
};

// Reads records. Throws std::runtime_error when the bytes end early.
class RecordReader {
 public:
  explicit RecordReader(std::span<const std::byte> bytes) : bytes_(bytes) {}

  bool done() const { return bytes_.empty(); }

  template <typename T>
  T get() {
    static_assert(std::is_trivially_copyable_v<T>);
    T value;
    std::memcpy(&value, take(sizeof value).data(), sizeof value);
    return value;
  }

  template <typename T>
  std::vector<T> get_all(std::size_t count) {
    static_assert(std::is_trivially_copyable_v<T>);
    if (count > bytes_.size() / sizeof(T)) throw std::runtime_error("a metadata record ends early");
    std::vector<T> values(count);
    if (count > 0) std::memcpy(values.data(), take(count * sizeof(T)).data(), count * sizeof(T));
    return values;
  }

  std::span<const std::byte> take(std::size_t count) {
    if (count > bytes_.size()) throw std::runtime_error("a metadata record ends early");
    const auto taken = bytes_.first(count);
    bytes_ = bytes_.subspan(count);
    return taken;
  }

 private:
  std::span<const std::byte> bytes_;
};

}  // namespace kvdrive
