// SPDX-License-Identifier: Apache-2.0
#include "storage/media.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <system_error>
#include <utility>

namespace kvdrive {
namespace {

constexpr std::size_t kRowsKept = 64;
constexpr std::uint64_t kSpareWindow = 64 << 10;  // covers the spares of 2048 units

AlignedBuffer take(std::vector<AlignedBuffer>& from) {
  if (from.empty()) return {};
  AlignedBuffer buffer = std::move(from.back());
  from.pop_back();
  return buffer;
}

}  // namespace

Media::Media(BackingFile& file, const Superblock& superblock)
    : file_(file),
      superblock_(superblock),
      units_(file.map(superblock.unit_offset(), superblock.geometry.units() * abi::kPageBytes)),
      spares_(file.map(superblock.spare_offset(), superblock.spare_bytes())) {}

AlignedBuffer Media::buffer() {
  AlignedBuffer buffer = take(data_memory_);
  memory_kept_ -= buffer.size();
  buffer.resize(0);
  return buffer;
}

void Media::program(Unit first, AlignedBuffer data, std::span<const Spare> spares) {
  Row row{.data = std::move(data), .spares = take(spare_memory_)};
  if (!keeps_payload()) row.data.resize(0);
  row.spares.resize(0);
  row.spares.append(std::as_bytes(spares));
  row.spares.resize(superblock_.row_spare_bytes());
  const std::size_t bytes = row.data.size() + row.spares.size();
  unwritten_bytes_ += bytes;
  gathered_bytes_ += bytes;
  rows_.insert_or_assign(first, std::move(row));
  if (gathered_bytes_ >= kWriteBytes) write_behind();
  while (unwritten_bytes_ > kUnwrittenBytes && file_.in_flight() > 0) {
    file_.wait(file_.in_flight() - 1);
    forget_written();
  }
}

const Media::Row* Media::unwritten(Unit unit) const {
  if (rows_.empty()) return nullptr;
  const auto found = rows_.find(unit - unit % superblock_.geometry.units_per_row());
  return found == rows_.end() ? nullptr : &found->second;
}

const std::byte* Media::unit(Unit unit) const {
  if (!keeps_payload()) return zeros_.data();
  const std::byte* in_memory = unwritten_unit(unit);
  return in_memory != nullptr ? in_memory : units_.data() + std::uint64_t{unit} * abi::kPageBytes;
}

const std::byte* Media::unwritten_unit(Unit unit) const {
  const Row* row = unwritten(unit);
  if (row == nullptr) return nullptr;
  return row->data.data() + std::size_t{unit % superblock_.geometry.units_per_row()} * abi::kPageBytes;
}

Spare Media::spare(Unit unit) const {
  const std::uint64_t in_row = std::uint64_t{unit % superblock_.geometry.units_per_row()} * sizeof(Spare);
  const Row* row = unwritten(unit);
  Spare spare;
  std::memcpy(&spare, row != nullptr ? row->spares.data() + in_row : spares_.data() + spare_offset(unit), sizeof spare);
  return spare;
}

void Media::fetch(Unit first, std::uint32_t count) const {
  if (count == 0) return;
  if (keeps_payload()) units_.fetch(std::uint64_t{first} * abi::kPageBytes, std::uint64_t{count} * abi::kPageBytes);
  fetch_spares(first, count);
}

void Media::fetch_spares(Unit first, std::uint32_t count) const {
  const auto [begin, end] = spare_windows(first, count);
  spares_.fetch(begin, end - begin);
}

void Media::copy(Unit first, std::uint32_t count, std::span<std::byte> contents, std::span<Spare> spares) const {
  if (!contents.empty()) file_.read(file_offset(first), contents);
  std::vector<std::byte> row(superblock_.row_spare_bytes());
  const std::uint32_t per_row = superblock_.geometry.units_per_row();
  for (std::uint32_t i = 0; i < count; ++i) {
    const Unit unit = first + i;
    if (i == 0 || unit % per_row == 0) file_.read(superblock_.spare_offset() + unit / per_row * row.size(), row);
    std::memcpy(&spares[i], row.data() + unit % per_row * sizeof(Spare), sizeof(Spare));
    if (const Row* const unwritten_row = unwritten(unit)) {
      std::memcpy(&spares[i], unwritten_row->spares.data() + unit % per_row * sizeof(Spare), sizeof(Spare));
      if (!contents.empty())
        std::memcpy(contents.data() + i * std::size_t{abi::kPageBytes}, unwritten_unit(unit), abi::kPageBytes);
    }
  }
}

bool Media::fetched(Unit first, std::uint32_t count) const {
  const auto [begin, end] = spare_windows(first, count);
  return spares_.fetched(begin, end - begin) &&
         units_.fetched(std::uint64_t{first} * abi::kPageBytes, std::uint64_t{count} * abi::kPageBytes);
}

void Media::expect_spares(Unit first, std::uint32_t count) const {
  const auto windows = spare_windows(first, count);
  if (windows.first >= expected_.first && windows.second <= expected_.second) return;
  expected_ = windows;
  spares_.expect(windows.first, windows.second - windows.first);
}

// Returns begin and end of the range of the spare area to read. It includes neighbouring spares, because they will be
// needed soon and cost less now than in a read of their own.
std::pair<std::uint64_t, std::uint64_t> Media::spare_windows(Unit first, std::uint32_t count) const {
  const std::uint64_t begin = spare_offset(first), end = spare_offset(first + count - 1) + sizeof(Spare);
  return {begin / kSpareWindow * kSpareWindow,
          std::min((end + kSpareWindow - 1) / kSpareWindow * kSpareWindow, superblock_.spare_bytes())};
}

std::uint64_t Media::rows_bytes(std::uint32_t rows) const {
  return keeps_payload() ? std::uint64_t{rows} * superblock_.geometry.units_per_row() * abi::kPageBytes : 0;
}

bool Media::blank(Unit first, std::uint32_t rows) const {
  const std::uint64_t spares = superblock_.spare_offset() + spare_offset(first);
  return file_.blank(spares, rows * superblock_.row_spare_bytes()) && file_.blank(file_offset(first), rows_bytes(rows));
}

void Media::discard(Unit first, std::uint32_t rows) {
  file_.discard(superblock_.spare_offset() + spare_offset(first), rows * superblock_.row_spare_bytes());
  file_.discard(file_offset(first), rows_bytes(rows));
}

void Media::discard_units(Unit first, std::uint32_t count) {
  if (keeps_payload()) file_.discard(file_offset(first), std::uint64_t{count} * abi::kPageBytes);
}

// Returns the position of a spare within the spare area.
std::uint64_t Media::spare_offset(Unit unit) const {
  const std::uint32_t per_row = superblock_.geometry.units_per_row();
  return unit / per_row * superblock_.row_spare_bytes() + unit % per_row * sizeof(Spare);
}

// Starts to write the gathered rows, joining neighbours. The split into writes depends on the commands only, not on the
// disk's speed. So a simulated power cut hits the same write in every run.
void Media::write_behind() {
  const Geometry& g = superblock_.geometry;
  const std::size_t data_bytes = keeps_payload() ? std::size_t{g.units_per_row()} * abi::kPageBytes : 0;
  gathered_bytes_ = 0;
  for (auto first = rows_.begin(); first != rows_.end();) {
    if (!first->second.gathered || first->second.pending > 0) {
      ++first;
      continue;
    }
    auto last = first;
    std::size_t size = 0;
    bool whole = true;  // a band with bad blocks has shorter rows: no row can follow directly
    for (Unit next = first->first;
         whole && last != rows_.end() && last->first == next && last->second.gathered && size < kWriteBytes;
         ++last, next += g.units_per_row()) {
      Row& row = last->second;
      size += row.data.size() + row.spares.size();
      whole = row.data.size() == data_bytes;
      row.gathered = false;
      row.pending = data_bytes > 0 ? 2 : 1;
    }
    if (data_bytes > 0) {
      write_parts(first, last, &Row::data, superblock_.unit_offset() + std::uint64_t{first->first} * abi::kPageBytes);
    }
    write_parts(first, last, &Row::spares, superblock_.spare_offset() + spare_offset(first->first));
    first = last;
  }
  forget_written();
}

void Media::write_parts(Rows::iterator first, Rows::iterator last, AlignedBuffer Row::* what, std::uint64_t offset) {
  std::vector<iovec> parts;
  std::size_t rows = 0;
  for (auto row = first; row != last; ++row, ++rows) {
    AlignedBuffer& bytes = row->second.*what;
    parts.push_back({bytes.data(), bytes.size()});
  }
  // A row stays in the map until all its writes have ended. A row whose write failed becomes a gathered row again.
  file_.write_behind(offset, parts, [first, rows](int error) {
    auto row = first;
    for (std::size_t i = 0; i < rows; ++i, ++row) {
      --row->second.pending;
      row->second.gathered |= error != 0;
    }
  });
}

void Media::forget_written() {
  for (auto row = rows_.begin(); row != rows_.end();) {
    if (row->second.gathered || row->second.pending > 0) {
      ++row;
      continue;
    }
    show_written(row->first, row->second);
    unwritten_bytes_ -= row->second.data.size() + row->second.spares.size();
    if (memory_kept_ < kUnwrittenBytes && spare_memory_.size() < kRowsKept) {
      memory_kept_ += row->second.data.size();
      data_memory_.push_back(std::move(row->second.data));
      spare_memory_.push_back(std::move(row->second.spares));
    }
    row = rows_.erase(row);
  }
}

void Media::show_written(Unit first, const Row& row) {
  units_.show_written(std::uint64_t{first} * abi::kPageBytes, row.data.size());
  spares_.show_written(spare_offset(first), row.spares.size());
}

void Media::drain() {
  file_.flush_writes();
  forget_written();
  write_behind();
  file_.flush_writes();
  forget_written();
  if (!rows_.empty()) throw std::system_error(EIO, std::generic_category(), "the backing file cannot be written");
}

}  // namespace kvdrive
