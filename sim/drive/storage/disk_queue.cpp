// SPDX-License-Identifier: Apache-2.0
#include "storage/disk_queue.hpp"

#include <sys/stat.h>
#include <time.h>

#include <algorithm>
#include <cerrno>
#include <ostream>
#include <system_error>

namespace kvdrive {
namespace {

std::uint64_t monotonic_ns() {
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<std::uint64_t>(now.tv_nsec);
}

constexpr std::size_t kMostTracks = 1000;  // of a kind, in a timeline

constexpr bool takes_room(TransferKind kind) { return kind != TransferKind::kBackground; }

}  // namespace

std::shared_ptr<DiskQueue> DiskQueue::of(int file) {
  static std::mutex mutex;
  static std::map<dev_t, std::weak_ptr<DiskQueue>> queues;
  struct stat status{};
  if (::fstat(file, &status) != 0) throw std::system_error(errno, std::generic_category(), "fstat");
  const std::lock_guard lock(mutex);
  std::weak_ptr<DiskQueue>& known = queues[status.st_dev];
  std::shared_ptr<DiskQueue> queue = known.lock();
  if (queue == nullptr) known = queue = std::make_shared<DiskQueue>();
  return queue;
}

void DiskQueue::count_busy(const User& user, bool was_busy) {
  if (busy(user) && !was_busy) ++busy_users_;
  if (!busy(user) && was_busy) --busy_users_;
}

void DiskQueue::add(User& user, unsigned slot, Turn& turn) {
  const std::lock_guard lock(mutex_);
  turn.added_ns = monotonic_ns();
  const bool was_busy = busy(user);
  ++user.waiting_;
  count_busy(user, was_busy);
  if (schedule_.empty() && has_room()) {
    turn.begun_ns = turn.added_ns;
    begin(user, slot, turn);
    return;
  }
  const TransferSchedule::Waiting waiting{
      .kind = turn.kind,
      .deadline = turn.added_ns + kTransferPatience[static_cast<std::size_t>(turn.kind)],
      .bytes = turn.bytes,
      .id = ++last_};
  schedule_.add(waiting);
  entries_.emplace(waiting.id, Entry{&user, slot, &turn, waiting});
  begin_waiting();
}

void DiskQueue::begin_waiting() {
  while (has_room()) {
    const auto granted = schedule_.next();
    if (!granted) return;
    begin_entry(entries_.find(granted->id));
  }
}

// Precondition: the schedule has granted the transfer.
void DiskQueue::begin_entry(Entries::iterator entry) {
  const Entry begun = entry->second;
  entries_.erase(entry);
  begun.turn->begun_ns = monotonic_ns();
  begin(*begun.user, begun.slot, *begun.turn);
  Counters& counters = counters_[static_cast<std::size_t>(begun.turn->kind)];
  const std::uint64_t waited = begun.turn->begun_ns - begun.turn->added_ns;
  ++counters.waited;
  counters.waited_ns += waited;
  counters.most_waited_ns = std::max(counters.most_waited_ns, waited);
}

void DiskQueue::begin(User& user, unsigned slot, const Turn& turn) {
  --user.waiting_;
  if (takes_room(turn.kind)) {
    user.in_flight_bytes_ += turn.bytes;
    in_flight_bytes_ += turn.bytes;
  }
  count_busy(user, true);
  Counters& counters = counters_[static_cast<std::size_t>(turn.kind)];
  ++counters.transfers;
  counters.bytes += turn.bytes;
  user.begin(slot);
}

void DiskQueue::ended(User& user, const Turn& turn) {
  const std::lock_guard lock(mutex_);
  if (events_kept_ > 0) {
    const std::pair event(turn, monotonic_ns());
    if (events_.size() < events_kept_) {
      events_.push_back(event);
    } else {
      events_[events_added_ % events_kept_] = event;
    }
    ++events_added_;
  }
  if (takes_room(turn.kind)) {
    user.in_flight_bytes_ -= turn.bytes;
    in_flight_bytes_ -= turn.bytes;
    count_busy(user, true);
  }
  begin_waiting();
}

void DiskQueue::begin_one(User& user) {
  const std::lock_guard lock(mutex_);
  const auto first = std::ranges::find_if(entries_, [&user](const auto& entry) { return entry.second.user == &user; });
  if (first == entries_.end()) return;
  schedule_.grant(first->second.waiting);
  begin_entry(first);
}

void DiskQueue::leave(User& user) {
  const std::lock_guard lock(mutex_);
  const bool was_busy = busy(user);
  for (auto entry = entries_.begin(); entry != entries_.end();) {
    if (entry->second.user != &user) {
      ++entry;
      continue;
    }
    schedule_.drop(entry->second.waiting);
    entry = entries_.erase(entry);
  }
  in_flight_bytes_ -= user.in_flight_bytes_;
  user.waiting_ = user.in_flight_bytes_ = 0;
  count_busy(user, was_busy);
  begin_waiting();
}

DiskQueue::ByKind DiskQueue::counters() const {
  const std::lock_guard lock(mutex_);
  return counters_;
}

void DiskQueue::keep_trace(std::size_t events) {
  const std::lock_guard lock(mutex_);
  events_.clear();
  events_kept_ = events;
  events_added_ = 0;
}

void DiskQueue::write_trace(std::ostream& out) const {
  const std::lock_guard lock(mutex_);
  std::vector<std::pair<Turn, std::uint64_t>> events = events_;
  std::ranges::sort(events, {}, [](const auto& event) { return event.first.begun_ns; });
  out << R"({"displayTimeUnit":"ns","otherData":{"clock":"wall time","events_in_all":)" << events_added_
      << R"(},"traceEvents":[)" << '\n'
      << R"({"ph":"M","name":"process_name","pid":1,"args":{"name":"disk"}})";
  const auto microseconds = [&out](std::uint64_t ns) { out << ns / 1000 << '.' << ns / 100 % 10; };
  // Transfers of a kind overlap. Each takes the first track of its kind that is free.
  std::array<std::vector<std::uint64_t>, kTransferKinds> tracks;  // the times at which they become free
  for (const auto& [turn, ended_ns] : events) {
    const auto kind = static_cast<std::size_t>(turn.kind);
    auto track = std::ranges::find_if(tracks[kind], [&turn](std::uint64_t free) { return free <= turn.begun_ns; });
    const auto lane = static_cast<std::size_t>(track - tracks[kind].begin());
    const std::size_t number = kind * kMostTracks + lane;
    if (track == tracks[kind].end()) {
      track = tracks[kind].insert(track, 0);
      out << ",\n"
          << R"({"ph":"M","name":"thread_name","pid":1,"tid":)" << number << R"(,"args":{"name":")"
          << kTransferNames[kind] << ' ' << lane << R"("}})";
    }
    *track = ended_ns;
    out << ",\n"
        << R"({"ph":"X","name":")" << kTransferNames[kind] << R"(","pid":1,"tid":)" << number << R"(,"ts":)";
    microseconds(turn.begun_ns);
    out << R"(,"dur":)";
    microseconds(ended_ns - turn.begun_ns);
    out << R"(,"args":{"bytes":)" << turn.bytes << R"(,"waited_ns":)" << turn.begun_ns - turn.added_ns << "}}";
  }
  out << "\n]}\n";
}

}  // namespace kvdrive
