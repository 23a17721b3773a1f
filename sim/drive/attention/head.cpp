// SPDX-License-Identifier: Apache-2.0
#include "attention/head.hpp"

#include <algorithm>
#include <cstddef>
#include <iterator>

#include "common/abi.hpp"
#include "engine/shapes.hpp"

namespace kvdrive {
namespace {

std::uint64_t query_bytes(const abi::AttnSubmit& command, std::uint32_t half_bytes) {
  return std::uint64_t{command.group} * half_bytes;
}

std::uint64_t valid_bytes(const abi::AttnSubmit& command) {
  return command.has_valid ? whole_beats((std::uint64_t{command.tokens} + 7) / 8) : 0;
}

std::uint64_t inline_score_bytes(const abi::AttnSubmit& command) {
  return std::uint64_t{command.group} * whole_beats(std::uint64_t{command.inline_tokens} * 4);
}

}  // namespace

std::uint64_t payload_bytes(const abi::AttnSubmit& command, std::uint32_t half_bytes) {
  const std::uint64_t inlined = inline_score_bytes(command) + std::uint64_t{command.inline_tokens} * half_bytes;
  return command.heads * (query_bytes(command, half_bytes) + inlined) + valid_bytes(command);
}

std::optional<std::uint16_t> invalid_field(const abi::AttnSubmit& command) {
  const bool sparf = command.mode == abi::kSparfAttend, groups = command.mode == abi::kGroups,
             chooses = sparf || groups;
  if (!chooses && command.mode != abi::kExact && command.mode != abi::kPartial) return offsetof(abi::AttnSubmit, mode);
  if (chooses != (command.r > 0)) return offsetof(abi::AttnSubmit, r);
  if (groups && std::ranges::find(abi::kUnitTokens, command.r) == std::end(abi::kUnitTokens)) {
    return offsetof(abi::AttnSubmit, r);
  }
  if (chooses != (command.k_top > 0)) return offsetof(abi::AttnSubmit, k_top);
  if (!chooses && command.local > 0) return offsetof(abi::AttnSubmit, local);
  if (command.heads == 0 || command.head + command.heads > 256) return offsetof(abi::AttnSubmit, heads);
  if (command.tokens == 0 || command.tokens > abi::kMaxTokens - std::uint32_t{command.inline_tokens}) {
    return offsetof(abi::AttnSubmit, tokens);
  }
  if (!serves_group(command.group)) return offsetof(abi::AttnSubmit, group);
  if (command.has_valid > 1) return offsetof(abi::AttnSubmit, has_valid);
  if (command.reserved0 != 0) return offsetof(abi::AttnSubmit, reserved0);
  return std::nullopt;
}

Head::Head(const KvStore& store, const abi::AttnSubmit& submit, std::span<const std::byte> data, std::uint32_t index)
    : command(submit),
      k(*store.find(submit.session, submit.layer, submit.head + index, abi::kKeys)),
      v(*store.find(submit.session, submit.layer, submit.head + index, abi::kValues)) {
  const auto share = [&](std::uint64_t bytes) {
    const auto taken = data.subspan(index * bytes, bytes);
    data = data.subspan(submit.heads * bytes);
    return taken;
  };
  q = share(query_bytes(submit, k.half_bytes()));
  valid = data.first(valid_bytes(submit));
  data = data.subspan(valid.size());
  inline_scores = share(inline_score_bytes(submit));
  inline_v = share(std::uint64_t{submit.inline_tokens} * k.half_bytes());
}

std::uint64_t Head::out_bytes() const {
  return query_bytes(command, k.half_bytes()) * (command.mode == abi::kPartial ? 2 : 1);
}

bool Head::any_valid(std::uint32_t first, std::uint32_t end) const {
  if (valid.empty()) return first < end;
  for (std::uint32_t token = first; token < end; ++token) {
    if (is_valid(token)) return true;
  }
  return false;
}

void Head::add_valid(std::uint32_t first, std::uint32_t end, Runs& tokens) const {
  if (valid.empty()) return tokens.add(first, end);
  for (std::uint32_t token = first; token < end; ++token) {
    if (is_valid(token)) tokens.add(token, token + 1);
  }
}

std::vector<bool> Head::wanted_groups(const HeadRows& rows) const {
  const std::uint32_t per_group = rows.tokens_per_group();
  std::vector<bool> wanted(std::min((tokens() + per_group - 1) / per_group, rows.groups()));
  for (std::uint32_t group = 0; group < wanted.size(); ++group) {
    wanted[group] = any_valid(group * per_group, std::min((group + 1) * per_group, tokens()));
  }
  return wanted;
}

}  // namespace kvdrive
