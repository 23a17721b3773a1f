// SPDX-License-Identifier: Apache-2.0
// A few threads that run work together. The caller is worker 0.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <thread>
#include <vector>

namespace kvdrive::fast {

class Pool {
 public:
  explicit Pool(unsigned workers);
  ~Pool();
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;

  unsigned workers() const { return static_cast<unsigned>(threads_.size()) + 1; }

  // Announces work: sleeping threads start to poll for it, so that the work does not wait for them.
  void wake();

  // Calls work(0), and work(1) .. work(count - 1) on those workers that wake up before it has ended; returns when all
  // have ended. So work(0) must do what the others leave: where other threads keep the processors busy, a worker may
  // wake up milliseconds later. A worker may be called twice, one call after the other. count <= workers(). `work` must
  // not throw. Calls must not overlap.
  void run(unsigned count, const std::function<void(unsigned)>& work);

 private:
  static constexpr std::uint32_t kOpen = 1U << 31;

  void serve(unsigned worker);
  bool enter();

  std::vector<std::thread> threads_;
  const std::function<void(unsigned)>* work_ = nullptr;  // valid for threads inside
  unsigned count_ = 0;
  std::atomic<bool> ended_{false};
  std::atomic<std::uint32_t> bell_{0};    // counts the calls of run and wake; written last
  std::atomic<std::uint32_t> inside_{0};  // number of threads in a call of run; kOpen is set while others may enter
};

}  // namespace kvdrive::fast
