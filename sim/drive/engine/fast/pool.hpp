// SPDX-License-Identifier: Apache-2.0
// A few threads that run work together. The caller is worker 0. The others are the pool's own threads, or those of a
// team that the caller lends.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <thread>
#include <vector>

#include "engine/team.hpp"

namespace kvdrive::fast {

// Workers that take part in the calls of `run` of one thread, between the begin of their `serve` and `end`.
class Crew {
 public:
  // Announces work: sleeping workers start to poll for it, so that the work does not wait for them.
  void wake();
  // See Pool::run.
  void run(unsigned count, const std::function<void(unsigned)>& work);
  void serve(unsigned worker);
  void end();

 private:
  static constexpr std::uint32_t kOpen = 1U << 31;

  bool enter();

  const std::function<void(unsigned)>* work_ = nullptr;  // valid for threads inside
  unsigned count_ = 0;
  std::atomic<bool> ended_{false};
  std::atomic<std::uint32_t> bell_{0};    // counts the calls of run, wake and end; written last
  std::atomic<std::uint32_t> inside_{0};  // number of threads in a call of run; kOpen is set while others may enter
};

class Pool {
 public:
  explicit Pool(unsigned workers);
  ~Pool();
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;

  unsigned workers() const { return static_cast<unsigned>(threads_.size()) + 1; }

  // Calls job(), in which `run` is called soon. Meanwhile the calling thread's team works, if it lends one of this
  // size; otherwise the pool's own threads do, which start to poll for work now.
  void with_workers(const std::function<void()>& job);

  // Calls work(0), and work(1) .. work(count - 1) on those workers that wake up before it has ended; returns when all
  // have ended. So work(0) must do what the others leave: where other threads keep the processors busy, a worker may
  // wake up milliseconds later. A worker may be called twice, one call after the other. count <= workers(). `work` must
  // not throw. Calls must not overlap.
  void run(unsigned count, const std::function<void(unsigned)>& work) { crew_->run(count, work); }

 private:
  void lead(Team& team, const std::function<void()>& job);

  Crew own_;
  Crew* crew_ = &own_;  // whose turn it is
  std::vector<std::thread> threads_;
};

}  // namespace kvdrive::fast
