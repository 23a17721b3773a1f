// SPDX-License-Identifier: Apache-2.0
// An AXI4 memory at the pins of one master of a verilated model. It keeps the order of each ID, may exchange and
// interleave different IDs, and reports the first breach of protocol: a payload or VALID that changes before it is
// taken, a burst that is not INCR, too long, or crosses 4 KB, WLAST at the wrong word, data without an address, and an
// access outside the buffers.
//
// A cycle: drive() before the model is evaluated with the clock low, sample() after it, then the rising edge.
#pragma once

#include <array>
#include <cstdint>
#include <cstdio>
#include <deque>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "axi_pins.hpp"
#include "memory_model.hpp"
#include "ports.hpp"
#include "stalls.hpp"

namespace openhls {

class AxiMemory {
 public:
  struct Range {
    std::uint64_t first, last;  // byte addresses, both included
  };

  AxiMemory(AxiPins pins, Buffers& buffers, Channel& channel) : pins_(pins), buffers_(buffers), channel_(channel) {}

  // Begins a case: nothing is on its way; kRandom stalls every channel in its own way.
  void restart(std::mt19937& random, Stalls stalls) {
    stalls_ = stalls;
    for (Gate* gate : {&ar_gate_, &r_gate_, &aw_gate_, &w_gate_, &b_gate_}) gate->choose(random, stalls);
    most_extra_ = stalls == Stalls::kNone ? 0 : 1u << random() % 9;
    address_waits_for_data_ = stalls == Stalls::kRandom && random() % 2 == 0;
    reads_.clear();
    answers_.clear();
    writes_.clear();
    taken_.clear();
    taken_words_ = 0;
    r_offered_ = b_offered_ = false;
    ar_watch_ = aw_watch_ = w_watch_ = {};
    *pins_.rvalid = *pins_.bvalid = *pins_.ar.ready = *pins_.aw.ready = *pins_.wready = 0;
  }
  void stay_open() {
    for (Gate* gate : {&ar_gate_, &r_gate_, &aw_gate_, &w_gate_, &b_gate_}) gate->stay_open();
  }
  // Answers with SLVERR whatever touches these addresses; the data still goes its way.
  void fail_at(std::vector<Range> ranges) { failing_ = std::move(ranges); }

  void drive(std::mt19937& random) {
    const bool room = !channel_.full(now_);
    *pins_.ar.ready = room && ar_gate_.open(random);
    *pins_.aw.ready = room && (!address_waits_for_data_ || *pins_.wvalid != 0) && aw_gate_.open(random);
    *pins_.wready = !writes_.empty() && room && w_gate_.open(random);
    if (!r_offered_ && r_gate_.open(random)) offer_read(random);
    if (!b_offered_ && b_gate_.open(random)) offer_answer(random);
    *pins_.rvalid = r_offered_;
    *pins_.bvalid = b_offered_;
  }

  // True if anything moved.
  bool sample(std::mt19937& random) {
    bool moved = false;
    if (r_offered_ && *pins_.rready != 0) {
      r_offered_ = false;
      ++read_words_;
      moved = true;
    }
    if (b_offered_ && *pins_.bready != 0) {
      b_offered_ = false;
      moved = true;
    }
    moved = take_read(random) || moved;
    moved = take_data(random) || moved;
    moved = take_write() || moved;
    now_ += channel_.timing().cycle_ns;
    return moved;
  }

  // Nothing is on its way.
  bool idle() const { return reads_.empty() && answers_.empty() && writes_.empty() && !r_offered_ && !b_offered_; }
  const std::string& problem() const { return problem_; }
  std::uint64_t read_words() const { return read_words_; }
  std::uint64_t written_words() const { return written_words_; }
  std::uint64_t read_bursts() const { return read_bursts_; }
  std::uint64_t write_bursts() const { return write_bursts_; }
  std::string state() const {
    return std::string(pins_.name) + ": " + std::to_string(read_words_) + " words read, " +
           std::to_string(written_words_) + " written" + (idle() ? ";" : ", more on the way;");
  }

