// SPDX-License-Identifier: Apache-2.0
#include "engine/fast/neuron_window.hpp"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <stdexcept>

namespace kvdrive::fast {

namespace {

constexpr std::int64_t kNowhere = -1;
constexpr std::uint8_t kUnused = 0, kUsed = 1, kUsedBriefly = 2;

std::size_t at(std::int64_t number) { return static_cast<std::size_t>(number); }

}  // namespace

NeuronWindow::NeuronWindow(std::span<std::byte> memory, std::size_t row_bytes, std::size_t groups, std::int64_t calls)
    : memory_(memory), row_bytes_(row_bytes), calls_(calls) {
  if (row_bytes == 0 || memory.empty() || memory.size() % row_bytes != 0 || calls < 1) {
    throw std::invalid_argument("a window has whole rows and remembers at least one call");
  }
  pointer_.resize(memory.size() / row_bytes);
  last_active_.resize(capacity());
  leaves_.resize(capacity());
  row_of_.assign(groups, kNowhere);
  use_.assign(groups, kUnused);
}

std::vector<std::int64_t> NeuronWindow::make_room(Groups groups, Groups briefly) {
  mark(groups, briefly);
  ++now_;
  arriving_.clear();
  std::vector<std::int64_t> missing;
  std::vector<Use> unchanged;
  for (const std::int64_t group : groups) {
    const std::int64_t row = row_of_[at(group)];
    const bool brief = use_[at(group)] == kUsedBriefly;
    use_[at(group)] = kUnused;
    if (row == kNowhere) {
      missing.push_back(group);
      arriving_.push_back({group, brief ? now_ - calls_ : now_});
      continue;
    }
    if (brief) unchanged.push_back({group, last_active_[at(row)]});
    last_active_[at(row)] = now_;
  }
  leave_unless_used_after(now_ - calls_);
  if (num_used_ + missing.size() > capacity()) leave_oldest(num_used_ + missing.size() - capacity());
  for (const Use& use : unchanged) last_active_[at(row_of_[at(use.group)])] = use.last_active;
  return missing;
}

void NeuronWindow::append() {
  for (const auto& [group, last_active] : arriving_) {
    pointer_[num_used_] = group;
    last_active_[num_used_] = last_active;
    row_of_[at(group)] = static_cast<std::int64_t>(num_used_);
    ++num_used_;
  }
  arriving_.clear();
}

// How this call uses each group. Nothing has changed if it throws.
void NeuronWindow::mark(Groups groups, Groups briefly) {
  const auto count = static_cast<std::int64_t>(row_of_.size());
  bool valid = groups.size() <= capacity();
  const auto set = [&](Groups some, std::uint8_t before, std::uint8_t after) {
    for (const std::int64_t group : some) {
      valid = valid && group >= 0 && group < count && use_[at(group)] == before;
      if (!valid) return;
      use_[at(group)] = after;
    }
  };
  set(groups, kUnused, kUsed);
  set(briefly, kUsed, kUsedBriefly);
  if (valid) return;
  std::ranges::fill(use_, kUnused);
  throw std::invalid_argument("a call uses groups of the layer, each once and no more than there are rows");
}

void NeuronWindow::leave_unless_used_after(std::int64_t call) {
  for (std::size_t row = 0; row < num_used_; ++row) leaves_[row] = last_active_[row] <= call;
  leave_chosen();
}

void NeuronWindow::leave_oldest(std::size_t count) {
  std::vector<std::size_t> rows(num_used_);
  std::iota(rows.begin(), rows.end(), std::size_t{0});
  const auto end = rows.begin() + static_cast<std::ptrdiff_t>(count);
  std::ranges::nth_element(rows, end, [this](std::size_t a, std::size_t b) {
    return last_active_[a] != last_active_[b] ? last_active_[a] < last_active_[b] : a < b;
  });
  std::fill_n(leaves_.begin(), num_used_, std::uint8_t{0});
  std::for_each(rows.begin(), end, [this](std::size_t row) { leaves_[row] = 1; });
  leave_chosen();
}

// The rows that stay behind the new end fill, in their order, the holes in front of it.
void NeuronWindow::leave_chosen() {
  std::size_t stay = 0;
  for (std::size_t row = 0; row < num_used_; ++row) {
    if (leaves_[row] != 0) {
      row_of_[at(pointer_[row])] = kNowhere;
    } else {
      ++stay;
    }
  }
  std::size_t from = stay;
  for (std::size_t hole = 0; hole < stay; ++hole) {
    if (leaves_[hole] == 0) continue;
    while (leaves_[from] != 0) ++from;
    std::memcpy(memory_.data() + hole * row_bytes_, memory_.data() + from * row_bytes_, row_bytes_);
    pointer_[hole] = pointer_[from];
    last_active_[hole] = last_active_[from];
    row_of_[at(pointer_[hole])] = static_cast<std::int64_t>(hole);
    ++from;
  }
  num_used_ = stay;
}

}  // namespace kvdrive::fast
