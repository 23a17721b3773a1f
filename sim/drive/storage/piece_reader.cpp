// SPDX-License-Identifier: Apache-2.0
#include "storage/piece_reader.hpp"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <new>
#include <stdexcept>
#include <string>
#include <system_error>
#include <utility>

#include "common/abi.hpp"
#include "crc32c.hpp"

namespace kvdrive {

PieceReader::PieceReader(const std::filesystem::path& path, std::size_t piece_bytes, unsigned depth)
    : piece_bytes_(piece_bytes), depth_(depth), file_(path, BackingFile::Access::kReadOnly), transfers_(depth) {
  if (piece_bytes == 0 || piece_bytes % abi::kPageBytes != 0 || depth == 0) {
    throw std::runtime_error("pieces are whole pages, and at least one read is in flight");
  }
  transfers_.take_turns(DiskQueue::of(file_.direct()));
  thread_ = std::thread([this] { serve(); });
}

PieceReader::~PieceReader() {
  {
    const std::scoped_lock lock(mutex_);
    stop_ = true;
  }
  work_.notify_all();
  thread_.join();
}

PieceReader::Ticket PieceReader::start(std::uint64_t offset, std::span<std::byte> to,
                                       std::vector<std::uint32_t> checksums, Urgency urgency) {
  const auto address = reinterpret_cast<std::uintptr_t>(to.data());
  if ((offset | address | to.size()) % abi::kPageBytes != 0) throw std::runtime_error("a read is of whole pages");
  if (to.empty() || checksums.size() != (to.size() + piece_bytes_ - 1) / piece_bytes_) {
    throw std::runtime_error("a read has one checksum for each piece");
  }
  const std::scoped_lock lock(mutex_);
  const Ticket ticket = ++last_;
  Request& request =
      requests_.emplace(ticket, Request{.offset = offset, .to = to, .checksums = std::move(checksums), .outcome = {}})
          .first->second;
  if (failure_ != 0) {
    request.end(failure_);
    return ticket;
  }
  (urgency == Urgency::kNow ? now_ : ahead_).push_back(ticket);
  work_.notify_all();
  return ticket;
}

void PieceReader::hurry(Ticket ticket) {
  const std::scoped_lock lock(mutex_);
  const auto place = std::ranges::find(ahead_, ticket);
  if (place == ahead_.end()) return;
  ahead_.erase(place);
  now_.push_back(ticket);
  work_.notify_all();
}

bool PieceReader::cancel(Ticket ticket) {
  const std::scoped_lock lock(mutex_);
  for (std::deque<Ticket>* const queue : {&now_, &ahead_}) {
    const auto place = std::ranges::find(*queue, ticket);
    if (place == queue->end()) continue;
    queue->erase(place);
    Request& request = requests_.at(ticket);
    const std::size_t dropped = request.checksums.size() - request.begun;
    request.ended += dropped;
    request.outcome.error = ECANCELED;
    counters_.cancelled += dropped;
    if (request.is_done()) ended_.notify_all();
    return true;
  }
  return false;
}

bool PieceReader::has_ended(Ticket ticket) const {
  const std::scoped_lock lock(mutex_);
  const auto place = requests_.find(ticket);
  if (place == requests_.end()) throw std::runtime_error("no read has this ticket");
  return place->second.is_done();
}

PieceReader::Outcome PieceReader::wait(Ticket ticket) {
  std::unique_lock lock(mutex_);
  const auto place = requests_.find(ticket);
  if (place == requests_.end() || place->second.awaited) throw std::runtime_error("no read has this ticket");
  place->second.awaited = true;
  ended_.wait(lock, [&place] { return place->second.is_done(); });
  const Outcome outcome = place->second.outcome;
  requests_.erase(place);
  return outcome;
}

PieceReader::Counters PieceReader::counters() const {
  const std::scoped_lock lock(mutex_);
  return counters_;
}

std::vector<PieceReader::Piece> PieceReader::take(unsigned in_flight) {
  std::vector<Piece> pieces;
  const unsigned most_ahead = std::max(1U, depth_ / 8);
  while (in_flight + pieces.size() < depth_) {
    const bool ahead = now_.empty();
    std::deque<Ticket>& queue = ahead ? ahead_ : now_;
    if (queue.empty() || (ahead && ahead_in_flight_ >= most_ahead)) break;
    const Ticket ticket = queue.front();
    Request& request = requests_.at(ticket);
    const std::size_t number = request.begun++, at = number * piece_bytes_;
    if (request.begun == request.checksums.size()) queue.pop_front();
    if (ahead) ++ahead_in_flight_;
    const std::span to = request.to.subspan(at, std::min(piece_bytes_, request.to.size() - at));
    pieces.push_back({.ticket = ticket,
                      .number = static_cast<std::int64_t>(number),
                      .offset = request.offset + at,
                      .to = to,
                      .checksum = request.checksums[number],
                      .ahead = ahead});
    ++counters_.reads;
    counters_.bytes += to.size();
  }
  counters_.most_in_flight = std::max<std::uint64_t>(counters_.most_in_flight, in_flight + pieces.size());
  return pieces;
}

void PieceReader::begin(const Piece& piece) {
  const iovec part{piece.to.data(), piece.to.size()};
  const auto keep = [this, piece](int error) {
    arrived_.push_back(piece);
    arrived_.back().error = error;
    arrived_.back().bad = error == 0 && crc32c(piece.to) != piece.checksum;
  };
  transfers_.read(file_.direct(), piece.offset, std::span(&part, 1), keep,
                  piece.ahead ? TransferKind::kAhead : TransferKind::kWeights);
}

void PieceReader::settle() {
  for (const Piece& piece : arrived_) {
    Request& request = requests_.at(piece.ticket);
    if (piece.ahead) --ahead_in_flight_;
    if (piece.error != 0) request.outcome.error = piece.error;
    if (piece.bad && (request.outcome.bad_piece < 0 || piece.number < request.outcome.bad_piece)) {
      request.outcome.bad_piece = piece.number;
    }
    if (++request.ended == request.checksums.size()) ended_.notify_all();
  }
  arrived_.clear();
}

void PieceReader::serve() {
  try {
    read_until_stopped();
  } catch (const std::system_error& error) {
    fail(error.code().value());
  } catch (const std::bad_alloc&) {
    fail(ENOMEM);
  }
}

void PieceReader::fail(int error) {
  const std::scoped_lock lock(mutex_);
  failure_ = error;
  now_.clear();
  ahead_.clear();
  for (auto& [ticket, request] : requests_) {
    if (!request.is_done()) request.end(error);
  }
  ended_.notify_all();
}

void PieceReader::read_until_stopped() {
  using Clock = std::chrono::steady_clock;
  std::unique_lock lock(mutex_);
  while (!stop_) {
    if (transfers_.in_flight() == 0) work_.wait(lock, [this] { return stop_ || !now_.empty() || !ahead_.empty(); });
    if (stop_) break;
    const std::vector<Piece> pieces = take(transfers_.in_flight());
    lock.unlock();
    const auto began = Clock::now();
    for (const Piece& piece : pieces) begin(piece);
    if (transfers_.in_flight() > 0) transfers_.wait(transfers_.in_flight() - 1);
    const auto busy = std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now() - began);
    lock.lock();
    counters_.busy_ns += static_cast<std::uint64_t>(busy.count());
    settle();
  }
  lock.unlock();
  transfers_.wait(0);
}

}  // namespace kvdrive
