// SPDX-License-Identifier: Apache-2.0
// Reads checked pieces of a file around the page cache, many at once, while the caller computes.
//
// A thread keeps reads in flight and verifies the CRC-32C of each piece when it arrives. Reads that somebody waits for
// go before reads ahead, and reads ahead never fill the queue: a read that becomes urgent finds the disk nearly free.
// A read ahead that turns out to be needless is cancelled; what it still costs is the pieces that are in flight.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <filesystem>
#include <map>
#include <mutex>
#include <span>
#include <thread>
#include <vector>

#include "storage/async_transfers.hpp"
#include "storage/backing_file.hpp"

namespace kvdrive {

class PieceReader {
 public:
  using Ticket = std::uint64_t;
  enum class Urgency : std::uint8_t { kNow, kAhead };

  // What became of a read: `error` is an errno, ECANCELED for one that was cancelled, or 0; `bad_piece` the first piece
  // whose checksum differs, or -1.
  struct Outcome {
    int error = 0;
    std::int64_t bad_piece = -1;
  };

  struct Counters {
    std::uint64_t reads = 0;
    std::uint64_t bytes = 0;
    std::uint64_t most_in_flight = 0;
    std::uint64_t busy_ns = 0;    // time with at least one read in flight
    std::uint64_t cancelled = 0;  // pieces that were not read, because their read was cancelled
  };

  // Pieces have `piece_bytes`, whole pages. At most `depth` reads are in flight, an eighth of them reads ahead. Throws
  // std::runtime_error with a sentence for the user.
  PieceReader(const std::filesystem::path& path, std::size_t piece_bytes, unsigned depth);
  PieceReader(const PieceReader&) = delete;
  PieceReader& operator=(const PieceReader&) = delete;
  // Waits for reads in flight, and drops those that have not begun.
  ~PieceReader();

  // Reads `to.size()` bytes at `offset`, whole pages into page-aligned memory; the last piece may be shorter. There is
  // one checksum for each piece. The memory must stay in place until `wait` has returned.
  Ticket start(std::uint64_t offset, std::span<std::byte> to, std::vector<std::uint32_t> checksums, Urgency urgency);
  // Puts a read ahead among those that somebody waits for.
  void hurry(Ticket ticket);
  // Drops the pieces of a read that have not begun: false if all have. The read ends with the last piece in flight.
  // `wait` is called for it as for others.
  bool cancel(Ticket ticket);
  // True if `wait` would not wait.
  bool has_ended(Ticket ticket) const;
  // Waits for the end of a read and forgets its ticket, for which no other thread may wait. After a read that ended
  // with an error, the kernel may still write into the memory until the reader is destroyed.
  Outcome wait(Ticket ticket);

  Counters counters() const;
  bool around_cache() const { return file_.has_direct(); }
  bool asynchronous() const { return transfers_.asynchronous(); }

 private:
  struct Request {
    std::uint64_t offset = 0;
    std::span<std::byte> to;
    std::vector<std::uint32_t> checksums;
    std::size_t begun = 0, ended = 0;  // pieces
    bool awaited = false;
    Outcome outcome;

    bool is_done() const { return ended == checksums.size(); }
    void end(int error) {
      outcome.error = error;
      ended = checksums.size();
    }
  };
  struct Piece {
    Ticket ticket;
    std::int64_t number;
    std::uint64_t offset;
    std::span<std::byte> to;
    std::uint32_t checksum;
    bool ahead;
    int error = 0;
    bool bad = false;
  };

  void serve();
  void read_until_stopped();
  // The thread cannot go on: every read that has not ended, and every later one, ends with this errno.
  void fail(int error);
  // Both need the mutex.
  std::vector<Piece> take(unsigned in_flight);
  void settle();
  void begin(const Piece& piece);

  const std::size_t piece_bytes_;
  const unsigned depth_;
  BackingFile file_;
  AsyncTransfers transfers_;    // of the thread
  std::vector<Piece> arrived_;  // of the thread: pieces that `settle` has not seen
  mutable std::mutex mutex_;
  std::condition_variable work_;   // signalled when there are pieces to read, or when the thread is to stop
  std::condition_variable ended_;  // signalled when a request has ended
  std::map<Ticket, Request> requests_;
  std::deque<Ticket> now_, ahead_;  // requests with pieces that have not begun
  unsigned ahead_in_flight_ = 0;
  Ticket last_ = 0;
  Counters counters_;
  int failure_ = 0;  // errno that ended the thread
  bool stop_ = false;
  std::thread thread_;  // last: it uses all members
};

}  // namespace kvdrive
