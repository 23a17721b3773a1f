// SPDX-License-Identifier: Apache-2.0
#include "kv_store.hpp"

#include <algorithm>
#include <utility>
#include <vector>

namespace kvdrive {
namespace {

std::uint32_t stream_key(std::uint32_t layer, std::uint32_t head, std::uint32_t kind) {
  return layer << 16 | head << 8 | kind;
}

bool valid_row_bytes(std::uint32_t row_bytes) {
  constexpr std::uint32_t step = abi::kHeadDimStep * 2;
  return row_bytes > 0 && row_bytes <= abi::kMaxHeadDim * 2 && row_bytes % step == 0;
}

struct Prepared {
  Stream* stream;
  Stream::Change change;
};

void apply_all(PageStore& pages, std::vector<Prepared>& prepared) {
  for (auto& [stream, change] : prepared) stream->apply(pages, std::move(change));
}

}  // namespace

const Stream* KvStore::find(std::uint32_t session, std::uint32_t layer, std::uint32_t head, abi::KvKind kind) const {
  const auto found = sessions_.find(session);
  if (found == sessions_.end()) return nullptr;
  const auto stream = found->second.streams.find(stream_key(layer, head, kind));
  return stream == found->second.streams.end() ? nullptr : &stream->second;
}

abi::NvmeStatus KvStore::check_append(const abi::KvAppend& command) const {
  if (command.heads == 0 || command.head + command.heads > 256 || command.tokens == 0 || command.reserved != 0 ||
      command.kind > abi::kValues || command.type != abi::kBinary16 || !valid_row_bytes(command.row_bytes) ||
      std::uint64_t{command.first_token} + command.tokens > abi::kMaxTokens) {
    return abi::kInvalidField;
  }
  const auto found = sessions_.find(command.session);
  if (found == sessions_.end()) {
    if (command.first_token != 0) return abi::kUnknownSession;
    return command.sequence == 0 ? abi::kSuccess : abi::kOutOfSequence;
  }
  if (command.sequence != found->second.next_sequence) return abi::kOutOfSequence;
  for (std::uint32_t head = command.head; head < command.head + std::uint32_t{command.heads}; ++head) {
    const Stream* stream = find(command.session, command.layer, head, static_cast<abi::KvKind>(command.kind));
    if (command.first_token != (stream ? stream->tokens() : 0)) return abi::kTokenGap;
    if (stream && stream->row_bytes() != command.row_bytes) return abi::kRowMismatch;
  }
  return abi::kSuccess;
}

bool KvStore::fits(const abi::KvAppend& command) const {
  std::uint64_t needed = 0;
  for (std::uint32_t head = command.head; head < command.head + std::uint32_t{command.heads}; ++head) {
    const Stream* stream = find(command.session, command.layer, head, static_cast<abi::KvKind>(command.kind));
    needed += (stream ? *stream : Stream(command.row_bytes)).pages_to_append(command.tokens);
  }
  return needed <= pages_.available();
}

abi::NvmeStatus KvStore::append(const abi::KvAppend& command, std::span<const std::byte> data,
                                std::uint32_t& tokens_in_pages) {
  if (const auto status = check_append(command); status != abi::kSuccess) return status;
  if (!fits(command)) return abi::kCapacityExceeded;

  Session& session = sessions_[command.session];
  const std::size_t head_bytes = std::size_t{command.tokens} * command.row_bytes;
  std::vector<Prepared> prepared;
  prepared.reserve(command.heads);
  try {
    for (std::size_t i = 0; i < command.heads; ++i) {
      const auto key = stream_key(command.layer, static_cast<std::uint32_t>(command.head + i), command.kind);
      Stream& stream = session.streams.try_emplace(key, command.row_bytes).first->second;
      prepared.push_back({&stream, {}});
      stream.prepare_append(pages_, data.subspan(i * head_bytes, head_bytes), prepared.back().change);
    }
  } catch (...) {
    for (const auto& [stream, change] : prepared) {
      for (const Page& page : change.added) pages_.release(page);
    }
    std::erase_if(session.streams, [](const auto& entry) { return entry.second.tokens() == 0; });
    if (session.streams.empty()) sessions_.erase(command.session);
    throw;
  }
  apply_all(pages_, prepared);
  ++session.next_sequence;

  tokens_in_pages = abi::kMaxTokens;
  for (const auto& [stream, change] : prepared) {
    tokens_in_pages = std::min(tokens_in_pages, stream->tokens_in_pages());
  }
  return abi::kSuccess;
}

abi::NvmeStatus KvStore::trim(const abi::SessionTrim& command) {
  const auto zero = [](std::uint32_t value) { return value == 0; };
  if (command.reserved0 != 0 || !std::ranges::all_of(command.reserved1, zero)) return abi::kInvalidField;
  const auto found = sessions_.find(command.session);
  if (found == sessions_.end()) return abi::kUnknownSession;

  std::vector<Prepared> prepared;
  for (auto& [key, stream] : found->second.streams) {
    if (stream.tokens() <= command.from_token) continue;
    prepared.push_back({&stream, {}});
    if (!stream.prepare_truncate(pages_, command.from_token, prepared.back().change)) return abi::kUnrecoveredRead;
  }
  apply_all(pages_, prepared);
  if (command.from_token == 0) sessions_.erase(found);
  return abi::kSuccess;
}

}  // namespace kvdrive
