// SPDX-License-Identifier: Apache-2.0
// hls::stream for the reference run with g++: an unbounded queue. The calls of a dataflow region run one after the
// other, so a stage that needs a word of a later stage stops the program with a message. An argument of the top can be
// a source, which makes its words when they are read and keeps them. Non-blocking accesses of the top fail at random,
// as they may in hardware: what a program puts out must not depend on it. Those of a testbench do not, nor those of a
// queue, which one function of the top writes and reads: hardware, too, knows what is in it. Tasks (hls_task.h) go on
// where a stream is read that is empty, and when the top has returned.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <initializer_list>
#include <vector>

namespace openhls {

// Where a stream is declared. A file goes by its last name.
struct Place {
  const char* file;
  int line;
  static Place here(const char* path = __builtin_FILE(), int line = __builtin_LINE()) {
    const char* last = std::strrchr(path, '/');
    return {last == nullptr ? path : last + 1, line};
  }
};

inline std::vector<Place>& queues() {
  static std::vector<Place> all;
  return all;
}
inline bool add_queues(std::initializer_list<Place> places) {
  queues().insert(queues().end(), places.begin(), places.end());
  return true;
}
inline bool is_queue(const Place& place) {
  for (const Place& each : queues()) {
    if (each.line == place.line && std::strcmp(each.file, place.file) == 0) return true;
  }
  return false;
}

// What goes on beside the calls of the top. A step does what can be done now, and says whether that was anything.
class Beside {
 public:
  static std::vector<std::function<bool()>>& steps() {
    static auto* all = new std::vector<std::function<bool()>>;  // tasks outlive the end of the program
    return *all;
  }
  static void settle() {
    for (bool moved = true; moved;) {
      moved = false;
      for (std::size_t i = 0; i < steps().size(); ++i) moved |= steps()[i]();
    }
  }
  // In a task: returns once the condition holds.
  static std::function<void(std::function<bool()>)>& wait() {
    static auto* of_task = new std::function<void(std::function<bool()>)>;
    return *of_task;
  }
};

// Exists while the top runs.
class InTop {
 public:
  InTop() { ++depth(); }
  ~InTop() { --depth(); }
  InTop(const InTop&) = delete;
  InTop& operator=(const InTop&) = delete;
  static int& depth() {
    static int depth = 0;
    return depth;
  }
};

}  // namespace openhls

namespace hls {

template <typename T, int kDepth = 0>
class stream;

template <typename T>
class stream<T, 0> {
 public:
  explicit stream(openhls::Place place = openhls::Place::here()) : place_(place) {}
  explicit stream(const char* name, openhls::Place place = openhls::Place::here()) : name_(name), place_(place) {}
  stream(const stream&) = delete;
  stream& operator=(const stream&) = delete;

  T read() {
    has_word_ = false;
    if (const auto wait = openhls::Beside::wait()) {
      wait([this] { return has_now(); });
    } else if (!source && words_.empty()) {
      openhls::Beside::settle();
    }
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

  // As it was made, but for those who have a reference to it.
  void restart() {
    source = nullptr;
    log.clear();
    words_.clear();
    has_word_ = has_room_ = false;
    random_ = 1;
    polls_ = 0;
  }
  // True if a task may read.
  bool has_now() const { return source ? log.size() < most : !words_.empty(); }

  std::function<T()> source;
  std::size_t most = 0;  // words that tasks get of the source
  std::vector<T> log;    // words of the source that were read
  std::deque<T>& words() { return words_; }

 private:
  bool fails() {
    if (++polls_ > 100000000) {
      std::fprintf(stderr, "reference: stream %s is polled for ever\n", name_);
      std::exit(3);
    }
    if (openhls::InTop::depth() == 0 || openhls::is_queue(place_)) return false;
    random_ = random_ * 1664525 + 1013904223;
    return random_ >> 30 == 0;
  }

  bool has_word_ = false, has_room_ = false;
  std::uint32_t random_ = 1, polls_ = 0;
  const char* name_ = "without a name";
  openhls::Place place_;
  std::deque<T> words_;
};

template <typename T, int kDepth>
class stream : public stream<T, 0> {
 public:
  explicit stream(openhls::Place place = openhls::Place::here()) : stream<T, 0>(place) {}
  explicit stream(const char* name, openhls::Place place = openhls::Place::here()) : stream<T, 0>(name, place) {}
};

}  // namespace hls
