// SPDX-License-Identifier: Apache-2.0
#include "storage/transfer_threads.hpp"

#include <system_error>
#include <utility>

namespace kvdrive {

TransferThreads::Batch& TransferThreads::Batch::operator=(Batch&& other) noexcept {
  finish();
  state_ = std::move(other.state_);
  return *this;
}

void TransferThreads::Batch::wait() {
  if (!state_) return;
  const auto state = std::exchange(state_, nullptr);
  state->threads.wait(*state);
  if (state->error) std::rethrow_exception(state->error);
}

bool TransferThreads::Batch::done() const {
  if (!state_) return true;
  const std::lock_guard lock(state_->threads.mutex_);
  return state_->left == 0;
}

void TransferThreads::Batch::finish() noexcept {
  if (state_) state_->threads.wait(*state_);
  state_.reset();
}

TransferThreads::~TransferThreads() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  work_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

TransferThreads::Batch TransferThreads::start(std::vector<Task> tasks) {
  Batch batch(*this);
  const std::lock_guard lock(mutex_);
  try {
    while (threads_.size() < count_) threads_.emplace_back([this] { serve(); });
  } catch (const std::system_error&) {  // NOLINT(bugprone-empty-catch): `wait` then does the work
  }
  for (Task& task : tasks) {
    entries_.push_back({std::move(task), batch.state_});
    ++batch.state_->left;
  }
  work_.notify_all();
  return batch;
}

void TransferThreads::serve() {
  std::unique_lock lock(mutex_);
  while (true) {
    work_.wait(lock, [this] { return stop_ || !entries_.empty(); });
    if (entries_.empty()) return;
    run_one(lock);
  }
}

void TransferThreads::run_one(std::unique_lock<std::mutex>& lock) {
  const Entry entry = std::move(entries_.front());
  entries_.pop_front();
  lock.unlock();
  std::exception_ptr error;
  try {
    entry.task();
  } catch (...) {
    error = std::current_exception();
  }
  lock.lock();
  if (error && !entry.batch->error) entry.batch->error = error;
  if (--entry.batch->left == 0) ended_.notify_all();
}

void TransferThreads::wait(Batch::State& state) {
  std::unique_lock lock(mutex_);
  while (state.left > 0) {
    if (entries_.empty()) {
      ended_.wait(lock, [&state] { return state.left == 0; });
    } else {
      run_one(lock);
    }
  }
}

}  // namespace kvdrive
