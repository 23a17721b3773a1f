// SPDX-License-Identifier: Apache-2.0
#include "kv/kv_store.hpp"

#include <algorithm>
#include <iterator>
#include <utility>

#include "kv/halves.hpp"

namespace kvdrive {
namespace {

std::uint32_t head_key(std::uint32_t layer, std::uint32_t head, std::uint32_t kind) {
  return layer << 16 | head << 8 | kind;
}

bool valid_row_bytes(std::uint32_t row_bytes) {
  constexpr std::uint32_t step = abi::kHeadDimStep * 2;
  return row_bytes > 0 && row_bytes <= abi::kMaxHeadDim * 2 && row_bytes % step == 0;
}

HeadRows::Name name_of(const abi::KvAppend& command, std::uint32_t head) {
  return {command.session, command.layer, static_cast<std::uint8_t>(head), static_cast<abi::KvKind>(command.kind)};
}

bool sparse(const abi::KvAppend& command) { return (command.options & abi::kAppendSparse) != 0; }

bool all_zero(std::span<const std::uint32_t> reserved) {
  return std::ranges::all_of(reserved, [](std::uint32_t value) { return value == 0; });
}

}  // namespace

struct KvStore::Prepared {
  HeadRows* rows;
  HeadRows::Change change;
};

void KvStore::apply_all(Session& session, std::vector<Prepared>& prepared) {
  for (auto& [rows, change] : prepared) {
    session.groups -= rows->flash_groups();
    tail_bytes_ -= rows->tail().size();
    rows->apply(ftl_, std::move(change));
    session.groups += rows->flash_groups();
    tail_bytes_ += rows->tail().size();
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
  constexpr std::uint32_t options = abi::kAppendFua | abi::kAppendSparse;
  if (command.heads == 0 || command.head + command.heads > 256 || command.tokens == 0 ||
      (command.options & ~options) != 0 || command.kind > abi::kValues || command.type != abi::kBinary16 ||
      !valid_row_bytes(command.row_bytes) || std::uint64_t{command.first_token} + command.tokens > abi::kMaxTokens) {
    return abi::kInvalidField;
  }
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
    if (rows && rows->sparse() != sparse(command)) return abi::kInvalidField;
  }
  return abi::kSuccess;
}

bool KvStore::fits(const abi::KvAppend& command) const {
  std::uint64_t groups = 0, tail_bytes = tail_bytes_;
  for (std::uint32_t head = command.head; head < command.head + std::uint32_t{command.heads}; ++head) {
    const HeadRows* found = find(command.session, command.layer, head, static_cast<abi::KvKind>(command.kind));
    const HeadRows& rows = found ? *found : HeadRows(name_of(command, head), command.row_bytes, sparse(command));
    groups += rows.groups_to_append(command.tokens, limits_.run_groups);
    tail_bytes += rows.tail_after(command.tokens, limits_.run_groups) - rows.tail().size();
  }
  const auto session = sessions_.find(command.session);
  const std::uint64_t owned = groups + (session == sessions_.end() ? 0 : session->second.groups);
  if (limits_.session_groups > 0 && owned > limits_.session_groups) return false;
  return groups <= ftl_.available() && tail_bytes <= limits_.tail_bytes;
}

abi::NvmeStatus KvStore::append(const abi::KvAppend& command, std::span<const std::byte> data,
                                std::uint32_t& tokens_in_groups) {
  if (const auto status = check_append(command); status != abi::kSuccess) return status;
  if (ftl_.keeps_payload() && !all_finite(data)) return abi::kValueNotFinite;
  if (!fits(command)) return abi::kCapacityExceeded;

  // Storing groups may commit: sessions and heads that are new appear only when all of it is done.
  const std::size_t head_bytes = std::size_t{command.tokens} * command.row_bytes;
  std::vector<HeadRows> new_heads;
  std::vector<Prepared> prepared;
  new_heads.reserve(command.heads);
  prepared.reserve(command.heads);
  try {
    for (std::size_t i = 0; i < command.heads; ++i) {
      const auto head = static_cast<std::uint32_t>(command.head + i);
      HeadRows* rows = find_rows(command.session, command.layer, head, command.kind);
      if (!rows) rows = &new_heads.emplace_back(name_of(command, head), command.row_bytes, sparse(command));
      prepared.push_back({rows, {}});
      rows->prepare_append(ftl_, data.subspan(i * head_bytes, head_bytes), limits_.run_groups, prepared.back().change);
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
    session.heads.emplace(key, std::move(rows));
  }
  return abi::kSuccess;
}

// Forgets what was stored for a command that is refused now.
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
  if (command.reserved0 != 0 || !all_zero(command.reserved1)) return abi::kInvalidField;
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

void KvStore::drop(std::uint32_t number) {
  for (auto& [key, rows] : sessions_.at(number).heads) {
    tail_bytes_ -= rows.tail().size();
    rows.release(ftl_);
  }
  sessions_.erase(number);
  dirty_.erase(number);
  ended_.insert(number);
}

abi::NvmeStatus KvStore::fork(const abi::SessionFork& command) {
  if (command.reserved0 != 0 || !all_zero(command.reserved1) || command.target == command.session) {
    return abi::kInvalidField;
  }
  const auto source = sessions_.find(command.session);
  if (source == sessions_.end()) return abi::kUnknownSession;
  if (sessions_.contains(command.target)) return abi::kSessionExists;
  Session copy;
  copy.next_sequence = 0;
  std::uint64_t tail_bytes = 0;
  for (const auto& [key, rows] : source->second.heads) {
    HeadRows::Name name = rows.name();
    name.session = command.target;
    const HeadRows& forked = copy.heads.emplace(key, rows.fork(ftl_, name)).first->second;
    copy.groups += forked.flash_groups();
    tail_bytes += forked.tail().size();
  }
  Session& target = sessions_.emplace(command.target, std::move(copy)).first->second;
  tail_bytes_ += tail_bytes;
  dirty_.insert(command.target);
  std::vector<Prepared> prepared;
  auto status = prepare_trim(target, command.tokens, prepared);
  if (status == abi::kSuccess) apply_all(target, prepared);
  for (auto head = target.heads.begin(); head != target.heads.end();) {
    const bool empty = head->second.tokens() == 0;
    if (empty) head->second.release(ftl_);
    head = empty ? target.heads.erase(head) : std::next(head);
  }
  if (status == abi::kSuccess && (tail_bytes_ > limits_.tail_bytes || target.heads.empty())) {
    status = target.heads.empty() ? abi::kInvalidField : abi::kCapacityExceeded;
  }
  if (status != abi::kSuccess) drop(command.target);
  return status;
}

}  // namespace kvdrive
