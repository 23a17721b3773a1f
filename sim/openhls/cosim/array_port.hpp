// SPDX-License-Identifier: Apache-2.0
// What is behind the pins of an array argument of the top: a bank of memory, which gives a word in the cycle after `ce`
// and keeps it until the next, or one register.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "memory_model.hpp"
#include "ports.hpp"

namespace openhls {

// Where element i of the array lies in the buffer of the argument: each digit of i times its stride.
struct Layout {
  std::size_t offset;
  std::vector<std::pair<std::size_t, std::size_t>> levels;  // length, stride in bytes
  std::size_t size;                                         // bytes of an element
  std::size_t place(std::size_t index) const {
    std::size_t at = offset;
    for (auto level = levels.rbegin(); level != levels.rend(); ++level) {
      at += index % level->first * level->second;
      index /= level->first;
    }
    return at;
  }
};

// Word a of the bank is element first + a * step of `length`. Without `ce` it is a register, always to be seen at `q`.
struct ArrayPins {
  Layout layout;
  std::size_t length, first, step;
  CData* ce;
  Port address, q;
  CData* we;
  Port write_address, d;
};

class ArrayPort {
 public:
  ArrayPort(ArrayPins pins, Buffers& buffers, std::size_t buffer)
      : pins_(std::move(pins)), buffers_(buffers), buffer_(buffer) {}

  // Before the model is evaluated with the clock low.
  void drive() {
    if (pins_.ce == nullptr && pins_.q.put) give(0);
  }
  // After it: what the model asks for. Returns what is wrong, or "".
  std::string sample() {
    reads_ = pins_.ce != nullptr && *pins_.ce != 0;
    writes_ = pins_.we != nullptr && *pins_.we != 0;
    if (reads_) read_at_ = number(pins_.address);
    if (writes_) {
      write_at_ = pins_.write_address.get ? number(pins_.write_address) : 0;
      word_.resize(pins_.d.words());
      pins_.d.get(word_.data());
    }
    // What is read and not used may lie anywhere.
    return writes_ && element(write_at_) >= pins_.length ? "a write beyond the array" : "";
  }
  // After the rising edge.
  void finish() {
    if (reads_) give(read_at_);
    if (writes_) {
      std::memcpy(buffers_.data(buffer_) + pins_.layout.place(element(write_at_)), word_.data(), pins_.layout.size);
    }
    reads_ = writes_ = false;
  }

 private:
  std::size_t element(std::size_t word) const { return pins_.first + word * pins_.step; }
  static std::size_t number(const Port& port) {
    Words words(port.words() + 1);
    port.get(words.data());
    return words[0];
  }
  void give(std::size_t word) {
    Words data(pins_.q.words() + 1, 0x5a5a5a5a);
    if (element(word) < pins_.length) {
      std::memcpy(data.data(), buffers_.data(buffer_) + pins_.layout.place(element(word)), pins_.layout.size);
    } else if (pins_.q.width % 32 != 0) {
      data[pins_.q.words() - 1] &= ~(~0u << pins_.q.width % 32);
    }
    pins_.q.put(data.data());
  }

  ArrayPins pins_;
  Buffers& buffers_;
  std::size_t buffer_;
  bool reads_ = false, writes_ = false;
  std::size_t read_at_ = 0, write_at_ = 0;
  Words word_;
};

}  // namespace openhls
