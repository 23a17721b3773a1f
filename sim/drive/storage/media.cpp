// SPDX-License-Identifier: Apache-2.0
#include "storage/media.hpp"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <numeric>
#include <utility>

namespace kvdrive {
namespace {

constexpr std::size_t kLargestTransfer = 1 << 20;
constexpr std::size_t kSmallRead = 128 << 10;
constexpr std::size_t kTaskBytes = 512 << 10;  // of the runs that a thread takes at once
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

TransferThreads::Batch Media::start_read(std::span<const UnitRead> reads, Arrived arrived) {
  struct Run {
    Unit first;
    std::vector<iovec> parts;
    std::vector<std::size_t> numbers;
  };
  std::vector<std::size_t> order(reads.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::sort(order, {}, [&reads](std::size_t i) { return reads[i].unit; });
  std::vector<Run> runs;
  for (const std::size_t number : order) {
    const UnitRead& read = reads[number];
    const Unit program = read.unit - read.unit % superblock_.geometry.units_per_program();
    if (const AlignedBuffer* held = in_memory(program)) {
      std::memcpy(read.out, held->data() + std::size_t{read.unit - program} * abi::kPageBytes, abi::kPageBytes);
      if (arrived) arrived(number);
      continue;
    }
    const auto extends = [&](const Run& run) {
      return read.unit == run.first + run.numbers.size() && run.numbers.size() * abi::kPageBytes < kLargestTransfer;
    };
    if (runs.empty() || !extends(runs.back())) runs.push_back({read.unit, {}, {}});
    Run& run = runs.back();
    auto* const end =
        run.parts.empty() ? nullptr : static_cast<std::byte*>(run.parts.back().iov_base) + run.parts.back().iov_len;
    if (read.out == end) {
      run.parts.back().iov_len += abi::kPageBytes;
    } else {
      run.parts.push_back({read.out, abi::kPageBytes});
    }
    run.numbers.push_back(number);
  }
  const auto transfer = [this, arrived](const Run& run) {
    file_.read(superblock_.unit_offset() + std::uint64_t{run.first} * abi::kPageBytes, run.parts);
    if (!arrived) return;
    for (const std::size_t number : run.numbers) arrived(number);
  };
  if (reads.size() * abi::kPageBytes <= kSmallRead) {  // waking a thread would take longer
    std::ranges::for_each(runs, transfer);
    return {};
  }
  std::vector<TransferThreads::Task> tasks;
  for (auto first = runs.begin(); first != runs.end();) {
    auto end = first;
    for (std::size_t size = 0; end != runs.end() && size < kTaskBytes; ++end)
      size += end->numbers.size() * abi::kPageBytes;
    tasks.emplace_back([transfer, part = std::vector<Run>(std::move_iterator(first), std::move_iterator(end))] {
      std::ranges::for_each(part, transfer);
    });
    first = end;
  }
  return threads_.start(std::move(tasks));
}

// The contents of a program that the file does not have yet; null: it has them.
const AlignedBuffer* Media::in_memory(Unit program) const {
  if (const auto staged = staged_.find(program); staged != staged_.end()) return &staged->second;
  for (const Write& write : writing_) {
    if (const auto found = write.programs.find(program); found != write.programs.end()) return &found->second;
  }
  return nullptr;
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

void Media::write_run(const std::map<Unit, AlignedBuffer>& programs) {
  std::vector<iovec> parts;
  for (const auto& [unit, data] : programs) parts.push_back({const_cast<std::byte*>(data.data()), data.size()});
  file_.write(superblock_.unit_offset() + std::uint64_t{programs.begin()->first} * abi::kPageBytes, parts);
}

// Starts the writes of all staged programs; up to `in_flight` of them may still run afterwards.
void Media::drain_units(std::size_t in_flight) {
  while (!staged_.empty()) {
    reap(kWritesInFlight - 1);
    Write& write = writing_.emplace_back();
    std::size_t size = 0;
    const Unit first = staged_.begin()->first;
    while (!staged_.empty() && staged_.begin()->first == first + size / abi::kPageBytes && size < kLargestTransfer) {
      size += staged_.begin()->second.size();
      write.programs.insert(staged_.extract(staged_.begin()));
    }
    staged_bytes_ -= size;
    std::vector<TransferThreads::Task> tasks;
    tasks.emplace_back([this, &write] { write_run(write.programs); });
    write.batch = threads_.start(std::move(tasks));
    if (file_.power_cut().armed()) reap(0);  // a cut counts writes: they keep their order
  }
  reap(in_flight);
}

// Waits until no more than `in_flight` writes run. Of a failed one the programs are staged again.
void Media::reap(std::size_t in_flight) {
  while (!writing_.empty() && (writing_.size() > in_flight || writing_.front().batch.done())) {
    Write& write = writing_.front();
    try {
      write.batch.wait();
    } catch (...) {
      for (const auto& [unit, data] : write.programs) staged_bytes_ += data.size();
      staged_.merge(write.programs);
      writing_.pop_front();
      throw;
    }
    writing_.pop_front();
  }
}

void Media::drain() {
  drain_units(0);
  for (auto& [offset, sector] : sectors_) {
    if (!sector.dirty) continue;
    file_.write(offset, sector.bytes.span());
    sector.dirty = false;
  }
}

}  // namespace kvdrive
