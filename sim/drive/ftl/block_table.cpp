// SPDX-License-Identifier: Apache-2.0
#include "ftl/block_table.hpp"

#include <algorithm>
#include <stdexcept>

namespace kvdrive {

BlockTable::BlockTable(const Geometry& geometry)
    : geometry_(geometry),
      blocks_(std::size_t{geometry.dies()} * geometry.blocks_per_die, Block{.erased = true}),
      dies_(geometry.dies()) {
  for (Die& die : dies_) die.free = geometry.blocks_per_die;
}

std::optional<std::uint32_t> BlockTable::open_block(std::uint32_t die) const { return dies_[die].open; }

std::uint64_t BlockTable::room(std::uint32_t die) const {
  const std::uint32_t out_of_use = dies_[die].bad + kReserve + 1;
  if (geometry_.blocks_per_die <= out_of_use) return 0;
  return std::uint64_t{geometry_.blocks_per_die - out_of_use} * geometry_.units_per_block();
}

std::optional<std::uint32_t> BlockTable::open_next(std::uint32_t die) {
  std::optional<std::uint32_t> best;
  for (std::uint32_t block = 0; block < geometry_.blocks_per_die; ++block) {
    if (at(die, block).state != State::kFree) continue;
    if (!best || at(die, block).erases < at(die, *best).erases) best = block;
  }
  if (!best) return best;
  set_state(die, *best, State::kOpen);
  at(die, *best).programs = 0;
  dies_[die].open = best;
  return best;
}

std::optional<std::uint32_t> BlockTable::victim(std::uint32_t die) const {
  std::optional<std::uint32_t> fewest;
  for (std::uint32_t number = 0; number < geometry_.blocks_per_die; ++number) {
    const Block& block = at(die, number);
    if (block.state == State::kFailing) return number;
    if (block.state != State::kFull) continue;
    if (!fewest || block.live_units < at(die, *fewest).live_units) fewest = number;
  }
  if (fewest && at(die, *fewest).live_units == geometry_.units_per_block()) return std::nullopt;
  return fewest;
}

std::optional<std::uint32_t> BlockTable::unchanging(std::uint32_t die) const {
  std::optional<std::uint32_t> coldest;
  std::uint32_t most_worn = 0;
  for (std::uint32_t number = 0; number < geometry_.blocks_per_die; ++number) {
    const Block& block = at(die, number);
    most_worn = std::max(most_worn, block.erases);
    if (block.state != State::kFull) continue;
    if (!coldest || block.erases < at(die, *coldest).erases) coldest = number;
  }
  if (coldest && most_worn - at(die, *coldest).erases <= kWearGap) return std::nullopt;
  return coldest;
}

void BlockTable::programmed(std::uint32_t die, std::uint32_t number) {
  dirty_.insert(die * geometry_.blocks_per_die + number);
  if (++at(die, number).programs < geometry_.programs_per_block()) return;
  set_state(die, number, State::kFull);
  dies_[die].open.reset();
}

void BlockTable::change_live(Unit unit, int by) {
  const Place p = place_of(geometry_, unit);
  at(p.die, p.block).live_units += static_cast<std::uint32_t>(by);
  dies_[p.die].live += static_cast<std::uint64_t>(std::int64_t{by});
}

void BlockTable::fail(std::uint32_t die, std::uint32_t block) {
  set_state(die, block, State::kFailing);
  ++dies_[die].bad;
  if (dies_[die].open == block) dies_[die].open.reset();
}

void BlockTable::emptied(std::uint32_t die, std::uint32_t block) {
  const bool failed = at(die, block).state == State::kFailing;
  set_state(die, block, failed ? State::kBad : State::kEmptied);
  if (!failed) ++emptied_;
}

void BlockTable::mark_bad(std::uint32_t die, std::uint32_t block) {
  set_state(die, block, State::kBad);
  ++dies_[die].bad;
  if (dies_[die].open == block) dies_[die].open.reset();
}

void BlockTable::erased(std::uint32_t die, std::uint32_t number) {
  Block& block = at(die, number);
  block.erased = true;
  ++block.erases;
  dirty_.insert(die * geometry_.blocks_per_die + number);
}

void BlockTable::sweep() {
  for (std::uint32_t die = 0; die < geometry_.dies(); ++die) {
    for (std::uint32_t block = 0; block < geometry_.blocks_per_die; ++block) {
      if (at(die, block).state == State::kFull && at(die, block).live_units == 0) emptied(die, block);
    }
  }
}

void BlockTable::set_state(std::uint32_t die, std::uint32_t number, State state) {
  Block& block = at(die, number);
  if (block.state == State::kFree) --dies_[die].free;
  if (state == State::kFree) {
    ++dies_[die].free;
    block.erased = false;
  }
  block.state = state;
  dirty_.insert(die * geometry_.blocks_per_die + number);
}

void BlockTable::save(RecordWriter& writer, bool everything) const {
  std::vector<Saved> saved;
  const auto add = [&](std::uint32_t index) {
    const Block& block = blocks_[index];
    // An open block is not continued after a crash: nobody knows how far it was programmed.
    const State state = block.state == State::kOpen      ? State::kFull
                        : block.state == State::kEmptied ? State::kFree
                                                         : block.state;
    saved.push_back({index, block.erases, block.programs, state});
  };
  if (everything) {
    for (std::uint32_t index = 0; index < blocks_.size(); ++index) {
      const Block& block = blocks_[index];
      if (block.state != State::kFree || block.erases > 0) add(index);
    }
  } else {
    std::vector<std::uint32_t> dirty(dirty_.begin(), dirty_.end());
    std::ranges::sort(dirty);
    for (const std::uint32_t index : dirty) add(index);
  }
  if (saved.empty()) return;
  writer.put(RecordType::kBlock);
  writer.put(static_cast<std::uint32_t>(saved.size()));
  writer.put_all(std::span<const Saved>(saved));
  writer.end_record();
}

void BlockTable::load(RecordReader& reader) {
  for (const Saved& saved : reader.get_all<Saved>(reader.get<std::uint32_t>())) {
    if (saved.index >= blocks_.size() || saved.state > State::kBad)
      throw std::runtime_error("a block record is damaged");
    blocks_[saved.index] = {saved.erases, saved.programs, saved.state, false, 0};
  }
}

void BlockTable::finish_loading() {
  dies_.assign(geometry_.dies(), {});
  for (std::uint32_t die = 0; die < geometry_.dies(); ++die) {
    for (std::uint32_t block = 0; block < geometry_.blocks_per_die; ++block) {
      const State state = at(die, block).state;
      at(die, block).erased = false;
      at(die, block).live_units = 0;
      dies_[die].free += state == State::kFree;
      dies_[die].bad += state == State::kBad || state == State::kFailing;
    }
  }
  dirty_.clear();
}

void BlockTable::committed() {
  std::unordered_set<std::uint32_t> dirty;
  dirty.swap(dirty_);
  for (const std::uint32_t index : dirty) {
    if (blocks_[index].state != State::kEmptied) continue;
    set_state(index / geometry_.blocks_per_die, index % geometry_.blocks_per_die, State::kFree);
  }
  dirty_.clear();
  emptied_ = 0;
}

BlockTable::Wear BlockTable::wear() const {
  Wear wear{.least = blocks_.front().erases};
  for (const Block& block : blocks_) {
    wear.least = std::min(wear.least, block.erases);
    wear.most = std::max(wear.most, block.erases);
    wear.bad += block.state == State::kBad || block.state == State::kFailing;
    wear.erases += block.erases;
  }
  return wear;
}

}  // namespace kvdrive
