// SPDX-License-Identifier: Apache-2.0
// The streams of EXACT and PARTIAL queries over pages around the page cache, from one query to the next.
//
// The disk would rest while a host computes between two commands. But a model's steps repeat: its layers come in the
// same order for each token. So a command that came behind another one twice is expected there again, and its first
// pages are read meanwhile. Of several rows in a command, the next one's pages are read, and rows over the same K and V
// (tokens of a draft) share one read where K and V fit the stream's buffers.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "common/abi.hpp"
#include "ftl/ftl.hpp"
#include "ftl/group_stream.hpp"
#include "kv/kv_store.hpp"

namespace kvdrive {

// Where a query stands in its command.
struct RowPlace {
  bool first = true;
  const abi::AttnSubmit* next = nullptr;  // the row behind it
};

class DenseStreams {
 public:
  // Pieces that are read for an expected query. Half of the room that users of a disk share (DiskQueue), so that
  // weights get their turns meanwhile.
  static constexpr std::size_t kEarlyPieces = 8;

  DenseStreams(const KvStore& store, Ftl& ftl) : store_(store), ftl_(ftl) {}

  // A stream over groups of K, then of V, of each head of a query. `first_token`: the first one that it needs.
  std::unique_ptr<GroupStream> open(const abi::AttnSubmit& query, const RowPlace& place, std::uint32_t first_token,
                                    std::vector<GroupStream::Group> groups);
  // The query that opened the stream is done.
  void close(std::unique_ptr<GroupStream> stream, const abi::AttnSubmit& query, const RowPlace& place);

  // Pieces that were read before the query came that used them, and those that none used.
  std::uint64_t early() const { return early_; }
  std::uint64_t unused() const { return unused_; }

 private:
  // The rows that a query reads.
  struct Rows {
    std::uint32_t session = 0;
    std::uint16_t layer = 0;
    std::uint8_t head = 0;
    std::uint16_t heads = 0;

    auto operator<=>(const Rows&) const = default;
  };
  struct Known {
    std::optional<Rows> next;  // of the first query of the command that came behind this one
    bool twice = false;        // it did so the time before, too
    std::uint32_t first_token = 0;
    unsigned unused = 0;  // pages were read early for these rows so often since the last time that a query used them
  };

  static constexpr std::size_t kMostKnown = 1 << 14;
  static constexpr unsigned kMostUnused = 4;  // where masks change from token to token, nothing is read early

  static Rows rows_of(const abi::AttnSubmit& query);
  void note(const Rows& rows);
  std::vector<GroupStream::Group> groups_of(const Rows& rows, std::uint32_t first_token) const;
  std::unique_ptr<GroupStream> stream_over(std::vector<GroupStream::Group> groups) const;
  void begin_early(const Rows& rows);
  void drop_held();

  const KvStore& store_;
  Ftl& ftl_;
  std::map<Rows, Known> known_;
  std::optional<Rows> command_;        // of the first query of the present command
  std::unique_ptr<GroupStream> held_;  // for the next query
  std::size_t held_early_ = 0;         // pieces that are read for it; 0: it was read whole by the query before
  Rows expected_{};                    // of the query for which they are read
  std::uint64_t changes_ = 0;          // of the map, when the held stream began
  std::uint64_t early_ = 0, unused_ = 0;
};

}  // namespace kvdrive
