// SPDX-License-Identifier: Apache-2.0
#include "engine/fast/pool.hpp"

#include <chrono>

#include "engine/fast/default_float.hpp"

namespace kvdrive::fast {
namespace {

void pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// Waits until `value` differs from `old`. Phases of a job follow one another within microseconds, but waking a thread
// takes tens of them. So the thread polls for a while before it sleeps.
void wait_for_change(const std::atomic<std::uint32_t>& value, std::uint32_t old) {
  constexpr std::chrono::microseconds kPatience{100};
  constexpr int kPauses = 8;  // pauses between polls, because another thread may share the core
  const auto start = std::chrono::steady_clock::now();
  while (value.load(std::memory_order_acquire) == old) {
    if (std::chrono::steady_clock::now() - start > kPatience) return value.wait(old, std::memory_order_acquire);
    for (int i = 0; i < kPauses; ++i) pause();
  }
}

}  // namespace

Pool::Pool(unsigned workers) {
  for (unsigned worker = 1; worker < workers; ++worker) threads_.emplace_back([this, worker] { serve(worker); });
}

Pool::~Pool() {
  work_ = nullptr;
  round_.fetch_add(1, std::memory_order_release);
  wake();
  for (std::thread& thread : threads_) thread.join();
}

void Pool::wake() {
  bell_.fetch_add(1, std::memory_order_release);
  bell_.notify_all();
}

void Pool::run(unsigned count, const std::function<void(unsigned)>& work) {
  if (count > 1) {
    work_ = &work;
    count_ = count;
    running_.store(static_cast<std::uint32_t>(threads_.size()), std::memory_order_relaxed);
    round_.fetch_add(1, std::memory_order_release);
    wake();
  }
  work(0);
  if (count > 1) {
    for (std::uint32_t left = running_.load(std::memory_order_acquire); left != 0;
         left = running_.load(std::memory_order_acquire)) {
      wait_for_change(running_, left);
    }
  }
}

void Pool::serve(unsigned worker) {
  const DefaultFloat environment;
  for (std::uint32_t heard = 0, seen = 0;;) {
    wait_for_change(bell_, heard);
    heard = bell_.load(std::memory_order_acquire);
    if (round_.load(std::memory_order_acquire) == seen) continue;
    ++seen;
    if (work_ == nullptr) return;
    if (worker < count_) (*work_)(worker);
    if (running_.fetch_sub(1, std::memory_order_release) == 1) running_.notify_one();
  }
}

}  // namespace kvdrive::fast
