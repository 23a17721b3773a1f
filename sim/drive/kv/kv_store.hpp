// SPDX-License-Identifier: Apache-2.0
// The KV cache in the drive: sessions, each with the K and V of its layers and heads, and the commands that change
// them.
//
// A command that is refused changes nothing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <set>
#include <span>
#include <unordered_map>
#include <vector>

#include "common/abi.hpp"
#include "kv/head_rows.hpp"

namespace kvdrive {

struct KvLimits {
  std::uint64_t tail_bytes = 256 << 20;  // rows that wait in drive memory, of all sessions
  std::uint64_t session_groups = 0;      // flash of one session, 0: no limit
  std::uint32_t run_groups = 1;          // groups of a head that go to flash together at least: fewer runs to remember
};

class KvStore {
 public:
  KvStore(Ftl& ftl, const KvLimits& limits) : ftl_(ftl), limits_(limits) {}

  // Appends `data` [heads][tokens][row_bytes]. On success `tokens_in_groups` is the smallest count over the heads.
  abi::NvmeStatus append(const abi::KvAppend& command, std::span<const std::byte> data,
                         std::uint32_t& tokens_in_groups);

  abi::NvmeStatus trim(const abi::SessionTrim& command);

  // A new session with the first tokens of another one; they share groups until one of them changes.
  abi::NvmeStatus fork(const abi::SessionFork& command);

  bool has_session(std::uint32_t session) const { return sessions_.contains(session); }
  std::vector<std::uint32_t> sessions() const;

  // K and V of a session's heads, by layer, head and kind; empty for an unknown session.
  std::vector<const HeadRows*> heads(std::uint32_t session) const;

  // Null when nothing was appended there.
  const HeadRows* find(std::uint32_t session, std::uint32_t layer, std::uint32_t head, abi::KvKind kind) const;

  std::uint64_t tail_bytes() const { return tail_bytes_; }

  void save(RecordWriter& writer, bool everything) const;
  void committed();
  void load_session(RecordReader& reader);
  void load_session_end(RecordReader& reader);
  void load_rows(RecordReader& reader);
  // After all records: claims the lists; after these are loaded: looks at them.
  void claim_lists();
  void finish_loading();

  // Compares the maps of all sessions with the groups' own descriptions; `report` gets a sentence per disagreement.
  void check(const std::function<void(const std::string&)>& report) const;

 private:
  struct Session {
    std::uint32_t next_sequence = 0;
    std::uint64_t groups = 0;
    std::unordered_map<std::uint32_t, HeadRows> heads;
  };
  struct Prepared;

  HeadRows* find_rows(std::uint32_t session, std::uint32_t layer, std::uint32_t head, std::uint32_t kind);
  abi::NvmeStatus check_append(const abi::KvAppend& command) const;
  bool fits(const abi::KvAppend& command) const;
  void revert(std::vector<Prepared>& prepared, std::vector<HeadRows>& new_heads);
  void apply_all(Session& session, std::vector<Prepared>& prepared);
  abi::NvmeStatus prepare_trim(Session& session, std::uint32_t tokens, std::vector<Prepared>& prepared);
  void drop(std::uint32_t session);

  Ftl& ftl_;
  KvLimits limits_;
  std::unordered_map<std::uint32_t, Session> sessions_;
  std::uint64_t tail_bytes_ = 0;
  std::set<std::uint32_t> dirty_;  // sessions that changed since the last commit
  std::set<std::uint32_t> ended_;  // sessions that ended since then; their number may be in use again
};

}  // namespace kvdrive
