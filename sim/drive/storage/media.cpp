// SPDX-License-Identifier: Apache-2.0
#include "storage/media.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

namespace kvdrive {
namespace {

constexpr std::size_t kLargestTransfer = 1 << 20;
constexpr std::size_t kCachedSectors = 1024;

}  // namespace

void Media::program(Unit first, AlignedBuffer data, std::span<const Spare> spares) {
  for (std::size_t i = 0; i < spares.size(); ++i) {
    const std::uint64_t at = spare_offset(first + static_cast<Unit>(i));
    Sector& sector = sector_at(at);
    std::memcpy(sector.bytes.data() + at % abi::kPageBytes, &spares[i], sizeof(Spare));
    sector.dirty = true;
  }
  staged_bytes_ += data.size();
  staged_.insert_or_assign(first, std::move(data));
}

void Media::read(std::span<const UnitRead> reads) {
  std::vector<UnitRead> sorted(reads.begin(), reads.end());
  std::ranges::sort(sorted, {}, &UnitRead::unit);
  std::vector<iovec> parts;
  Unit first = 0;
  const auto flush = [&] {
    if (!parts.empty()) file_.read(superblock_.unit_offset() + std::uint64_t{first} * abi::kPageBytes, parts);
    parts.clear();
  };
  Unit next = 0;
  for (const UnitRead& read : sorted) {
    const Unit program = read.unit - read.unit % superblock_.geometry.units_per_program();
    if (const auto staged = staged_.find(program); staged != staged_.end()) {
      std::memcpy(read.out, staged->second.data() + std::size_t{read.unit - program} * abi::kPageBytes,
                  abi::kPageBytes);
      continue;
    }
    if (!parts.empty() && (read.unit != next || (next - first) * std::size_t{abi::kPageBytes} >= kLargestTransfer)) {
      flush();
    }
    if (parts.empty()) first = read.unit;
    auto* const end = parts.empty() ? nullptr : static_cast<std::byte*>(parts.back().iov_base) + parts.back().iov_len;
    if (read.out == end) {
      parts.back().iov_len += abi::kPageBytes;
    } else {
      parts.push_back({read.out, abi::kPageBytes});
    }
    next = read.unit + 1;
  }
  flush();
}

Spare Media::spare(Unit unit) {
  const std::uint64_t at = spare_offset(unit);
  Spare spare;
  std::memcpy(&spare, sector_at(at).bytes.data() + at % abi::kPageBytes, sizeof spare);
  return spare;
}

// The spares of a block lie together.
std::uint64_t Media::spare_offset(Unit unit) const {
  const Geometry& g = superblock_.geometry;
  const Place p = place_of(g, unit);
  const std::uint64_t block = std::uint64_t{p.die} * g.blocks_per_die + p.block;
  const std::uint64_t index = (block * g.programs_per_block() + p.program) * g.units_per_program() + p.slot;
  return superblock_.spare_offset() + index * sizeof(Spare);
}

Media::Sector& Media::sector_at(std::uint64_t offset) {
  const std::uint64_t start = offset / abi::kPageBytes * abi::kPageBytes;
  const auto found = sectors_.find(start);
  if (found != sectors_.end()) return found->second;
  if (sectors_.size() > kCachedSectors) {
    std::erase_if(sectors_, [](const auto& entry) { return !entry.second.dirty; });
  }
  Sector sector{AlignedBuffer(abi::kPageBytes)};
  file_.read(start, sector.bytes.span());
  return sectors_.emplace(start, std::move(sector)).first->second;
}

void Media::drain_units() {
  for (auto run = staged_.begin(); run != staged_.end();) {
    std::vector<iovec> parts;
    std::size_t size = 0;
    auto end = run;
    while (end != staged_.end() && end->first == run->first + size / abi::kPageBytes && size < kLargestTransfer) {
      parts.push_back({end->second.data(), end->second.size()});
      size += end->second.size();
      ++end;
    }
    file_.write(superblock_.unit_offset() + std::uint64_t{run->first} * abi::kPageBytes, parts);
    staged_bytes_ -= size;
    run = staged_.erase(run, end);
  }
}

void Media::drain() {
  drain_units();
  for (auto& [offset, sector] : sectors_) {
    if (!sector.dirty) continue;
    file_.write(offset, sector.bytes.span());
    sector.dirty = false;
  }
}

}  // namespace kvdrive
