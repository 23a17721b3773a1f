// SPDX-License-Identifier: Apache-2.0
// A few threads for transfers: they wait for the disk, copy out of the page cache and check what arrived, while the
// caller computes.
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

  // Tasks that were started together. What they use must live until `wait` has returned.
  class Batch {
   public:
    Batch() = default;
    explicit Batch(TransferThreads& threads) : state_(std::make_shared<State>(threads)) {}
    Batch(Batch&&) = default;
    Batch& operator=(Batch&& other) noexcept;
    ~Batch() { finish(); }

    // Works along until all tasks have ended; throws the first exception of one, once.
    void wait();
    bool done() const;

   private:
    friend class TransferThreads;
    struct State {
      explicit State(TransferThreads& pool) : threads(pool) {}
      TransferThreads& threads;
      std::size_t left = 0;  // guarded by the threads' mutex, as is `error`
      std::exception_ptr error;
    };

    void finish() noexcept;

    std::shared_ptr<State> state_;
  };

  explicit TransferThreads(unsigned threads) : count_(threads) {}
  ~TransferThreads();
  TransferThreads(const TransferThreads&) = delete;
  TransferThreads& operator=(const TransferThreads&) = delete;

  // The threads begin with the first call.
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
  std::condition_variable work_;   // an entry has come, or the end
  std::condition_variable ended_;  // a task has ended
  std::deque<Entry> entries_;
  std::vector<std::thread> threads_;
  bool stop_ = false;
};

}  // namespace kvdrive
