// SPDX-License-Identifier: Apache-2.0
// Streams between stages. Stages take `Stream<T>&`; the top declares `Fifo<T, depth> name("name");` and repeats the
// depth in a STREAM pragma. Synthesis sees hls::stream. Software sees a bounded queue that stops its stage when it is
// empty or full, checks that one stage writes and one reads, and keeps its high-water mark.
#pragma once

#include "common/types.hpp"

#ifdef KVDRIVE_SYNTHESIS

#include <hls_stream.h>

namespace kvdrive {

template <typename T>
using Stream = hls::stream<T>;

template <typename T, int kDepth = 2>
using Fifo = hls::stream<T, kDepth>;

}  // namespace kvdrive

#else

#include <algorithm>

#include "common/simulation.hpp"

namespace kvdrive {

template <typename T>
class Stream {
 public:
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  T read() {
    claim(reader_, "readers");
    if (state_.held == 0) scheduler_.wait(simulation::Wait::kNotEmpty, state_);
    return take();
  }

  void read(T& value) { value = read(); }

  void write(const T& value) {
    claim(writer_, "writers");
    if (state_.held == state_.depth) scheduler_.wait(simulation::Wait::kNotFull, state_);
    put(value);
  }

  bool read_nb(T& value) {
    claim(reader_, "readers");
    if (empty()) return false;
    value = take();
    return true;
  }

  bool write_nb(const T& value) {
    claim(writer_, "writers");
    if (full()) return false;
    put(value);
    return true;
  }

  bool empty() {
    if (state_.held == 0) scheduler_.polled();
    return state_.held == 0;
  }

  bool full() {
    if (state_.held == state_.depth) scheduler_.polled();
    return state_.held == state_.depth;
  }

  std::size_t size() const { return state_.held; }

 protected:
  Stream(const char* name, std::size_t depth) {
    state_.name = name;
    state_.depth = depth;
    ring_.resize(std::min<std::size_t>(depth, kFirstWords));
    scheduler_.add(state_);
  }

  ~Stream() {
    scheduler_.remove(state_);
    simulation::StreamMarks::global().add(state_, std::uncaught_exceptions() > 0);
  }

 private:
  static constexpr std::size_t kFirstWords = 64;

  // One end of the stream: the stage that uses it, and its region.
  struct End {
    std::uint64_t stage = 0;
    std::uint64_t region = 0;
    std::string name;
  };

  void claim(End& end, const char* role) {
    const simulation::Stage& stage = *scheduler_.current();
    if (stage.serial != end.stage) claim_anew(end, stage, role);
  }

  void claim_anew(End& end, const simulation::Stage& stage, const char* role) {
    const std::uint64_t region = stage.region == nullptr ? 0 : stage.region->serial();
    if (region != 0 && region == end.region) {
      throw StreamError("stream \"" + state_.name + "\" has two " + role + ": " + end.name + " and " + stage.name);
    }
    end = {stage.serial, region, stage.name};
  }

  T take() {
    T value = ring_[head_];
    head_ = head_ + 1 == ring_.size() ? 0 : head_ + 1;
    --state_.held;
    scheduler_.transferred(false);
    return value;
  }

  void put(const T& value) {
    if (state_.held == ring_.size()) grow();
    const std::size_t tail = head_ + state_.held;
    ring_[tail < ring_.size() ? tail : tail - ring_.size()] = value;
    state_.high_water = std::max(state_.high_water, ++state_.held);
    ++state_.words;
    scheduler_.transferred(true);
  }

  // Deep streams take their memory as they fill.
  void grow() {
    std::rotate(ring_.begin(), ring_.begin() + static_cast<std::ptrdiff_t>(head_), ring_.end());
    head_ = 0;
    ring_.resize(std::min(2 * ring_.size(), state_.depth));
  }

  simulation::Scheduler& scheduler_ = simulation::Scheduler::local();
  simulation::StreamState state_;
  std::vector<T> ring_;
  std::size_t head_ = 0;
  End reader_;
  End writer_;
};

template <typename T, int kDepth = 2>
class Fifo : public Stream<T> {
  static_assert(kDepth > 0, "a stream holds at least one word");

 public:
  explicit Fifo(const char* name = "unnamed") : Stream<T>(name, kDepth) {}
};

}  // namespace kvdrive

#endif
