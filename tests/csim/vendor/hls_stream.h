// SPDX-License-Identifier: Apache-2.0
// Stands in for the vendor's header: a stream is an unbounded queue, and stages run one after the other.
#pragma once

#include <deque>
#include <stdexcept>
#include <string>

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

  bool empty() const { return words_.empty(); }
  void write(const T& word) { words_.push_back(word); }
  T read() {
    if (words_.empty()) throw std::runtime_error("read from the empty vendor stream " + name_);
    T word = words_.front();
    words_.pop_front();
    return word;
  }

 private:
  std::string name_ = "unnamed";
  std::deque<T> words_;
};

template <typename T, int kDepth>
class stream : public stream<T, 0> {
 public:
  using stream<T, 0>::stream;
};

}  // namespace hls
