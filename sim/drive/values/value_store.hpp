// SPDX-License-Identifier: Apache-2.0
// Namespace 4: values under keys, on the same flash as the KV cache.
//
// Each value is a list of groups of its own. A value is stored completely before its key refers to it, so nobody sees a
// part of a value. Like all writes, a store or a removal is durable after the next commit.
#pragma once

#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "ftl/ftl.hpp"
#include "storage/transfer_schedule.hpp"

namespace kvdrive {

// The order is that of the bytes; a key comes before those that continue it. Bytes behind the key are 0.
struct Key {
  std::array<std::uint8_t, 16> bytes{};
  std::uint32_t length = 0;

  auto operator<=>(const Key&) const = default;
};

struct Value {
  ListId list = GroupMap::kNoList;  // an empty value has none
  std::uint32_t bytes = 0;
};

class ValueStore {
 public:
  static constexpr std::uint32_t kMostBytes = 1 << 30;

  explicit ValueStore(Ftl& ftl) : ftl_(ftl) {}

  const std::map<Key, Value>& values() const { return values_; }
  // Returns null for a key that does not exist.
  const Value* find(const Key& key) const;
  // A number that no two values have, whatever their keys; 0 for empty ones.
  std::uint32_t version(const Value& value) const {
    return value.list == GroupMap::kNoList ? 0 : ftl_.family(value.list);
  }
  std::uint64_t stored_bytes() const { return stored_bytes_; }  // of keys and values
  std::size_t unsaved() const { return changed_.size(); }       // keys that changed since the last commit

  // True if the flash has room for so many more bytes.
  bool fits(std::uint64_t bytes) const;
  // Appends pages to a value that no key refers to yet. Throws DriveFull or an exception of `commit`; the value then
  // has to be discarded. Precondition: the value has whole pages so far.
  void append(const Key& key, Value& value, std::span<const std::byte> data);
  // Makes the key refer to the value; an earlier value of the key is removed. Throws DriveFull if drive memory has no
  // room for the key; nothing has changed then.
  void publish(const Key& key, const Value& value);
  void discard(Value& value);
  // Precondition: the key exists.
  void remove(const Key& key);
  void clear();

  // Reads `count` bytes from `offset` on. Precondition: the value has them. `start`: see ReadPath::start.
  ReadResult read(const Value& value, std::uint32_t offset, std::uint32_t count, Ns ready, std::vector<std::byte>& out,
                  std::optional<TransferKind> start = std::nullopt) const;

  void save(RecordWriter& writer, bool everything) const;
  void committed() { changed_.clear(); }
  void load(RecordReader& reader);
  // To be called after all records, before the Ftl's `finish_loading`.
  void claim_lists();
  // Throws std::runtime_error if a value lacks groups.
  void finish_loading();
  // Drops values of which a group does not verify, here or where garbage collection moved it. `found`: the result of
  // Salvage::scan. `report` gets a sentence for each value that is dropped.
  void salvage(std::span<const FoundGroup> found, const std::function<void(const std::string&)>& report);
  // Compares the values with the groups' spares; `report` gets a sentence for each disagreement.
  void check(const std::function<void(const std::string&)>& report) const;

 private:
  bool verify(const Value& value, std::span<const FoundGroup> found);
  void count(const Key& key, const Value& value, int sign);

  Ftl& ftl_;
  std::map<Key, Value> values_;
  std::set<Key> changed_;  // since the last commit
  std::uint64_t stored_bytes_ = 0;
};

}  // namespace kvdrive
