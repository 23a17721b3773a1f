// SPDX-License-Identifier: Apache-2.0
// Which neurons of a layer are in memory, and in which rows: the memory manager of LLM in a flash (Alizadeh et al.,
// 2024, section 3.3, whose names its members have).
//
// Rows are allocated once, by the caller. Each holds a group of neurons, the unit of reads. The first num_used rows are
// taken, so that a product reads them where they lie. A group that leaves is replaced by one of the last rows, and a
// new group comes behind the last one. Biases are in no row: those of the first matrix are with it, and those of the
// second one belong to no neuron.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace kvdrive::fast {

class NeuronWindow {
 public:
  using Groups = std::span<const std::int64_t>;

  // `memory`: rows of `row_bytes`. `groups`: how many the layer has. Groups that none of the last `calls` calls used
  // leave. Throws std::invalid_argument for sizes that do not fit together.
  NeuronWindow(std::span<std::byte> memory, std::size_t row_bytes, std::size_t groups, std::int64_t calls);

  // Begins a call that uses `groups`, each of them once. What leaves, leaves now: what no recent call used, and where
  // this makes too little room, what was used longest ago, of equals the lowest rows. Returns the groups that are
  // missing, in their order. The caller reads them into the rows from num_used on, and calls `append`; after a failure
  // it does not, and they stay missing. `briefly`: those of `groups` that count as used before, or never.
  // Throws std::invalid_argument for groups that do not exist, come twice or do not fit.
  std::vector<std::int64_t> make_room(Groups groups, Groups briefly);

  // The groups that the last `make_room` has returned are in their rows.
  void append();

  std::size_t capacity() const { return pointer_.size(); }
  std::size_t num_used() const { return num_used_; }
  std::size_t row_bytes() const { return row_bytes_; }
  // The group in each row that is taken.
  Groups pointer() const { return {pointer_.data(), num_used_}; }
  // The row of each group; -1 for a group that is not in memory.
  Groups rows() const { return row_of_; }

 private:
  struct Use {
    std::int64_t group, last_active;
  };

  void mark(Groups groups, Groups briefly);
  void leave_unless_used_after(std::int64_t call);
  void leave_oldest(std::size_t count);
  void leave_chosen();

  std::span<std::byte> memory_;
  std::size_t row_bytes_;
  std::int64_t calls_;
  std::int64_t now_ = 0;  // number of the call
  std::size_t num_used_ = 0;
  std::vector<std::int64_t> pointer_;
  std::vector<std::int64_t> last_active_;  // of each row, the last call that used it
  std::vector<std::int64_t> row_of_;
  std::vector<Use> arriving_;
  std::vector<std::uint8_t> use_;     // of each group, while a call is looked at: how it uses it
  std::vector<std::uint8_t> leaves_;  // of each row that is taken, while rows are chosen
};

}  // namespace kvdrive::fast
