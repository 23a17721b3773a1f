// SPDX-License-Identifier: Apache-2.0
// hls::task for the reference run with g++: a function that is called again and again, in a thread of its own. One
// thread runs at a time: a task goes on when the words that it waits for are there, and nothing else can.
#pragma once

#include <hls_stream.h>

#include <condition_variable>
#include <mutex>
#include <thread>
#include <utility>

#define hls_thread_local thread_local

namespace openhls {

class Turns {
 public:
  template <typename Body>
  explicit Turns(Body body) {
    Beside::steps().push_back([this] { return step(); });
    std::thread([this, body] {
      take_turn();
      for (;;) body();
    }).detach();
  }

 private:
  bool step() {
    if (!can_go_()) return false;
    std::unique_lock<std::mutex> lock(mutex_);
    Beside::wait() = [this](std::function<bool()> condition) { wait(std::move(condition)); };
    mine_ = true;
    turn_.notify_all();
    turn_.wait(lock, [this] { return !mine_; });
    Beside::wait() = nullptr;
    return true;
  }
  void wait(std::function<bool()> condition) {
    if (condition()) return;
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      can_go_ = std::move(condition);
      mine_ = false;
    }
    turn_.notify_all();
    take_turn();
  }
  void take_turn() {
    std::unique_lock<std::mutex> lock(mutex_);
    turn_.wait(lock, [this] { return mine_; });
  }

  std::mutex mutex_;
  std::condition_variable turn_;
  std::function<bool()> can_go_ = [] { return true; };
  bool mine_ = false;
};

}  // namespace openhls

namespace hls {

class task {
 public:
  task() = default;
  template <typename Function, typename First, typename... Streams>
  explicit task(Function function, First& first, Streams&... streams) {
    (*this)(function, first, streams...);
  }
  template <typename Function, typename... Streams>
  void operator()(Function function, Streams&... streams) {
    new openhls::Turns([=, &streams...] { function(streams...); });  // it outlives all that could delete it
  }
};

}  // namespace hls
