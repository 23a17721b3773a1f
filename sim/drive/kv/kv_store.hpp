// SPDX-License-Identifier: Apache-2.0
// The KV cache in the drive: sessions with the K and V of their layers and heads, and the commands that change them.
//
// A command that is refused changes nothing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <set>
#include <span>
#include <unordered_map>
#include <vector>

#include "commands/wire.hpp"
#include "common/abi.hpp"
#include "kv/head_rows.hpp"
#include "kv/limits.hpp"

namespace kvdrive {

class KvStore {
 public:
  explicit KvStore(Ftl& ftl) : ftl_(ftl) {}

  void set_limits(const Limits& limits) { limits_ = limits; }

  // Append, trim, remove and fork have a precondition: their command has no invalid_field().
  // Appends `data` [heads][tokens][row_bytes]. On success `tokens_in_groups` is the smallest value over the heads.
  abi::NvmeStatus append(const abi::KvAppend& command, std::span<const std::byte> data,
                         std::uint32_t& tokens_in_groups);

  abi::NvmeStatus trim(const abi::SessionTrim& command);

  // Removes tokens behind the first group of each head.
  abi::NvmeStatus remove(const nvme::SessionRemove& command);

  // Returns the families of a session's lists, in ascending order; empty for an unknown session.
  std::vector<Family> families(std::uint32_t session) const;

  // Makes a new session with the first tokens of another one. Both share each group until one of them changes it.
  abi::NvmeStatus fork(const abi::SessionFork& command);

  bool has_session(std::uint32_t session) const { return sessions_.contains(session); }
  std::vector<std::uint32_t> sessions() const;

  // Returns K and V of a session's heads, by layer, head and kind; empty for an unknown session.
  std::vector<const HeadRows*> heads(std::uint32_t session) const;

  // Returns null if nothing was appended to that head.
  const HeadRows* find(std::uint32_t session, std::uint32_t layer, std::uint32_t head, abi::KvKind kind) const;

  std::uint64_t staged_bytes() const { return staged_bytes_; }
  std::size_t unsaved_ends() const { return ended_.size(); }  // sessions that ended since the last commit
  // The number of groups of a head that at present move to flash together; fewer groups stay staged.
  std::uint32_t run_groups() const;

  // To be called between commands. Moves whole groups to flash when staged rows take three quarters of their budget.
  void work();

  void save(RecordWriter& writer, bool everything) const;
  void committed();
  void load_session(RecordReader& reader);
  void load_session_end(RecordReader& reader);
  void load_rows(RecordReader& reader);
  // To be called after all records and lists were loaded.
  void claim_lists();
  void finish_loading();

  // Keeps the groups that verify. `found`: the result of Salvage::scan; empty if the journal is whole. `report` gets a
  // sentence for each head that lost rows or was found again.
  void salvage(std::span<const FoundGroup> found, const std::function<void(const std::string&)>& report);

  // Compares the maps of all sessions with the groups' spares. `report` gets one sentence for each disagreement.
  void check(const std::function<void(const std::string&)>& report) const;

 private:
  using Heads = std::unordered_map<std::uint32_t, HeadRows>;
  struct Session {
    std::uint32_t next_sequence = 0;
    std::uint64_t groups = 0;  // groups in flash, including staged ones
    std::uint64_t staged = 0;  // staged groups
    Heads heads;
  };
  struct Prepared;

  HeadRows* find_rows(std::uint32_t session, std::uint32_t layer, std::uint32_t head, std::uint32_t kind);
  abi::NvmeStatus check_append(const abi::KvAppend& command) const;
  bool flash_fits(const abi::KvAppend& command) const;
  std::optional<std::uint32_t> run_that_fits(const abi::KvAppend& command);
  std::uint64_t staged_after(const abi::KvAppend& command, std::uint32_t run) const;
  bool within_limits(const Session& session) const;
  void add_found_heads(std::span<const FoundGroup> found);
  void spill(std::uint32_t session);
  void spill_until(std::uint64_t staged_bytes);
  void count(Session& session, const HeadRows& rows, int sign);
  void revert(std::vector<Prepared>& prepared, std::vector<HeadRows>& new_heads);
  void apply_all(Session& session, std::vector<Prepared>& prepared);
  abi::NvmeStatus prepare_trim(Session& session, std::uint32_t tokens, std::vector<Prepared>& prepared);
  void drop(std::uint32_t session);
  Heads::iterator erase(Session& session, Heads::iterator head);

  Ftl& ftl_;
  Limits limits_;
  std::unordered_map<std::uint32_t, Session> sessions_;
  std::uint64_t staged_bytes_ = 0;
  std::uint64_t staged_groups_ = 0;  // whole groups among the staged rows
  std::set<std::uint32_t> dirty_;    // sessions that changed since the last commit
  std::set<std::uint32_t> ended_;    // sessions that ended since the last commit; their numbers may be in use again
};

}  // namespace kvdrive