 private:
  struct Word {
    std::uint64_t address;
    double ready;
    bool last;
  };
  struct Burst {
    CData id;
    std::uint64_t address;
    unsigned words;
  };
  struct Store {
    std::uint64_t address;
    std::uint8_t value;
  };
  struct Answer {
    double ready;
    bool error;
    std::vector<Store> stores;
  };
  // A payload that was offered and not taken, and must not change.
  struct Watch {
    bool waiting = false;
    Words payload;
  };

  void fail(const std::string& what) {
    if (problem_.empty()) problem_ = std::string(pins_.name) + ": " + what;
  }

  bool failing(std::uint64_t address, unsigned bytes) const {
    for (const Range& range : failing_) {
      if (address <= range.last && address + bytes > range.first) return true;
    }
    return false;
  }

  double extra(std::mt19937& random) const {
    return most_extra_ == 0 ? 0 : static_cast<double>(random() % most_extra_) * channel_.timing().cycle_ns;
  }

  // The first entry that is ready, of a random ID or, without stalls, of the one that has waited longest.
  template <typename Queue>
  typename std::map<CData, Queue>::iterator choose(std::map<CData, Queue>& queues, std::mt19937& random) {
    auto found = queues.end();
    unsigned candidates = 0;
    const double now = now_ + channel_.timing().cycle_ns / 1000;  // times are rounded
    for (auto each = queues.begin(); each != queues.end(); ++each) {
      if (each->second.front().ready > now) continue;
      ++candidates;
      const bool better =
          found == queues.end() || (stalls_ == Stalls::kNone ? each->second.front().ready < found->second.front().ready
                                                             : random() % candidates == 0);
      if (better) found = each;
    }
    return found;
  }

  void offer_read(std::mt19937& random) {
    const auto chosen = choose(reads_, random);
    if (chosen == reads_.end()) return;
    const Word word = chosen->second.front();
    chosen->second.pop_front();
    std::array<std::uint32_t, 32> data{};
    const std::uint8_t* bytes = buffers_.word(word.address, pins_.bytes);
    if (bytes == nullptr) {
      fail("a read outside the buffers at " + hex(word.address));
    } else {
      std::memcpy(data.data(), bytes, pins_.bytes);
    }
    pins_.rdata.put(data.data());
    *pins_.rid = chosen->first;
    *pins_.rlast = word.last;
    *pins_.rresp = failing(word.address, pins_.bytes) ? kError : 0;
    r_offered_ = true;
    if (chosen->second.empty()) reads_.erase(chosen);
  }

  void offer_answer(std::mt19937& random) {
    const auto chosen = choose(answers_, random);
    if (chosen == answers_.end()) return;
    for (const Store& store : chosen->second.front().stores) {
      if (!buffers_.write(store.address, store.value)) fail("a write outside the buffers at " + hex(store.address));
    }
    *pins_.bid = chosen->first;
    *pins_.bresp = chosen->second.front().error ? kError : 0;
    b_offered_ = true;
    chosen->second.pop_front();
    if (chosen->second.empty()) answers_.erase(chosen);
  }

  bool take_read(std::mt19937& random) {
    Burst burst{};
    if (!take_address("read", pins_.ar, ar_watch_, burst)) return false;
    ++read_bursts_;
    auto& words = reads_[burst.id];
    const double asked = now_ + extra(random);
    for (unsigned i = 0; i < burst.words; ++i) {
      const std::uint64_t address = burst.address + static_cast<std::uint64_t>(i) * pins_.bytes;
      words.push_back({address, channel_.move(asked, address, pins_.bytes, false), i + 1 == burst.words});
    }
    return true;
  }

  bool take_write() {
    Burst burst{};
    if (!take_address("write", pins_.aw, aw_watch_, burst)) return false;
    ++write_bursts_;
    writes_.push_back(burst);
    return true;
  }

