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

  // Calls work(0) .. work(count - 1), each on its own worker, and returns when all have ended. count <= workers().
  // `work` must not throw. Calls must not overlap.
  void run(unsigned count, const std::function<void(unsigned)>& work);

 private:
  void serve(unsigned worker);

  std::vector<std::thread> threads_;
  const std::function<void(unsigned)>* work_ = nullptr;  // null: stop
  unsigned count_ = 0;
  std::atomic<std::uint32_t> round_{0};    // counts the calls of run
  std::atomic<std::uint32_t> bell_{0};     // counts the calls of run and wake; written last
  std::atomic<std::uint32_t> running_{0};  // threads that have not finished the round
};

}  // namespace kvdrive::fast
