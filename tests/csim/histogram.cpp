// SPDX-License-Identifier: Apache-2.0
// Counts into a memory whose reads miss the latest updates, as block RAM does in a pipeline that takes a key a cycle.
#include <cstdio>
#include <deque>
#include <utility>
#include <vector>

#include "argtopk/radix.hpp"

namespace {

using kvdrive::lane_count_t;

// A write becomes visible `delay` calls of `advance` after its own.
class StaleMemory {
 public:
  explicit StaleMemory(std::size_t delay) : delay_(delay), counts_(2 * kvdrive::kBinPairs, 0) {}

  class Count {
   public:
    Count(StaleMemory& memory, unsigned bin) : memory_(memory), bin_(bin) {}
    operator lane_count_t() const { return memory_.counts_[bin_]; }
    Count& operator=(const lane_count_t& count) {
      memory_.pending_.back().push_back({bin_, count});
      return *this;
    }

   private:
    StaleMemory& memory_;
    unsigned bin_;
  };

  class Bank {
   public:
    Bank(StaleMemory& memory, unsigned odd) : memory_(memory), odd_(odd) {}
    Count operator[](unsigned pair) { return {memory_, 2 * pair + odd_}; }

   private:
    StaleMemory& memory_;
    unsigned odd_;
  };

  Bank operator[](unsigned odd) { return {*this, odd}; }

  void advance() {
    pending_.emplace_back();
    while (pending_.size() > delay_ + 1) {
      for (const auto& [bin, count] : pending_.front()) counts_[bin] = count;
      pending_.pop_front();
    }
  }

  unsigned settled(unsigned bin) {
    for (std::size_t i = 0; i <= delay_; ++i) advance();
    return counts_[bin].to_uint();
  }

 private:
  std::size_t delay_;
  std::vector<lane_count_t> counts_;
  std::deque<std::vector<std::pair<unsigned, lane_count_t>>> pending_;
};

// Number of bins whose count is wrong after `keys` keys over `bins` bins, one key in four unused.
int wrong_bins(std::size_t delay, unsigned bins, unsigned keys) {
  StaleMemory memory(delay);
  kvdrive::InFlight latest;
  std::vector<unsigned> expected(bins, 0);
  unsigned state = bins;
  for (unsigned i = 0; i < keys; ++i) {
    state = state * 1664525u + 1013904223u;
    const unsigned bin = (state >> 8) % bins;
    const bool used = (state >> 28) % 4 != 0;
    memory.advance();
    kvdrive::count_bin(memory, latest, used, bin);
    expected[bin] += used;
  }
  int wrong = 0;
  for (unsigned bin = 0; bin < bins; ++bin) wrong += memory.settled(bin) != expected[bin];
  return wrong;
}

}  // namespace

int main() {
  for (std::size_t delay = 0; delay <= kvdrive::kInFlight + 1; ++delay) {
    int wrong = 0;
    for (const unsigned bins : {1u, 2u, 3u, 5u, 50u}) wrong += wrong_bins(delay, bins, 5000);
    std::printf("%zu %s\n", delay, wrong == 0 ? "exact" : "wrong");
  }
  return 0;
}
