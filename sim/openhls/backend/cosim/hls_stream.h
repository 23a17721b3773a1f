// SPDX-License-Identifier: Apache-2.0
// hls::stream for the reference run with g++: an unbounded queue. The calls of a dataflow region run one after the
// other, so a stage that needs a word of a later stage stops the program with a message. An argument of the top can be
// a source, which makes its words when they are read and keeps them. Non-blocking accesses fail at random, as they may in
// hardware: what a program puts out must not depend on it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <functional>
#include <vector>

namespace hls {

template <typename T, int kDepth = 0>
class stream;

template <typename T>
class stream<T, 0> {
 public:
  stream() = default;
  explicit stream(const char* name) : name_(name) {}
  stream(const stream&) = delete;
  stream& operator=(const stream&) = delete;

  T read() {
    has_word_ = false;
    if (source) {
      log.push_back(source());
      return log.back();
    }
    if (words_.empty()) {
      std::fprintf(stderr, "reference: stream %s is read while it is empty\n", name_);
      std::exit(3);
    }
    T word = words_.front();
    words_.pop_front();
    return word;
  }
  void read(T& word) { word = read(); }
  void operator>>(T& word) { word = read(); }
  bool read_nb(T& word) {
    if (empty()) return false;
    word = read();
    return true;
  }
  bool write_nb(const T& word) {
    if (full()) return false;
    write(word);
    return true;
  }
  // Once they say that an access will not wait, they say so until it is made.
  bool empty() {
    has_word_ |= (source || !words_.empty()) && !fails();
    return !has_word_;
  }
  bool full() {
    has_room_ |= !fails();
    return !has_room_;
  }
  void write(const T& word) {
    words_.push_back(word);
    has_room_ = false;
  }
  void operator<<(const T& word) { write(word); }
  std::size_t size() const { return words_.size(); }

  std::function<T()> source;
  std::vector<T> log;  // words of the source that were read
  std::deque<T>& words() { return words_; }

 private:
  bool fails() {
    if (++polls_ > 100000000) {
      std::fprintf(stderr, "reference: stream %s is polled for ever\n", name_);
      std::exit(3);
    }
    random_ = random_ * 1664525 + 1013904223;
    return random_ >> 30 == 0;
  }

  bool has_word_ = false, has_room_ = false;
  std::uint32_t random_ = 1, polls_ = 0;
  const char* name_ = "without a name";
  std::deque<T> words_;
};

template <typename T, int kDepth>
class stream : public stream<T, 0> {
 public:
  using stream<T, 0>::stream;
};

}  // namespace hls
