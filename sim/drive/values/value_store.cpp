// SPDX-License-Identifier: Apache-2.0
#include "values/value_store.hpp"

#include <algorithm>
#include <stdexcept>

#include "crc32c.hpp"

namespace kvdrive {
namespace {

struct SavedValue {
  Key key;
  ListId list;
  std::uint32_t bytes;
  std::uint32_t exists;  // 0: the key was removed
};

// Drive memory for a key: a node of the map.
constexpr std::int64_t kKeyBytes = sizeof(std::pair<const Key, Value>) + 4 * sizeof(void*);

std::uint32_t pages(std::uint64_t bytes) {
  return static_cast<std::uint32_t>((bytes + abi::kPageBytes - 1) / abi::kPageBytes);
}

// Spares have no room for a key, so they hold its checksum.
Owner owner_of(const Key& key, std::uint32_t index) {
  Owner owner;
  owner.session = crc32c(std::as_bytes(std::span(&key, 1)));
  owner.kind = GroupKind::kValue;
  owner.index = index;
  return owner;
}

std::string name_of(const Key& key) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string name = "value of key ";
  for (std::uint32_t i = 0; i < key.length; ++i) {
    name += kDigits[key.bytes[i] >> 4];
    name += kDigits[key.bytes[i] & 0xf];
  }
  return name;
}

bool sane(const SavedValue& saved) {
  const Key& key = saved.key;
  return key.length >= 1 && key.length <= key.bytes.size() && saved.bytes <= ValueStore::kMostBytes &&
         std::all_of(key.bytes.begin() + key.length, key.bytes.end(), [](std::uint8_t byte) { return byte == 0; });
}

}  // namespace

const Value* ValueStore::find(const Key& key) const {
  const auto found = values_.find(key);
  return found == values_.end() ? nullptr : &found->second;
}

void ValueStore::count(const Key& key, const Value& value, int sign) {
  const std::uint64_t bytes = std::uint64_t{key.length} + value.bytes;
  stored_bytes_ += sign > 0 ? bytes : 0 - bytes;
  ftl_.charge(sign * kKeyBytes);
}

bool ValueStore::fits(std::uint64_t bytes) const { return pages(bytes) <= ftl_.available(); }

void ValueStore::append(const Key& key, Value& value, std::span<const std::byte> data) {
  if (data.empty()) return;
  if (!fits(data.size())) throw DriveFull();
  if (value.list == GroupMap::kNoList) value.list = ftl_.create_list();
  std::uint32_t index = pages(value.bytes);
  for (std::size_t at = 0; at < data.size(); at += abi::kPageBytes, ++index) {
    const auto page = data.subspan(at, std::min<std::size_t>(abi::kPageBytes, data.size() - at));
    ftl_.put(value.list, owner_of(key, index), page, {});
  }
  value.bytes += static_cast<std::uint32_t>(data.size());
}

void ValueStore::publish(const Key& key, const Value& value) {
  const auto old = values_.find(key);
  if (old == values_.end() && ftl_.metadata_left() < static_cast<std::uint64_t>(kKeyBytes)) throw DriveFull();
  if (old != values_.end()) {
    count(key, old->second, -1);
    discard(old->second);
  }
  values_[key] = value;
  count(key, value, 1);
  changed_.insert(key);
}

void ValueStore::discard(Value& value) {
  if (value.list != GroupMap::kNoList) ftl_.drop_list(value.list);
  value = {};
}

void ValueStore::remove(const Key& key) {
  const auto found = values_.find(key);
  count(key, found->second, -1);
  discard(found->second);
  values_.erase(found);
  changed_.insert(key);
}

void ValueStore::clear() {
  while (!values_.empty()) remove(Key(values_.begin()->first));
}

