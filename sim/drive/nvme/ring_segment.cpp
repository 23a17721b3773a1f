// SPDX-License-Identifier: Apache-2.0
#include "nvme/ring_segment.hpp"

#include <fcntl.h>
#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <cstring>
#include <ctime>
#include <stdexcept>
#include <system_error>
#include <utility>

#include "common/abi.hpp"

namespace kvdrive::nvme {
namespace {

constexpr std::uint64_t kSmallest = std::uint64_t{1} << 16, kLargest = std::uint64_t{1} << 40;

std::span<std::byte> map(int fd, std::uint64_t bytes) {
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, 0);
  if (memory == MAP_FAILED) throw std::system_error(errno, std::generic_category(), "cannot map a ring segment");
  return {static_cast<std::byte*>(memory), bytes};
}

std::uint32_t* futex_of(std::atomic_ref<std::uint32_t> word) {
  static_assert(std::atomic_ref<std::uint32_t>::is_always_lock_free);
  std::uint32_t* address;
  static_assert(sizeof word == sizeof address);
  std::memcpy(static_cast<void*>(&address), &word, sizeof address);
  return address;
}

void wake_all(std::atomic_ref<std::uint32_t> word) {
  word.fetch_add(1, std::memory_order_seq_cst);
  syscall(SYS_futex, futex_of(word), FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

}  // namespace

RingMemory RingMemory::create(std::uint64_t bytes) {
  if (bytes < kSmallest || bytes > kLargest || bytes % abi::kPageBytes != 0) {
    throw std::runtime_error("a ring segment is a multiple of 4096 bytes, at least 64 KiB");
  }
  const int fd = memfd_create("kvdrive-rings", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (fd < 0) throw std::system_error(errno, std::generic_category(), "cannot create a ring segment");
  try {
    // The size is sealed: if a peer could shorten the file, any access to the lost part would kill this process.
    if (ftruncate(fd, static_cast<off_t>(bytes)) != 0 ||
        fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
      throw std::system_error(errno, std::generic_category(), "cannot create a ring segment");
    }
    RingMemory memory(fd, map(fd, bytes));
    const RingSegment head{.magic = kRingMagic,
                           .version = kRingVersion,
                           .bytes = bytes,
                           .device_event = 0,
                           .device_sleeps = 0,
                           .host_event = 0,
                           .host_waiters = 0,
                           .reserved = {}};
    std::memcpy(memory.bytes().data(), &head, sizeof head);
    return memory;
  } catch (...) {
    close(fd);
    throw;
  }
}

RingMemory RingMemory::attach(int fd) {
  try {
    struct stat status{};
    if (fstat(fd, &status) != 0) throw std::system_error(errno, std::generic_category(), "cannot use a ring segment");
    const auto bytes = static_cast<std::uint64_t>(status.st_size);
    const int seals = fcntl(fd, F_GET_SEALS);
    if (bytes < kSmallest || bytes > kLargest || seals < 0 || !(seals & F_SEAL_SHRINK)) {
      throw std::runtime_error("this is no ring segment of a drive");
    }
    RingMemory memory(fd, map(fd, bytes));
    RingSegment head;
    std::memcpy(&head, memory.bytes().data(), sizeof head);
    if (head.magic != kRingMagic || head.version != kRingVersion || head.bytes != bytes) {
      memory.fd_ = -1;  // the caller's descriptor is closed below
      throw std::runtime_error("the drive's rings have another version: use the same kvdrive on both sides");
    }
    return memory;
  } catch (...) {
    close(fd);
    throw;
  }
}

RingMemory::RingMemory(RingMemory&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)), bytes_(std::exchange(other.bytes_, {})) {}

RingMemory::~RingMemory() {
  if (!bytes_.empty()) munmap(bytes_.data(), bytes_.size());
  if (fd_ >= 0) close(fd_);
}

void RingView::wake_device() const {
  std::atomic_thread_fence(std::memory_order_seq_cst);
  if (device_sleeps().load(std::memory_order_relaxed) != 0) wake_all(device_event());
}

void RingView::wake_host() const {
  std::atomic_thread_fence(std::memory_order_seq_cst);
  if (host_waiters().load(std::memory_order_relaxed) != 0) wake_all(host_event());
}

void sleep_on(std::atomic_ref<std::uint32_t> word, std::uint32_t seen, std::chrono::milliseconds longest) {
  const timespec limit{.tv_sec = longest.count() / 1000, .tv_nsec = longest.count() % 1000 * 1'000'000};
  syscall(SYS_futex, futex_of(word), FUTEX_WAIT, seen, &limit, nullptr, 0);
}

}  // namespace kvdrive::nvme
