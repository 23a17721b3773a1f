// SPDX-License-Identifier: Apache-2.0
// The ends of AXI4-Stream ports: a source of recorded words, and a sink that compares. A word that is offered must stay
// until it is taken, and nothing may be read or written beyond the record.
//
// A cycle: drive() before the model is evaluated with the clock low, sample() after it, then the rising edge.
#pragma once

#include <cstdint>
#include <cstdio>
#include <random>
#include <string>
#include <utility>

#include "ports.hpp"
#include "stalls.hpp"

namespace openhls {

inline std::string hex(const std::uint8_t* bytes, std::size_t count) {
  std::string text = "0x";
  for (std::size_t i = count; i-- > 0;) {
    char digits[3];
    std::snprintf(digits, sizeof digits, "%02x", bytes[i]);
    text += digits;
  }
  return text;
}
inline std::string hex(const Words& words) {
  return hex(reinterpret_cast<const std::uint8_t*>(words.data()), 4 * words.size());
}

// What both ends have: the record, how far it is, and the first problem.
class StreamEnd {
 public:
  explicit StreamEnd(StreamPorts port) : port_(std::move(port)), size_(port_.data.words()) {}

  void restart(std::mt19937& random, Stalls stalls) {
    moved_ = 0;
    offered_ = false;
    gate_.choose(random, stalls);
    problem_.clear();
  }
  void stay_open() { gate_.stay_open(); }
  void record(Words words) { words_ = std::move(words); }
  std::size_t words() const { return size_; }  // 32-bit words of a word of the stream
  const std::string& problem() const { return problem_; }
  std::string state() const {
    return std::string(port_.data.name) + ": " + std::to_string(moved_) + " of " + std::to_string(recorded()) +
           " words";
  }
  // At the end of a job: the model has moved all words.
  std::string end() const { return moved_ == recorded() ? "" : "stream " + state(); }

 protected:
  std::size_t recorded() const { return words_.size() / size_; }
  void fail(const std::string& what) {
    if (problem_.empty()) problem_ = std::string("stream ") + port_.data.name + what;
  }

  StreamPorts port_;
  std::size_t size_;
  Words words_;
  std::size_t moved_ = 0;
  Gate gate_;
  bool offered_ = false;
  std::string problem_;
};

// Offers what the reference has read, then random words; `exact`: no more, for what a task may read has no end.
class StreamSource : public StreamEnd {
 public:
  explicit StreamSource(StreamPorts port, bool exact = false) : StreamEnd(std::move(port)), exact_(exact) {}

  void drive(std::mt19937& random) {
    if (!offered_ && gate_.open(random) && !(exact_ && moved_ == recorded())) {
      Words word(size_);
      for (std::size_t i = 0; i < size_; ++i) {
        const std::size_t at = moved_ * size_ + i;
        word[i] = at < words_.size() ? words_[at] : static_cast<std::uint32_t>(random());
      }
      const int spare = static_cast<int>(32 * size_) - port_.data.width;
      word.back() &= ~0u >> spare;
      port_.data.put(word.data());
      offered_ = true;
    }
    *port_.valid = offered_;
  }

  void hold() { *port_.valid = 0; }

  // True if a word moves.
  bool sample() {
    if (!offered_ || *port_.ready == 0) return false;
    offered_ = false;
    if (++moved_ > recorded()) fail(": a word more than the reference was read");
    return true;
  }
  bool waits() const { return *port_.ready != 0; }

 private:
  bool exact_;
};

// Takes words and compares them with what the reference has written.
class StreamSink : public StreamEnd {
 public:
  using StreamEnd::StreamEnd;

  void drive(std::mt19937& random) { *port_.ready = gate_.open(random); }

  // True if a word moves.
  bool sample() {
    if (*port_.valid == 0) {
      if (offered_) fail(": valid fell before the word was taken");
      return false;
    }
    Words word(size_);
    port_.data.get(word.data());
    if (offered_ && word != waiting_) fail(": the word changed before it was taken");
    offered_ = *port_.ready == 0;
    waiting_ = word;
    if (offered_) return false;
    compare(word);
    return true;
  }

 private:
  void compare(const Words& word) {
    const std::size_t at = moved_ * size_;
    if (at >= words_.size()) {
      fail(": a word more than the reference was written");
    } else {
      const Words expected(words_.begin() + static_cast<std::ptrdiff_t>(at),
                           words_.begin() + static_cast<std::ptrdiff_t>(at + size_));
      if (word != expected) fail(", word " + std::to_string(moved_) + ": " + hex(word) + ", expected " + hex(expected));
    }
    ++moved_;
  }

  Words waiting_;  // the word that was offered and not taken
};

}  // namespace openhls