ReadResult ValueStore::read(const Value& value, std::uint32_t offset, std::uint32_t count, Ns ready,
                            std::vector<std::byte>& out, std::optional<TransferKind> start) const {
  if (count == 0) return {.whole = true, .done = ready};
  const std::uint32_t first = offset / abi::kPageBytes, end = pages(std::uint64_t{offset} + count);
  out.resize(std::size_t{end - first} * abi::kPageBytes);
  std::vector<GroupRead> reads;
  reads.reserve(end - first);
  for (std::uint32_t i = first; i < end; ++i) {
    reads.push_back({value.list, i, out.data() + std::size_t{i - first} * abi::kPageBytes});
  }
  const ReadResult result = start ? ftl_.start(reads, ready, *start) : ftl_.read(reads, ready, Sink::kHost);
  if (const std::uint32_t skipped = offset % abi::kPageBytes) out.erase(out.begin(), out.begin() + skipped);
  out.resize(count);
  return result;
}

void ValueStore::save(RecordWriter& writer, bool everything) const {
  const auto put = [&writer](const Key& key, const Value* value) {
    writer.put(RecordType::kValue);
    writer.put(value ? SavedValue{key, value->list, value->bytes, 1} : SavedValue{key, GroupMap::kNoList, 0, 0});
    writer.end_record();
  };
  if (everything) {
    for (const auto& [key, value] : values_) put(key, &value);
  } else {
    for (const Key& key : changed_) put(key, find(key));
  }
}

void ValueStore::load(RecordReader& reader) {
  const auto saved = reader.get<SavedValue>();
  if (!sane(saved)) throw std::runtime_error("a record of a value is damaged");
  if (saved.exists != 0) {
    values_[saved.key] = {saved.list, saved.bytes};
  } else {
    values_.erase(saved.key);
  }
}

void ValueStore::claim_lists() {
  for (const auto& [key, value] : values_) {
    if (value.list != GroupMap::kNoList) ftl_.claim(value.list);
  }
}

void ValueStore::finish_loading() {
  for (const auto& [key, value] : values_) {
    const std::uint32_t groups = value.list == GroupMap::kNoList ? 0 : ftl_.groups(value.list, pages(value.bytes));
    if (groups != pages(value.bytes)) throw std::runtime_error("the " + name_of(key) + " lacks pages");
    count(key, value, 1);
  }
}

// A list never changes a group that it has. So any group of its family that verifies is the right one.
bool ValueStore::verify(const Value& value, std::span<const FoundGroup> found) {
  for (std::uint32_t index = 0; index < pages(value.bytes); ++index) {
    if (ftl_.salvage().verified(value.list, index)) continue;
    const auto moved = std::ranges::find_if(found, [&](const FoundGroup& group) {
      return group.owner.kind == GroupKind::kValue && group.family == ftl_.family(value.list) &&
             group.owner.index == index && ftl_.salvage().verified(group);
    });
    if (moved == found.end()) return false;
    ftl_.salvage().adopt(value.list, index, moved->unit);
  }
  return true;
}

void ValueStore::salvage(std::span<const FoundGroup> found, const std::function<void(const std::string&)>& report) {
  std::vector<Key> lost;
  for (const auto& [key, value] : values_) {
    if (!verify(value, found)) lost.push_back(key);
  }
  for (const Key& key : lost) {
    report("the " + name_of(key) + " is dropped: one of its pages or spares is damaged");
    remove(key);
  }
}

void ValueStore::check(const std::function<void(const std::string&)>& report) const {
  for (const auto& [key, value] : values_) {
    for (std::uint32_t index = 0; index < pages(value.bytes); ++index) {
      Owner owner;
      if (!ftl_.holds(value.list, index)) {
        report(name_of(key) + ": page " + std::to_string(index) + " is missing");
      } else if (ftl_.owner_of(value.list, index, owner) && owner != owner_of(key, index)) {
        report(name_of(key) + ": page " + std::to_string(index) + " was written for something else");
      }
    }
  }
}

}  // namespace kvdrive
