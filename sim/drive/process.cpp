// SPDX-License-Identifier: Apache-2.0
#include "process.hpp"

#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <mutex>
#include <random>
#include <set>

namespace kvdrive {
namespace {

using Mark = std::atomic<std::uint64_t>;

// A page that the kernel clears in the child of every fork, also of one that no handler sees.
Mark& marked_page() {
  static Mark* const page = [] {
    const auto bytes = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
    void* const memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED || ::madvise(memory, bytes, MADV_WIPEONFORK) != 0) {
      throw std::runtime_error("the kernel cannot tell a process from its forks: Linux 4.14 or later is needed");
    }
    return new (memory) Mark(0);
  }();
  return *page;
}

std::uint64_t draw() {
  std::random_device device;
  std::uint64_t drawn = 0;
  while (drawn == 0) drawn = std::uint64_t{device()} << 32 | device();
  return drawn;
}

struct Descriptors {
  std::mutex mutex;
  std::set<int> open;
};

// Never destroyed, because forks may come at any time.
Descriptors& descriptors() {
  static Descriptors* const all = [] {
    auto* const made = new Descriptors;
    ::pthread_atfork([] { descriptors().mutex.lock(); }, [] { descriptors().mutex.unlock(); },
                     [] {
                       for (const int fd : descriptors().open) ::close(fd);
                       descriptors().open.clear();
                       descriptors().mutex.unlock();
                     });
    return made;
  }();
  return *all;
}

}  // namespace

std::uint64_t process_mark() {
  Mark& mark = marked_page();
  std::uint64_t found = mark.load(std::memory_order_relaxed);
  if (found != 0) return found;
  const std::uint64_t drawn = draw();
  return mark.compare_exchange_strong(found, drawn) ? drawn : found;  // another thread may have drawn one
}

void close_in_children(int fd) {
  Descriptors& all = descriptors();
  const std::scoped_lock lock(all.mutex);
  all.open.insert(fd);
}

void forget_in_children(int fd) {
  Descriptors& all = descriptors();
  const std::scoped_lock lock(all.mutex);
  all.open.erase(fd);
}

}  // namespace kvdrive
