// SPDX-License-Identifier: Apache-2.0
#include "nvme/ring_host.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <utility>

namespace kvdrive::nvme {
namespace {

constexpr std::uint32_t kEnabled = 0x00460061;  // CC: entries of 64 and 16 bytes, all command sets, enabled
constexpr std::uint32_t kShutdown = 0x4000;
// CSTS.
constexpr std::uint32_t kStatusReady = 0x1, kStatusFatal = 0x2, kStatusShutdown = 0xc, kShutdownDone = 0x8;
constexpr std::uint8_t kSglPointer = 0x40;
constexpr std::uint32_t kAdminEntries = 64;
constexpr std::uint64_t kLargeBuffer = 1 << 26;  // larger buffers are returned to the operating system
constexpr std::chrono::milliseconds kLongestWait{50};
constexpr int kSpins = 200;  // polls of the ring before the host sleeps

}  // namespace

RingHost::RingHost(std::span<std::byte> segment, HostOptions options, PollDevice poll_device, bool threaded)
    : view_(segment),
      options_(options),
      poll_device_(std::move(poll_device)),
      threaded_(threaded),
      heap_(kRingHeap, segment.size()) {
  const std::uint64_t cap = capabilities();
  if (options_.entries < 2 || options_.entries > (cap & 0xffff) + 1) {
    throw RingError("the drive's queues have 2 to " + std::to_string((cap & 0xffff) + 1) + " entries");
  }
  write_cc(0, kStatusReady | kStatusFatal, 0);
  add_queue(0, kAdminEntries);
  view_.property(kAqa).store((kAdminEntries - 1) << 16 | (kAdminEntries - 1));
  view_.wide_property(kAsq).store(queues_[0].sq);
  view_.wide_property(kAcq).store(queues_[0].cq);
  write_cc(kEnabled, kStatusReady | kStatusFatal, kStatusReady);
  for (std::uint16_t id = 1; id <= options_.io_queues; ++id) create_io_queue(id);
}

RingHost::~RingHost() {
  try {
    write_cc(kEnabled | kShutdown, kStatusShutdown, kShutdownDone);
    write_cc(0, kStatusReady, 0);
  } catch (const RingError&) {  // NOLINT(bugprone-empty-catch): the drive is gone
  }
}

void RingHost::write_cc(std::uint32_t value, std::uint32_t mask, std::uint32_t expected) {
  std::unique_lock lock(mutex_);
  view_.property(kCc).store(value, std::memory_order_release);
  view_.wake_device();
  const auto answered = [&] { return (view_.property(kCsts).load(std::memory_order_acquire) & mask) == expected; };
  if (!wait_until(lock, std::chrono::steady_clock::now() + options_.timeout, answered)) {
    throw RingError("the drive's controller does not change its state: is the drive still running?");
  }
}

void RingHost::add_queue(std::uint16_t id, std::uint32_t entries) {
  const auto sq = heap_.take(std::uint64_t{entries} * abi::kSqeBytes);
  const auto cq = heap_.take(std::uint64_t{entries} * abi::kCqeBytes);
  if (!sq || !cq) throw RingError("the ring segment is too small for its queues");
  std::memset(view_.bytes().data() + cq->address, 0, cq->bytes);
  Queue queue{.sq = sq->address, .cq = cq->address, .entries = entries};
  queue.commands.resize(entries);
  for (std::uint32_t i = entries; i-- > 0;) queue.free.push_back(static_cast<std::uint16_t>(i));
  if (queues_.size() <= id) queues_.resize(id + 1u);
  queues_[id] = std::move(queue);
}

void RingHost::create_io_queue(std::uint16_t id) {
  add_queue(id, options_.entries);
  constexpr std::uint32_t kContiguous = 1;
  abi::Sqe command{};
  command.opcode = kCreateCq;
  command.cdw10 = (options_.entries - 1) << 16 | id;
  command.cdw11 = kContiguous;
  command.prp1 = queues_[id].cq;
  const auto created = [&] { return (execute(0, command, {}, 0).cqe.status & 0xfffe) == 0; };
  bool fine = created();
  command.opcode = kCreateSq;
  command.cdw11 = std::uint32_t{id} << 16 | kContiguous;
  command.prp1 = queues_[id].sq;
  fine = fine && created();
  if (!fine) throw RingError("the drive refuses I/O queue " + std::to_string(id));
}

template <typename Ready>
bool RingHost::wait_until(std::unique_lock<std::mutex>& lock, Deadline deadline, Ready ready, bool helps) {
  for (int spins = 0; !ready(); ++spins) {
    if (helps) {
      helps = poll_device(lock);
      if (!helps) view_.wake_device();  // its own thread does the rest
    } else if (!threaded_) {
      poll_device(lock);
    } else if (spins >= kSpins) {
      const std::uint32_t seen = view_.host_event().load();
      view_.host_waiters().fetch_add(1, std::memory_order_seq_cst);
      if (!ready()) {
        lock.unlock();
        sleep_on(view_.host_event(), seen, kLongestWait);
        const bool alive = !options_.alive || options_.alive();
        lock.lock();
        if (!alive && !ready()) {
          view_.host_waiters().fetch_sub(1, std::memory_order_seq_cst);
          throw RingError("the drive has ended");
        }
      }
      view_.host_waiters().fetch_sub(1, std::memory_order_seq_cst);
    }
    if (spins % 16 == 15 && std::chrono::steady_clock::now() > deadline) return ready();
  }
  return true;
}

bool RingHost::poll_device(std::unique_lock<std::mutex>& lock) {
  lock.unlock();
  const bool worked = poll_device_();
  lock.lock();
  return worked;
}

bool RingHost::full(const Queue& queue) const {
  return queue.free.empty() || (queue.tail + 1) % queue.entries == queue.sq_head;
}

// Makes the data pointer for a buffer of `bytes` bytes.
void RingHost::point(abi::Sqe& entry, Command& command, std::uint64_t bytes) {
  const std::uint64_t address = command.buffer.address;
  if (!options_.prp) {
    entry.flags |= kSglPointer;  // keeps the bits of a fused operation
    entry.prp1 = address;
    entry.prp2 = bytes;  // low half: length; type and subtype 0 are a data block
    return;
  }
  entry.prp1 = address;
  if (bytes <= abi::kPageBytes) return;
  entry.prp2 = address + abi::kPageBytes;
  if (bytes <= 2 * abi::kPageBytes) return;
  // PRP lists follow one another; each but the last ends with the address of the next.
  constexpr std::uint64_t kEntries = abi::kPageBytes / sizeof(std::uint64_t);
  entry.prp2 = command.list.address;
  std::uint64_t* list = reinterpret_cast<std::uint64_t*>(view_.bytes().data() + command.list.address);
  std::uint64_t at = 0;
  for (std::uint64_t page = address + abi::kPageBytes; page < address + bytes; page += abi::kPageBytes) {
    if (at % kEntries == kEntries - 1 && page + abi::kPageBytes < address + bytes) {
      list[at] = command.list.address + (at + 1) * sizeof(std::uint64_t);
      ++at;
    }
    list[at++] = page;
  }
}

RingHost::Ticket RingHost::submit(std::uint16_t queue, abi::Sqe entry, std::span<const std::byte> data,
                                  std::uint64_t room) {
  const Ticket ticket = put(queue, entry, data, room);
  view_.wake_device();
  return ticket;
}

// `submit` without waking the drive.
RingHost::Ticket RingHost::put(std::uint16_t queue_id, abi::Sqe entry, std::span<const std::byte> data,
                               std::uint64_t room) {
  const std::uint64_t bytes = std::max<std::uint64_t>(data.size(), room);
  const std::uint64_t pages = (bytes + abi::kPageBytes - 1) / abi::kPageBytes;
  const std::uint64_t list_bytes = options_.prp && pages > 2 ? (pages + pages / 510 + 2) * sizeof(std::uint64_t) : 0;
  if (bytes + list_bytes > heap_.size() / 2 || bytes > std::numeric_limits<std::uint32_t>::max()) {
    throw std::length_error(
        "the data of a command have more than half of the ring segment: make it larger, or split them");
  }
  std::unique_lock lock(mutex_);
  if (queue_id >= queues_.size()) throw std::out_of_range("there is no such queue");
  std::optional<Heap::Block> buffer, list;
  const auto found_room = [&] {
    reap();
    if (full(queues_[queue_id])) return false;
    buffer = heap_.take(bytes);
    list = heap_.take(list_bytes);
    if (buffer && list) return true;
    if (buffer) heap_.give_back(*buffer);
    if (list) heap_.give_back(*list);
    return false;
  };
  if (!wait_until(lock, std::chrono::steady_clock::now() + options_.timeout, found_room) || !buffer || !list) {
    throw RingError("the drive's queue stays full: is the drive still running?");
  }
  Queue& queue = queues_[queue_id];
  const std::uint16_t id = queue.free.back();
  queue.free.pop_back();
  Command& command = queue.commands[id];
  command = {.used = true, .completed = false, .room = room, .buffer = *buffer, .list = *list, .cqe = {}};
  if (!data.empty()) std::memcpy(view_.bytes().data() + buffer->address, data.data(), data.size());
  entry.cid = id;
  if (bytes > 0) point(entry, command, bytes);
  std::memcpy(view_.bytes().data() + queue.sq + std::uint64_t{queue.tail} * sizeof entry, &entry, sizeof entry);
  queue.tail = (queue.tail + 1) % queue.entries;
  view_.sq_tail(queue_id).store(queue.tail, std::memory_order_release);
  return std::uint32_t{queue_id} << 16 | id;
}

bool RingHost::reap() {
  bool any = false;
  for (std::size_t id = 0; id < queues_.size(); ++id) {
    Queue& queue = queues_[id];
    const std::uint32_t before = queue.cq_head;
    while (queue.entries > 0) {
      std::byte* const at = view_.bytes().data() + queue.cq + std::uint64_t{queue.cq_head} * sizeof(abi::Cqe);
      const std::uint64_t last =
          std::atomic_ref(*reinterpret_cast<std::uint64_t*>(at + 8)).load(std::memory_order_acquire);
      if ((last >> 48 & 1) != (queue.phase ? 1u : 0u)) break;
      abi::Cqe cqe;
      std::memcpy(&cqe, at, sizeof cqe);
      queue.cq_head = (queue.cq_head + 1) % queue.entries;
      if (queue.cq_head == 0) queue.phase = !queue.phase;
      if (cqe.cid >= queue.commands.size() || !queue.commands[cqe.cid].used || cqe.sq_head >= queue.entries) {
        throw RingError("the drive completed a command that it was not given");
      }
      queue.sq_head = cqe.sq_head;
      queue.commands[cqe.cid].cqe = cqe;
      queue.commands[cqe.cid].completed = true;
      any = true;
    }
    if (queue.cq_head != before)
      view_.cq_head(static_cast<std::uint32_t>(id)).store(queue.cq_head, std::memory_order_release);
  }
  return any;
}

void RingHost::release(Command& command) {
  for (const Heap::Block& block : {command.buffer, command.list}) {
    if (block.bytes >= kLargeBuffer) madvise(view_.bytes().data() + block.address, block.bytes, MADV_REMOVE);
    heap_.give_back(block);
  }
  command.used = false;
}

bool RingHost::done(Ticket ticket) {
  std::unique_lock lock(mutex_);
  if (!threaded_) poll_device(lock);
  reap();
  return queues_.at(ticket >> 16).commands.at(ticket & 0xffff).completed;
}

HostCompletion RingHost::wait(Ticket ticket) { return finish(ticket, false); }

HostCompletion RingHost::finish(Ticket ticket, bool helps) {
  std::unique_lock lock(mutex_);
  const std::size_t queue_id = ticket >> 16, id = ticket & 0xffff;
  if (queue_id >= queues_.size() || id >= queues_[queue_id].commands.size() || !queues_[queue_id].commands[id].used) {
    throw std::out_of_range("there is no such command, or it was waited for already");
  }
  const auto completed = [&] {
    reap();
    return queues_[queue_id].commands[id].completed;
  };
  const auto deadline = std::chrono::steady_clock::now() + options_.timeout;
  if (!wait_until(lock, deadline, completed, helps && poll_device_)) {
    throw RingError("the drive does not complete a command in time");
  }
  Command& command = queues_[queue_id].commands[id];
  HostCompletion completion{.cqe = command.cqe, .data = {}};
  const bool success = (command.cqe.status & 0xfffe) == 0;
  if (success && command.room > 0) {
    const std::byte* const data = view_.bytes().data() + command.buffer.address;
    completion.data.assign(data, data + command.room);
  }
  release(command);
  queues_[queue_id].free.push_back(static_cast<std::uint16_t>(id));
  return completion;
}

void RingHost::repeat(std::uint16_t queue_id, const abi::Sqe& entry, std::uint64_t count) {
  std::unique_lock lock(mutex_);
  Queue& queue = queues_.at(queue_id);
  std::uint64_t submitted = 0, completed = 0;
  const auto reap_own = [&] {
    reap();
    for (std::uint32_t id = 0; id < queue.commands.size(); ++id) {
      Command& command = queue.commands[id];
      if (!command.used || !command.completed) continue;
      command.used = false;
      queue.free.push_back(static_cast<std::uint16_t>(id));
      ++completed;
    }
  };
  while (completed < count) {
    const std::uint32_t tail = queue.tail;
    while (submitted < count && !full(queue)) {
      const std::uint16_t id = queue.free.back();
      queue.free.pop_back();
      queue.commands[id] = {.used = true};
      abi::Sqe numbered = entry;
      numbered.cid = id;
      std::memcpy(view_.bytes().data() + queue.sq + std::uint64_t{queue.tail} * sizeof entry, &numbered, sizeof entry);
      queue.tail = (queue.tail + 1) % queue.entries;
      ++submitted;
    }
    if (queue.tail != tail) {
      view_.sq_tail(queue_id).store(queue.tail, std::memory_order_release);
      view_.wake_device();
    }
    const std::uint64_t before = completed;
    const auto progress = [&] {
      reap_own();
      return completed > before;
    };
    if (!wait_until(lock, std::chrono::steady_clock::now() + options_.timeout, progress)) {
      throw RingError("the drive does not complete a command in time");
    }
  }
}

}  // namespace kvdrive::nvme
