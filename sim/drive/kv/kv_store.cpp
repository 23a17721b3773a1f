// SPDX-License-Identifier: Apache-2.0
#include "kv/kv_store.hpp"

#include <algorithm>
#include <iterator>
#include <utility>

#include "kv/fields.hpp"
#include "kv/halves.hpp"

namespace kvdrive {
namespace {

std::uint32_t head_key(std::uint32_t layer, std::uint32_t head, std::uint32_t kind) {
  return layer << 16 | head << 8 | kind;
}

HeadRows::Name name_of(const abi::KvAppend& command, std::uint32_t head) {
  return {command.session, command.layer, static_cast<std::uint8_t>(head), static_cast<abi::KvKind>(command.kind)};
}

}  // namespace

struct KvStore::Prepared {
  HeadRows* rows;
  HeadRows::Change change;
};

// Adds (`sign` 1) or subtracts (-1) the flash and memory of a head.
void KvStore::count(Session& session, const HeadRows& rows, int sign) {
  const auto by = [sign](std::uint64_t amount) { return sign > 0 ? amount : 0 - amount; };
  session.groups += by(rows.owned_groups());
  session.staged += by(rows.staged_groups());
  staged_groups_ += by(rows.staged_groups());
  staged_bytes_ += by(rows.staged().size());
}

void KvStore::apply_all(Session& session, std::vector<Prepared>& prepared) {
  for (auto& [rows, change] : prepared) {
    count(session, *rows, -1);
    rows->apply(ftl_, std::move(change));
    count(session, *rows, 1);
  }
}

const HeadRows* KvStore::find(std::uint32_t session, std::uint32_t layer, std::uint32_t head, abi::KvKind kind) const {
  return const_cast<KvStore*>(this)->find_rows(session, layer, head, kind);
}

HeadRows* KvStore::find_rows(std::uint32_t session, std::uint32_t layer, std::uint32_t head, std::uint32_t kind) {
  const auto found = sessions_.find(session);
  if (found == sessions_.end()) return nullptr;
  const auto rows = found->second.heads.find(head_key(layer, head, kind));
  return rows == found->second.heads.end() ? nullptr : &rows->second;
}

std::vector<std::uint32_t> KvStore::sessions() const {
  std::vector<std::uint32_t> numbers;
  numbers.reserve(sessions_.size());
  for (const auto& entry : sessions_) numbers.push_back(entry.first);
  std::ranges::sort(numbers);
  return numbers;
}

std::vector<const HeadRows*> KvStore::heads(std::uint32_t session) const {
  std::vector<const HeadRows*> found;
  const auto entry = sessions_.find(session);
  if (entry == sessions_.end()) return found;
  for (const auto& [key, rows] : entry->second.heads) found.push_back(&rows);
  std::ranges::sort(found, {}, [](const HeadRows* rows) {
    return head_key(rows->name().layer, rows->name().head, rows->name().kind);
  });
  return found;
}

abi::NvmeStatus KvStore::check_append(const abi::KvAppend& command) const {
  const auto found = sessions_.find(command.session);
  if (found == sessions_.end()) {
    if (command.first_token != 0) return abi::kUnknownSession;
    return command.sequence == 0 ? abi::kSuccess : abi::kOutOfSequence;
  }
  if (command.sequence != found->second.next_sequence) return abi::kOutOfSequence;
  for (std::uint32_t head = command.head; head < command.head + std::uint32_t{command.heads}; ++head) {
    const HeadRows* rows = find(command.session, command.layer, head, static_cast<abi::KvKind>(command.kind));
    if (command.first_token != (rows ? rows->tokens() : 0)) return abi::kTokenGap;
    if (rows && rows->row_bytes() != command.row_bytes) return abi::kRowMismatch;
    if (rows && rows->layout() != layout_of(command)) return abi::kInvalidField;
  }
  return abi::kSuccess;
}

// True if flash and metadata have room for the append. Staged groups are included in the count already.
bool KvStore::flash_fits(const abi::KvAppend& command) const {
  std::uint64_t groups = 0, memory = 0;
  for (std::uint32_t head = command.head; head < command.head + std::uint32_t{command.heads}; ++head) {
    const HeadRows* found = find(command.session, command.layer, head, static_cast<abi::KvKind>(command.kind));
    std::optional<HeadRows> none;
    const HeadRows& rows = found ? *found : none.emplace(name_of(command, head), layout_of(command));
    groups += rows.groups_to_append(command.tokens);
    if (!found) memory += rows.memory_bytes() + (rows.index() ? 2 : 1) * GroupMap::list_bytes();
  }
  const auto session = sessions_.find(command.session);
  const std::uint64_t owned = groups + (session == sessions_.end() ? 0 : session->second.groups);
  if (limits_.session_groups > 0 && owned > limits_.session_groups) return false;
  return groups + staged_groups_ <= ftl_.available() && memory <= ftl_.metadata_left();
}

std::uint64_t KvStore::staged_after(const abi::KvAppend& command, std::uint32_t run) const {
  std::uint64_t bytes = staged_bytes_;
  for (std::uint32_t head = command.head; head < command.head + std::uint32_t{command.heads}; ++head) {
    const HeadRows* found = find(command.session, command.layer, head, static_cast<abi::KvKind>(command.kind));
    std::optional<HeadRows> none;
    const HeadRows& rows = found ? *found : none.emplace(name_of(command, head), layout_of(command));
    bytes += rows.staged_after(command.tokens, run) - rows.staged().size();
  }
  return bytes;
}

// Chooses the length of runs such that the remaining metadata budget can map the remaining flash.
std::uint32_t KvStore::run_groups() const {
  constexpr std::uint64_t kMost = 64;
  constexpr std::uint64_t kRunBytes = sizeof(Extent) * 9 / 8 + 1;  // a vector of runs grows by an eighth
  if (limits_.run_groups > 0)
    return static_cast<std::uint32_t>(std::min<std::uint64_t>(limits_.run_groups, UINT32_MAX));
  const std::uint64_t bytes = ftl_.metadata_left() / 4 * 3;  // the rest is for runs that garbage collection splits
  if (bytes == 0) return kMost;
  return static_cast<std::uint32_t>(std::clamp<std::uint64_t>(ftl_.available() * kRunBytes / bytes + 1, 1, kMost));
}

// Moves a session's staged groups to flash. Groups that do not fit there stay staged.
void KvStore::spill(std::uint32_t number) {
  Session& session = sessions_.at(number);
  std::vector<Prepared> prepared(1);
  for (auto& [key, rows] : session.heads) {
    if (rows.staged_groups() == 0) continue;
    prepared[0] = {&rows, {}};
    try {
      rows.prepare_append(ftl_, {}, 1, prepared[0].change);
    } catch (const DriveFull&) {
      rows.revert(ftl_);
      return;
    } catch (...) {
      rows.revert(ftl_);
      throw;
    }
    apply_all(session, prepared);
    dirty_.insert(number);
  }
}

// Moves staged groups to flash, starting with the session that has the most. Ends when staged rows take at most
// `staged_bytes`, or no more groups can move.
void KvStore::spill_until(std::uint64_t staged_bytes) {
  while (staged_bytes_ > staged_bytes && staged_groups_ > 0) {
    const std::uint64_t before = staged_groups_;
    const auto most = std::ranges::max_element(
        sessions_, {}, [](const auto& entry) { return std::pair(entry.second.staged, ~entry.first); });
    spill(most->first);
    if (staged_groups_ == before) return;
  }
}

void KvStore::work() {
  if (staged_bytes_ > limits_.staged_bytes / 4 * 3) spill_until(limits_.staged_bytes / 2);
}

// The number of groups that an append stores together: run_groups(), or fewer if drive memory cannot stage so many.
// Returns nothing if even single groups do not fit.
std::optional<std::uint32_t> KvStore::run_that_fits(const abi::KvAppend& command) {
  const std::uint32_t run = run_groups();
  if (staged_after(command, run) <= limits_.staged_bytes) return run;
  spill_until(limits_.staged_bytes / 2);
  if (staged_after(command, 1) > limits_.staged_bytes) spill_until(0);
  for (const std::uint32_t shorter : {run, 1U}) {
    if (staged_after(command, shorter) <= limits_.staged_bytes) return shorter;
  }
  return std::nullopt;
}

abi::NvmeStatus KvStore::append(const abi::KvAppend& command, std::span<const std::byte> data,
                                std::uint32_t& tokens_in_groups) {
  if (const auto status = check_append(command); status != abi::kSuccess) return status;
  const RowLayout layout = layout_of(command);
  if (ftl_.keeps_payload() && !valid_rows(layout.format, layout.head_dim(), data)) return abi::kValueNotFinite;
  if (!flash_fits(command)) return abi::kCapacityExceeded;
  const auto run = run_that_fits(command);
  if (!run) return abi::kCapacityExceeded;

  // Storing groups may trigger a commit, so new sessions and heads are added only after all groups are stored.
  const std::size_t head_bytes = std::size_t{command.tokens} * command.row_bytes;
  std::vector<HeadRows> new_heads;
  std::vector<Prepared> prepared;
  new_heads.reserve(command.heads);
  prepared.reserve(command.heads);
  try {
    for (std::size_t i = 0; i < command.heads; ++i) {
      const auto head = static_cast<std::uint32_t>(command.head + i);
      HeadRows* rows = find_rows(command.session, command.layer, head, command.kind);
      if (!rows) rows = &new_heads.emplace_back(name_of(command, head), layout_of(command));
      prepared.push_back({rows, {}});
      rows->prepare_append(ftl_, data.subspan(i * head_bytes, head_bytes), *run, prepared.back().change);
    }
  } catch (const DriveFull&) {
    revert(prepared, new_heads);
    return abi::kCapacityExceeded;
  } catch (...) {
    revert(prepared, new_heads);
    throw;
  }
  Session& session = sessions_[command.session];
  apply_all(session, prepared);
  ++session.next_sequence;
  dirty_.insert(command.session);

  tokens_in_groups = abi::kMaxTokens;
  for (const Prepared& entry : prepared) tokens_in_groups = std::min(tokens_in_groups, entry.rows->tokens_in_groups());
  for (HeadRows& rows : new_heads) {
    const std::uint32_t key = head_key(command.layer, rows.name().head, command.kind);
    ftl_.charge(static_cast<std::int64_t>(rows.memory_bytes()));
    session.heads.emplace(key, std::move(rows));
  }
  return abi::kSuccess;
}

// Drops the groups that were stored for a command that fails after all.
void KvStore::revert(std::vector<Prepared>& prepared, std::vector<HeadRows>& new_heads) {
  for (const Prepared& entry : prepared) entry.rows->revert(ftl_);
  for (HeadRows& rows : new_heads) rows.release(ftl_);
}

abi::NvmeStatus KvStore::prepare_trim(Session& session, std::uint32_t tokens, std::vector<Prepared>& prepared) {
  for (auto& [key, rows] : session.heads) {
    if (rows.tokens() <= tokens) continue;
    prepared.push_back({&rows, {}});
    if (!rows.prepare_truncate(ftl_, tokens, prepared.back().change)) return abi::kUnrecoveredRead;
  }
  return abi::kSuccess;
}

abi::NvmeStatus KvStore::trim(const abi::SessionTrim& command) {
  const auto found = sessions_.find(command.session);
  if (found == sessions_.end()) return abi::kUnknownSession;
  if (command.from_token == 0) {
    drop(command.session);
    return abi::kSuccess;
  }
  std::vector<Prepared> prepared;
  if (const auto status = prepare_trim(found->second, command.from_token, prepared); status != abi::kSuccess) {
    return status;
  }
  apply_all(found->second, prepared);
  dirty_.insert(command.session);
  return abi::kSuccess;
}

abi::NvmeStatus KvStore::remove(const nvme::SessionRemove& command) {
  const auto found = sessions_.find(command.session);
  if (found == sessions_.end()) return abi::kUnknownSession;
  std::vector<Prepared> prepared;
  for (auto& [key, rows] : found->second.heads) {
    if (command.layers > 0 && rows.name().layer >= command.layers) continue;
    const bool whole = command.tokens % rows.tokens_per_group() == 0;
    if (command.first_token != rows.tokens_per_group() || !whole) return abi::kInvalidField;
    if (command.before != rows.tokens()) return abi::kTokenGap;
    if (!rows.can_remove(command.tokens)) return abi::kTokensMissing;
    prepared.push_back({&rows, {}});
  }
  if (prepared.empty()) return abi::kUnknownSession;
  for (Prepared& entry : prepared) {
    if (!entry.rows->prepare_remove(ftl_, command.tokens, entry.change)) return abi::kUnrecoveredRead;
  }
  apply_all(found->second, prepared);
  dirty_.insert(command.session);
  return abi::kSuccess;
}

std::vector<Family> KvStore::families(std::uint32_t session) const {
  std::vector<Family> found;
  for (const HeadRows* rows : heads(session)) {
    for (const ListId list : rows->lists()) {
      if (list != GroupMap::kNoList) found.push_back(ftl_.family(list));
    }
  }
  std::ranges::sort(found);
  return found;
}

KvStore::Heads::iterator KvStore::erase(Session& session, Heads::iterator head) {
  HeadRows& rows = head->second;
  count(session, rows, -1);
  ftl_.charge(-static_cast<std::int64_t>(rows.memory_bytes()));
  rows.release(ftl_);
  return session.heads.erase(head);
}

void KvStore::drop(std::uint32_t number) {
  Session& session = sessions_.at(number);
  while (!session.heads.empty()) erase(session, session.heads.begin());
  sessions_.erase(number);
  dirty_.erase(number);
  ended_.insert(number);
}

abi::NvmeStatus KvStore::fork(const abi::SessionFork& command) {
  const auto source = sessions_.find(command.session);
  if (source == sessions_.end()) return abi::kUnknownSession;
  if (sessions_.contains(command.target)) return abi::kSessionExists;
  if (source->second.staged > 0) spill(command.session);  // to share these groups instead of copying them
  std::uint64_t memory = 0;
  for (const auto& [key, rows] : source->second.heads) {
    const auto lists = rows.lists();
    memory += rows.memory_bytes() + lists.size() * GroupMap::list_bytes() + ftl_.run_bytes(lists);
  }
  if (memory > ftl_.metadata_left()) return abi::kCapacityExceeded;
  Session& target = sessions_[command.target];
  dirty_.insert(command.target);
  for (const auto& [key, rows] : source->second.heads) {
    HeadRows::Name name = rows.name();
    name.session = command.target;
    const HeadRows& forked = target.heads.emplace(key, rows.fork(ftl_, name)).first->second;
    count(target, forked, 1);
    ftl_.charge(static_cast<std::int64_t>(forked.memory_bytes()));
  }
  std::vector<Prepared> prepared;
  auto status = prepare_trim(target, command.tokens, prepared);
  if (status == abi::kSuccess) apply_all(target, prepared);
  for (auto head = target.heads.begin(); head != target.heads.end();) {
    head = head->second.tokens() == 0 ? erase(target, head) : std::next(head);
  }
  if (status == abi::kSuccess && target.heads.empty()) status = abi::kInvalidField;
  if (status == abi::kSuccess && !within_limits(target)) status = abi::kCapacityExceeded;
  if (status != abi::kSuccess) drop(command.target);
  return status;
}

bool KvStore::within_limits(const Session& session) const {
  return staged_bytes_ <= limits_.staged_bytes && staged_groups_ <= ftl_.available() &&
         (limits_.session_groups == 0 || session.groups <= limits_.session_groups);
}

}  // namespace kvdrive