  bool take_data(std::mt19937& random) {
    Words payload(pins_.wdata.words() + pins_.wstrb.words() + 1);
    pins_.wdata.get(payload.data());
    pins_.wstrb.get(payload.data() + pins_.wdata.words());
    payload.back() = *pins_.wlast;
    if (!handshake("write data", *pins_.wvalid, *pins_.wready, w_watch_, payload)) return false;
    ++written_words_;
    const Burst& burst = writes_.front();
    const std::uint64_t address = burst.address + taken_words_ * pins_.bytes;
    for (unsigned i = 0; i < pins_.bytes; ++i) {
      const bool strobe = payload[pins_.wdata.words() + i / 32] >> i % 32 & 1;
      if (strobe) taken_.push_back({address + i, static_cast<std::uint8_t>(payload[i / 4] >> 8 * (i % 4))});
    }
    const bool last = ++taken_words_ == burst.words;
    if (last != (payload.back() != 0)) fail("WLAST at the wrong word of the burst at " + hex(burst.address));
    if (!last) return true;
    double ready = now_;
    bool error = false;
    for (unsigned i = 0; i < burst.words; ++i) {
      const std::uint64_t at = burst.address + static_cast<std::uint64_t>(i) * pins_.bytes;
      ready = channel_.move(now_ + extra(random), at, pins_.bytes, true);
      error = error || failing(at, pins_.bytes);
    }
    answers_[burst.id].push_back({ready, error, std::move(taken_)});
    taken_.clear();
    taken_words_ = 0;
    writes_.pop_front();
    return true;
  }

  bool take_address(const std::string& kind, const AxiPins::Address& pins, Watch& watch, Burst& burst) {
    const Words payload = {*pins.id,
                           *pins.len,
                           *pins.size,
                           *pins.burst,
                           static_cast<std::uint32_t>(*pins.addr),
                           static_cast<std::uint32_t>(*pins.addr >> 32)};
    if (!handshake(kind + " address", *pins.valid, *pins.ready, watch, payload)) return false;
    burst = {*pins.id, *pins.addr, *pins.len + 1u};
    const std::string at = " of the " + kind + " at " + hex(burst.address);
    if (*pins.burst != 1) fail("the type" + at + " is not INCR");
    if (1u << *pins.size != pins_.bytes) fail("the size" + at + " is not that of the bus");
    if (burst.address % pins_.bytes != 0) fail("the address" + at + " is not that of a bus word");
    if (burst.address % Buffers::kPage + burst.words * pins_.bytes > Buffers::kPage) {
      fail("the burst" + at + " crosses 4 KB");
    }
    return true;
  }

  bool handshake(const std::string& what, CData valid, CData ready, Watch& watch, const Words& payload) {
    if (watch.waiting && valid == 0) fail("VALID of the " + what + " fell before it was taken");
    if (watch.waiting && valid != 0 && payload != watch.payload) fail("the " + what + " changed before it was taken");
    watch.waiting = valid != 0 && ready == 0;
    if (watch.waiting) watch.payload = payload;
    return valid != 0 && ready != 0;
  }

  static std::string hex(std::uint64_t value) {
    char text[19];
    std::snprintf(text, sizeof text, "0x%llx", static_cast<unsigned long long>(value));
    return text;
  }

  static constexpr CData kError = 2;  // SLVERR
  AxiPins pins_;
  Buffers& buffers_;
  Channel& channel_;
  std::vector<Range> failing_;
  Stalls stalls_ = Stalls::kNone;
  Gate ar_gate_, r_gate_, aw_gate_, w_gate_, b_gate_;
  Watch ar_watch_, aw_watch_, w_watch_;
  unsigned most_extra_ = 0;
  bool address_waits_for_data_ = false;
  std::map<CData, std::deque<Word>> reads_;
  std::map<CData, std::deque<Answer>> answers_;
  std::deque<Burst> writes_;  // whose data is still to come
  std::vector<Store> taken_;
  std::uint64_t taken_words_ = 0;
  bool r_offered_ = false, b_offered_ = false;
  double now_ = 0;
  std::uint64_t read_words_ = 0, written_words_ = 0, read_bursts_ = 0, write_bursts_ = 0;
  std::string problem_;
};

}  // namespace openhls
