// SPDX-License-Identifier: Apache-2.0
#include "engine/fast/pool.hpp"

#include <chrono>
#include <exception>

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

void Crew::wake() {
  bell_.fetch_add(1, std::memory_order_release);
  bell_.notify_all();
}

void Crew::end() {
  ended_.store(true, std::memory_order_relaxed);
  wake();
}

void Crew::run(unsigned count, const std::function<void(unsigned)>& work) {
  if (count < 2) return work(0);
  work_ = &work;
  count_ = count;
  inside_.store(kOpen, std::memory_order_release);
  wake();
  work(0);
  std::uint32_t left = inside_.fetch_and(~kOpen, std::memory_order_acquire) & ~kOpen;
  for (; left != 0; left = inside_.load(std::memory_order_acquire)) wait_for_change(inside_, left);
}

// Returns false if there is no work.
bool Crew::enter() {
  std::uint32_t inside = inside_.load(std::memory_order_relaxed);
  do {
    if ((inside & kOpen) == 0) return false;
  } while (!inside_.compare_exchange_weak(inside, inside + 1, std::memory_order_acquire));
  return true;
}

void Crew::serve(unsigned worker) {
  const DefaultFloat environment;
  for (std::uint32_t heard = 0;;) {
    wait_for_change(bell_, heard);
    heard = bell_.load(std::memory_order_acquire);
    if (ended_.load(std::memory_order_relaxed)) return;
    if (!enter()) continue;
    if (worker < count_) (*work_)(worker);
    if (inside_.fetch_sub(1, std::memory_order_release) == 1) inside_.notify_one();
  }
}

Pool::Pool(unsigned workers) {
  for (unsigned worker = 1; worker < workers; ++worker) threads_.emplace_back([this, worker] { own_.serve(worker); });
}

Pool::~Pool() {
  own_.end();
  for (std::thread& thread : threads_) thread.join();
}

void Pool::with_workers(const std::function<void()>& job) {
  Team* const team = lent_team();
  if (team != nullptr && team->threads() == workers()) return lead(*team, job);
  own_.wake();
  job();
}

void Pool::lead(Team& team, const std::function<void()>& job) {
  Crew crew;
  std::exception_ptr error;
  crew_ = &crew;
  team.run([&](unsigned worker) {
    if (worker != 0) return crew.serve(worker);
    try {
      job();
    } catch (...) {
      error = std::current_exception();
    }
    crew.end();
  });
  crew_ = &own_;
  if (error) std::rethrow_exception(error);
}

}  // namespace kvdrive::fast
