// SPDX-License-Identifier: Apache-2.0
#include "ftl/write_queue.hpp"

#include <cstring>
#include <stdexcept>
#include <utility>

namespace kvdrive {
namespace {

struct SavedGroup {
  Unit number;
  Family family;
  std::uint32_t crc;
  std::uint32_t reserved;
  std::uint64_t order;
  Owner owner;
};

}  // namespace

std::byte* WriteQueue::push(const Slot& slot) {
  slots_.push_back(slot);
  if (!media_.keeps_payload()) return nullptr;
  if (data_.data() == nullptr) data_ = media_.buffer();
  return data_.extend(abi::kPageBytes);
}

void WriteQueue::invalidate(Unit first, std::uint32_t count) {
  for (std::uint32_t i = 0; i < count; ++i) {
    const std::size_t slot = slot_of(first + i);
    slots_[slot].live = false;
    if (media_.keeps_payload()) std::memset(data_.data() + slot * abi::kPageBytes, 0, abi::kPageBytes);
  }
}

AlignedBuffer WriteQueue::pop(std::uint32_t count) {
  AlignedBuffer data = std::exchange(data_, {});
  const std::size_t bytes = media_.keeps_payload() ? std::size_t{count} * abi::kPageBytes : 0;
  if (data.size() > bytes) data_.append(data.span().subspan(bytes));
  data.resize(bytes);
  slots_.erase(slots_.begin(), slots_.begin() + count);
  first_number_ = (first_number_ + count) & kNumberMask;
  return data;
}

void WriteQueue::clear() {
  first_number_ = (first_number_ + static_cast<Unit>(slots_.size())) & kNumberMask;
  slots_.clear();
  data_ = {};
}

void WriteQueue::save(RecordWriter& writer, bool everything) const {
  for (std::size_t i = 0; i < slots_.size(); ++i) {
    const Slot& slot = slots_[i];
    if (!slot.live || (slot.saved && !everything)) continue;
    writer.put(RecordType::kBuffered);
    writer.put(SavedGroup{number_of(i), slot.family, slot.crc, 0, slot.order, slot.owner});
    if (media_.keeps_payload()) writer.put_all(data_.span().subspan(i * abi::kPageBytes, abi::kPageBytes));
    writer.end_record();
  }
}

void WriteQueue::committed() {
  for (Slot& slot : slots_) slot.saved = true;
}

void WriteQueue::load(RecordReader& reader) {
  const auto saved = reader.get<SavedGroup>();
  if (!holds(saved.number)) throw std::runtime_error("a buffer record is damaged");
  Loaded loaded{{.family = saved.family, .owner = saved.owner, .crc = saved.crc, .order = saved.order}, {}};
  if (media_.keeps_payload()) {
    const auto data = reader.take(abi::kPageBytes);
    loaded.data.assign(data.begin(), data.end());
  }
  first_number_ = (saved.number + 1) & kNumberMask;
  loaded_.insert_or_assign(saved.number, std::move(loaded));
}

void WriteQueue::finish_loading(GroupMap& map) {
  for (auto& [number, loaded] : loaded_) {
    const std::uint32_t index = loaded.slot.owner.index;
    if (!map.holds(loaded.slot.family, index, number)) continue;
    if (std::byte* const to = push(loaded.slot)) std::memcpy(to, loaded.data.data(), abi::kPageBytes);
    map.move(loaded.slot.family, index, 1, number, last_number());
  }
  loaded_.clear();
}

}  // namespace kvdrive
