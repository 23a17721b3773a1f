// SPDX-License-Identifier: Apache-2.0
// A few threads for transfers. While the caller computes, they wait for the disk, copy from the page cache, and verify
// checksums.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

namespace kvdrive {

class TransferThreads {
 public:
  using Task = std::function<void()>;

  // Tasks that were started together. All objects that they use must live until `wait` has returned.
  class Batch {
   public:
    Batch() = default;
    explicit Batch(TransferThreads& threads) : state_(std::make_shared<State>(threads)) {}
    Batch(Batch&&) = default;
    Batch& operator=(Batch&& other) noexcept;
    ~Batch() { finish(); }

    // Runs tasks in the caller too, until all have ended. Throws the first exception of a task, once.
    void wait();
    bool done() const;

   private:
    friend class TransferThreads;
    struct State {
      explicit State(TransferThreads& pool) : threads(pool) {}
      TransferThreads& threads;
      std::size_t left = 0;  // guarded by the mutex of `threads`, as is `error`
      std::exception_ptr error;
    };

    void finish() noexcept;

    std::shared_ptr<State> state_;
  };

  explicit TransferThreads(unsigned threads) : count_(threads) {}
  ~TransferThreads();
  TransferThreads(const TransferThreads&) = delete;
  TransferThreads& operator=(const TransferThreads&) = delete;

  // The first call starts the threads.
  Batch start(std::vector<Task> tasks);

 private:
  struct Entry {
    Task task;
    std::shared_ptr<Batch::State> batch;
  };

  void serve();
  void run_one(std::unique_lock<std::mutex>& lock);
  void wait(Batch::State& state);

  const unsigned count_;
  std::mutex mutex_;
  std::condition_variable work_;   // signalled when there is an entry, or when the threads are to stop
  std::condition_variable ended_;  // signalled when all tasks of a batch have ended
  std::deque<Entry> entries_;
  std::vector<std::thread> threads_;
  bool stop_ = false;
};

}  // namespace kvdrive
