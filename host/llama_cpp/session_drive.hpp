// SPDX-License-Identifier: Apache-2.0
// The drive behind the plugin, and the commands that it executes on sessions.
//
// The drive may hold sessions of other programs. Those of the plugin last as long as the process: a list on a drive of
// this process names them, so that the next process removes what a killed one left. A drive that is served has no list,
// because other processes use it meanwhile.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "common/abi.hpp"
#include "configuration.hpp"
#include "drive_port.hpp"

namespace kvdrive::llama {

// K or V of one layer in a session.
struct LayerRows {
  std::uint16_t layer = 0;
  abi::KvKind kind = abi::kKeys;
  std::uint32_t heads = 0, dim = 0;

  std::uint32_t row() const { return heads * dim; }  // numbers of a token
};

struct Session {
  std::uint32_t number = 0;
  std::uint32_t appends = 0;  // the drive counts them, too, and refuses a repeated one
};

// One query for all KV heads of a layer.
struct Query {
  std::uint32_t session = 0;
  std::uint16_t layer = 0;
  std::uint32_t heads = 0, group = 0, dim = 0;  // KV heads, query heads of each
  std::uint32_t tokens = 0;                     // the first ones of the session
  std::span<const std::byte> valid{};           // bitmap of these tokens in whole beats; empty: all
  float scale = 1;
  UnitChoice choice{};
  std::vector<std::uint16_t> q;  // [heads][group][dim] binary16
  float* out = nullptr;          // [heads][group][dim]
};

// What attention left out, since the drive was opened.
struct Shares {
  std::uint64_t all_bytes = 0,
                read_bytes = 0;        // K and V of the queries' tokens; what was read of them and of the
                                       // index, 0 if unknown
  std::uint64_t queries = 0;           // query heads for which units were chosen
  double unread = 0, most_unread = 0;  // sum and maximum of their shares of the softmax, as the index estimates

  double read_share() const { return static_cast<double>(read_bytes) / static_cast<double>(std::max(all_bytes, 1UL)); }
  double unread_share() const { return unread / static_cast<double>(std::max(queries, 1UL)); }
};

// Counters since the drive was opened.
struct DriveCounters {
  std::atomic<std::uint64_t> appends{0}, appended_rows{0};  // commands; tokens of one layer's K or V
  std::atomic<std::uint64_t> reads{0}, read_rows{0};
  std::atomic<std::uint64_t> sessions{0}, trims{0}, forks{0}, queries{0};
};

class SessionDrive {
 public:
  // Opens the drive, and makes one where there is no file. Throws std::runtime_error with a sentence for the user.
  explicit SessionDrive(const Configuration& configuration);
  SessionDrive(const SessionDrive&) = delete;
  SessionDrive& operator=(const SessionDrive&) = delete;
  // Removes the plugin's sessions and closes the drive.
  ~SessionDrive();

  // All throw std::runtime_error with a sentence where the drive refuses or fails. They may be called from several
  // threads for different sessions.

  // A number for a new session, which begins to exist with its first rows.
  Session open();
  // A session that somebody else has made is the plugin's from now on.
  void take(const Session& session);
  // A session is not the plugin's any more, and stays.
  void release(const Session& session);
  // Forgets a session and all of its rows.
  void remove(const Session& session);
  // Adds tokens behind the session's first `first` ones. `halves`: [heads][tokens][dim] binary16.
  void append(Session& session, const LayerRows& rows, std::uint32_t first, std::uint32_t tokens,
              std::span<const std::uint16_t> halves);
  // Reads some KV heads of tokens `first` and on to `out`: [heads][tokens][dim] binary16.
  void read(const Session& session, const LayerRows& rows, std::uint32_t first_head, std::uint32_t heads,
            std::uint32_t first, std::uint32_t tokens, std::uint16_t* out);
  // Forgets the tokens from `from` on. Precondition: 0 < from.
  void trim(const Session& session, std::uint32_t from);
  // A new session with the same tokens. Precondition: tokens > 0.
  Session fork(const Session& session, std::uint32_t tokens);
  // Attends from any number of queries. Each has at least one valid token.
  void attend(std::span<const Query> queries);

  // For a process that stores sessions of its own beside the plugin's: any command, and the numbers of all sessions.
  nvme::Reply execute(const abi::Sqe& command, std::span<const std::byte> data, std::uint64_t room) {
    return drive_->execute(command, data, room);
  }
  std::vector<std::uint32_t> sessions() { return drive_->sessions(); }
  std::string failure() const { return drive_->failure(); }
  bool exclusive() const { return drive_->exclusive(); }

  std::uint64_t capacity_bytes() const;
  std::uint64_t free_bytes() const;
  const DriveCounters& counters() const { return counters_; }
  const Policy& policy() const { return policy_; }
  Shares shares() const;
  // All counters as JSON.
  std::string statistics() const;

 private:
  nvme::Reply execute(const void* command, std::span<const std::byte> data, std::uint64_t room, const char* what);
  void read_together(const Session& session, const LayerRows& rows, std::uint32_t first_head, std::uint32_t heads,
                     std::uint32_t first, std::uint32_t tokens, std::uint16_t* out);
  void attend_together(std::span<const Query> queries);
  void note_shares(std::span<const Query> queries, std::span<const std::byte> results, std::uint64_t read);
  void remove_leftovers();
  void store_list();

  RowFormat format_;
  Policy policy_;
  std::unique_ptr<DrivePort> drive_;
  DriveCounters counters_;
  std::mutex mutex_;  // of the list
  std::set<std::uint32_t> sessions_;
  mutable std::mutex shares_mutex_;
  Shares shares_;
};

}  // namespace kvdrive::llama
