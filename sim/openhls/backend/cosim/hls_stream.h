// SPDX-License-Identifier: Apache-2.0
// hls::stream for the reference run with g++: an unbounded queue. The calls of a dataflow region run one after the
// other, so a stage that needs a word of a later stage stops the program with a message. An argument of the top can be
// a source, which makes its words when they are read and keeps them.
#pragma once

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
  void write(const T& word) { words_.push_back(word); }
  void operator<<(const T& word) { write(word); }

  std::function<T()> source;
  std::vector<T> log;  // words of the source that were read
  std::deque<T>& words() { return words_; }

 private:
  const char* name_ = "without a name";
  std::deque<T> words_;
};

template <typename T, int kDepth>
class stream : public stream<T, 0> {
 public:
  using stream<T, 0>::stream;
};

}  // namespace hls
