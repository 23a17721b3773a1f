// SPDX-License-Identifier: Apache-2.0
#include "ftl/ftl.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

namespace kvdrive {

Ftl::Ftl(const Superblock& superblock, Media& media, NandDevice& device, Faults& faults, std::function<void()> commit)
    : geometry_(superblock.geometry),
      capacity_(superblock.capacity_units),
      media_(media),
      device_(device),
      faults_(faults),
      commit_(std::move(commit)),
      bands_(geometry_) {}

void Ftl::cut(ListId list, std::uint32_t from) {
  map_.cut(list, from, [this](Unit unit, std::uint32_t count) { free_units(unit, count); });
}

void Ftl::drop_list(ListId list) {
  map_.drop(list, [this](Unit unit, std::uint32_t count) { free_units(unit, count); });
}

void Ftl::remove(ListId list, std::uint32_t index) {
  map_.remove(list, index, [this](Unit unit, std::uint32_t count) { free_units(unit, count); });
}

// A group that waits is programmed all the same, as zeros.
void Ftl::free_units(Unit unit, std::uint32_t count) {
  live_ -= count;
  if (!waits(unit)) {
    bands_.remove_live(unit, count);
    return;
  }
  for (std::uint32_t i = 0; i < count; ++i) {
    const std::size_t slot = slot_of(unit + i);
    queue_[slot].live = false;
    if (media_.keeps_payload()) std::memset(data_.data() + slot * abi::kPageBytes, 0, abi::kPageBytes);
  }
}

void Ftl::put(ListId list, const Owner& owner, std::span<const std::byte> first, std::span<const std::byte> rest) {
  if (live_ >= capacity_ || live_ >= bands_.room() || faults_.strikes(FaultKind::kFull)) throw DriveFull();
  if (metadata_left() == 0) throw DriveFull();
  while (queue_.size() + 1 >= row_units() && !bands_.open_band()) {
    if (!make_room()) throw DriveFull();
  }
  std::byte* const to = push({.family = map_.family(list), .owner = owner});
  if (to != nullptr) {
    if (!first.empty()) std::memcpy(to, first.data(), first.size());
    if (!rest.empty()) std::memcpy(to + first.size(), rest.data(), rest.size());
    const std::size_t used = first.size() + rest.size();
    if (used < abi::kPageBytes) std::memset(to + used, 0, abi::kPageBytes - used);
    queue_.back().crc = crc32c({to, abi::kPageBytes});
  }
  const auto old = map_.at(list, owner.index);
  map_.set(list, owner.index, number_of(queue_.size() - 1));
  ++live_;
  if (old && !map_.holds(map_.family(list), owner.index, *old)) free_units(*old, 1);
  ++counters_.groups_written;
  const std::uint64_t programmed = counters_.units_programmed;
  program_rows();
  if (counters_.units_programmed > programmed) collect_ahead();
}

std::uint64_t Ftl::available() const {
  const std::uint64_t room = std::min(bands_.room(), capacity_);
  return room > live_ ? room - live_ : 0;
}

std::uint64_t Ftl::run_bytes(ListId list, ListId other) const {
  std::uint64_t bytes = 0;
  for (const ListId one : {list, other}) bytes += map_.exists(one) ? map_.extents(one).memory_bytes() : 0;
  return bytes;
}

// Groups that fill a row of the band that is programmed, or of the next one.
std::size_t Ftl::row_units() const {
  const auto band = bands_.open_band();
  return band ? bands_.row_units(*band) : geometry_.units_per_row();
}

// Where the contents go; null where none are kept.
std::byte* Ftl::push(const Slot& slot) {
  queue_.push_back(slot);
  if (!media_.keeps_payload()) return nullptr;
  if (data_.data() == nullptr) data_ = media_.buffer();
  return data_.extend(abi::kPageBytes);
}

void Ftl::program_rows() {
  while (queue_.size() >= row_units()) {
    const auto band = open_band();
    if (!band) return;  // the flash is worn out: they stay in memory
    if (queue_.size() >= bands_.row_units(*band)) program_row(*band);
  }
}

// The first groups of the queue. When one of the blocks fails, the row is lost and the band is left.
bool Ftl::program_row(std::uint32_t band) {
  const std::uint32_t units = bands_.row_units(band), row = bands_.at(band).rows;
  bool failed = false;
  for (std::uint32_t i = 0, dies = bands_.dies(band); i < dies; ++i) {
    if (!faults_.strikes(FaultKind::kProgramFail)) continue;
    ++counters_.program_failures;
    bands_.fail(band, bands_.die(band, i));
    failed = true;
  }
  if (failed) return false;
  const Unit first = bands_.first_unit(band, row);
  Ns ready = now_;
  std::vector<Spare> spares(units);
  for (std::uint32_t i = 0; i < units; ++i) {
    const Slot& slot = queue_[i];
    ready = std::max(ready, slot.ready);
    if (!slot.live) continue;
    spares[i] = {.family = slot.family, .data_crc = slot.crc, .owner = slot.owner, .written = 1};
    spares[i].crc = spares[i].expected_crc();
  }
  const auto follows = [this](std::size_t i) {
    const Slot &before = queue_[i - 1], &slot = queue_[i];
    return slot.live && slot.family == before.family && slot.owner.index == before.owner.index + 1 &&
           number_of(i) == number_of(i - 1) + 1;
  };
  for (std::uint32_t i = 0; i < units;) {
    const std::uint32_t start = i++;
    if (!queue_[start].live) continue;
    while (i < units && follows(i)) ++i;
    map_.move(queue_[start].family, queue_[start].owner.index, i - start, number_of(start), first + start);
    bands_.add_live(first + start, i - start);
  }
  AlignedBuffer data = std::exchange(data_, {});
  const std::size_t bytes = media_.keeps_payload() ? std::size_t{units} * abi::kPageBytes : 0;
  if (data.size() > bytes) data_.append(data.span().subspan(bytes));
  data.resize(bytes);
  queue_.erase(queue_.begin(), queue_.begin() + units);
  first_number_ = (first_number_ + units) & kNumberMask;

  bands_.programmed(band);
  counters_.units_programmed += units;
  const std::uint32_t page = row * geometry_.pages_per_program;
  for (std::uint32_t i = 0, dies = units / geometry_.units_per_program(); i < dies; ++i) {
    const Ns done = device_.program(bands_.die(band, i), page, geometry_.units_per_program() * abi::kPageBytes, ready);
    programs_done_ = std::max(programs_done_, done);
  }
  media_.program(first, std::move(data), spares);
  return true;
}

}  // namespace kvdrive
