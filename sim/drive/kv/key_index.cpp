// SPDX-License-Identifier: Apache-2.0
#include "kv/key_index.hpp"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <utility>

#include "engine/fixed.hpp"
#include "kv/halves.hpp"

namespace kvdrive {
namespace {

constexpr std::uint32_t kLeastExponent = abi::kMinIndexExponent, kMostExponent = abi::kMaxIndexExponent;
constexpr std::int64_t kLowest = -128, kHighest = 127, kMostSteps = 255, kMostCode = 3;

struct SavedIndex {
  ListId list;
  std::uint32_t spans, exponent, kept_waiting, added_waiting, reserved;
  std::uint64_t saturated;

  bool sane(std::uint32_t span_bytes, std::uint32_t tokens, std::size_t waiting) const {
    const bool set = kLeastExponent <= exponent && exponent <= kMostExponent;
    const std::uint64_t bytes = std::uint64_t{spans} * span_bytes;
    return (set || (exponent == 0 && spans == 0)) && spans <= tokens / KeyIndex::kSpanTokens &&
           kept_waiting <= waiting && std::uint64_t{kept_waiting} + added_waiting == bytes % abi::kPageBytes;
  }
};

// The exponent of the index for these rows: the smallest e from 2 on with |fixed(k)| <= 127 * 2^e for every number.
std::uint32_t index_exponent(std::span<const std::byte> rows) {
  std::int64_t top = 0;
  for (std::size_t i = 0; i < rows.size() / 2; ++i) top = std::max(top, std::abs(fixed(half_at(rows, i))));
  std::uint32_t exponent = kLeastExponent;
  while (exponent < kMostExponent && top > kHighest << exponent) ++exponent;
  return exponent;
}

// Writes the index of the 32 rows [32][d] from `rows` on to `out`, 10 d bytes. Returns the number of saturated
// channels.
//
// With x = fixed(k) - lo * u the code is the number of j in {1, 2, 3} for which 8 x >= (2 j - 1) * step * u: the
// definition's quotient without a division.
std::uint32_t index_span(const std::byte* rows, std::uint32_t head_dim, std::uint32_t exponent, std::byte* out) {
  const std::span<const std::byte> all(rows, std::size_t{KeyIndex::kSpanTokens} * head_dim * 2);
  std::array<std::array<std::int64_t, abi::kMaxHeadDim>, KeyIndex::kSpanTokens> values;
  std::array<std::array<std::int64_t, abi::kMaxHeadDim>, kMostCode> thresholds;
  for (std::uint32_t t = 0; t < KeyIndex::kSpanTokens; ++t) {
    for (std::uint32_t i = 0; i < head_dim; ++i) values[t][i] = fixed(half_at(all, std::size_t{t} * head_dim + i));
  }
  std::uint32_t saturated = 0;
  for (std::uint32_t i = 0; i < head_dim; ++i) {
    std::int64_t least = values[0][i], most = values[0][i];
    for (const auto& row : values) {
      least = std::min(least, row[i]);
      most = std::max(most, row[i]);
    }
    const std::int64_t unit = std::int64_t{1} << exponent, exact_lo = least >> exponent;
    const std::int64_t lo = std::clamp(exact_lo, kLowest, kHighest);
    const std::int64_t range = 4 * (most - lo * unit);  // not negative unless lo was clamped
    const std::int64_t exact_step = range <= 0 ? range / (3 * unit) : (range + 3 * unit - 1) / (3 * unit);
    const std::int64_t step = std::clamp<std::int64_t>(exact_step, 1, kMostSteps);
    saturated += lo != exact_lo || exact_step > kMostSteps ? 1 : 0;
    out[i] = static_cast<std::byte>(lo);
    out[head_dim + i] = static_cast<std::byte>(step);
    for (std::int64_t j = 0; j < kMostCode; ++j) {
      thresholds[static_cast<std::size_t>(j)][i] = 8 * lo * unit + (2 * j + 1) * step * unit;
    }
  }
  std::byte* to = out + std::size_t{2} * head_dim;
  for (const auto& row : values) {
    for (std::uint32_t i = 0; i < head_dim; i += 4, ++to) {
      unsigned codes = 0;
      for (std::uint32_t j = i; j < i + 4; ++j) {
        unsigned code = 0;
        for (const auto& threshold : thresholds) code += 8 * row[j] >= threshold[j] ? 1 : 0;
        codes |= code << 2 * (j - i);
      }
      *to = static_cast<std::byte>(codes);
    }
  }
  return saturated;
}

}  // namespace

KeyIndex::Change KeyIndex::unchanged() const { return {spans_, exponent_, saturated_, waiting_, waiting_.size()}; }

KeyIndex::Change KeyIndex::emptied() const {
  Change change;
  change.exponent = exponent_;
  return change;
}

// The exponent follows from all rows that the head has when its first span or part of one arrives: those of the first
// append. Only salvage leaves rows without one.
void KeyIndex::choose_exponent(std::uint32_t tokens, const ReadRows& read, Change& change) const {
  std::vector<std::byte> rows(std::size_t{kSpanTokens} * head_dim_ * 2);
  std::uint32_t exponent = kLeastExponent;
  for (std::uint32_t first = 0; first < tokens; first += kSpanTokens) {
    const std::uint32_t count = std::min(kSpanTokens, tokens - first);
    if (!read(first, count, rows.data())) return;
    exponent = std::max(exponent, index_exponent(std::span(rows).first(std::size_t{count} * head_dim_ * 2)));
  }
  change.exponent = exponent;
}

void KeyIndex::prepare_append(Ftl& ftl, Owner owner, std::uint32_t tokens, const ReadRows& read, Change& change) {
  change = unchanged();
  if (exponent_ == 0) choose_exponent(tokens, read, change);
  if (change.exponent == 0) return;
  owner.kind = GroupKind::kKeyIndex;
  std::vector<std::byte> rows(std::size_t{kSpanTokens} * head_dim_ * 2);
  for (; (change.spans + 1) * kSpanTokens <= tokens; ++change.spans) {
    if (!read(change.spans * kSpanTokens, kSpanTokens, rows.data())) return;
    const std::size_t before = change.waiting.size();
    change.waiting.resize(before + span_bytes(head_dim_));
    change.saturated += index_span(rows.data(), head_dim_, change.exponent, change.waiting.data() + before);
    while (change.waiting.size() >= abi::kPageBytes) {
      if (list_ == GroupMap::kNoList) list_ = ftl.create_list();
      owner.index =
          pages_of(head_dim_, change.spans + 1) - static_cast<std::uint32_t>(change.waiting.size() / abi::kPageBytes);
      ftl.put(list_, owner, std::span(change.waiting).first(abi::kPageBytes), {});
      change.waiting.erase(change.waiting.begin(), change.waiting.begin() + abi::kPageBytes);
      change.kept_waiting = 0;
    }
  }
}

std::uint32_t KeyIndex::first_wrong_span(Ftl& ftl, const ReadRows& read) const {
  const std::size_t bytes = span_bytes(head_dim_);
  std::vector<std::byte> rows(std::size_t{kSpanTokens} * head_dim_ * 2), expected(bytes), stored;
  std::uint32_t page = 0;
  for (std::uint32_t span = 0; span < spans_; ++span) {
    while (stored.size() < bytes && page < pages()) {
      stored.resize(stored.size() + abi::kPageBytes);
      const GroupRead one{list_, page++, stored.data() + stored.size() - abi::kPageBytes};
      if (!ftl.read(std::span(&one, 1), ftl.now(), Sink::kFirmware).whole) return spans_;
    }
    if (stored.size() < bytes) stored.insert(stored.end(), waiting_.begin(), waiting_.end());
    if (!read(span * kSpanTokens, kSpanTokens, rows.data())) return spans_;
    index_span(rows.data(), head_dim_, exponent_, expected.data());
    if (!std::ranges::equal(expected, std::span(stored).first(bytes))) return span;
    stored.erase(stored.begin(), stored.begin() + static_cast<std::ptrdiff_t>(bytes));
  }
  return spans_;
}

void KeyIndex::revert(Ftl& ftl) const {
  if (list_ != GroupMap::kNoList) ftl.cut(list_, pages());
}

KeyIndex::Change KeyIndex::prepare_truncate(Ftl& ftl, std::uint32_t tokens) const {
  Change change = unchanged();
  const std::uint32_t spans = tokens / kSpanTokens;
  if (spans >= spans_) return change;
  change.spans = spans;
  const std::uint32_t whole = pages_of(head_dim_, spans);
  const std::size_t bytes = std::size_t{spans} * span_bytes(head_dim_) - std::size_t{whole} * abi::kPageBytes;
  change.waiting.resize(bytes);
  change.kept_waiting = whole == pages() ? bytes : 0;
  if (whole == pages() || bytes == 0) return change;
  std::array<std::byte, abi::kPageBytes> page;
  const GroupRead read{list_, whole, page.data()};
  if (!ftl.read(std::span(&read, 1), ftl.now(), Sink::kFirmware).whole) return emptied();
  std::memcpy(change.waiting.data(), page.data(), bytes);
  return change;
}

void KeyIndex::apply(Ftl& ftl, Change&& change) {
  if (change.spans < spans_ && list_ != GroupMap::kNoList) ftl.cut(list_, pages_of(head_dim_, change.spans));
  spans_ = change.spans;
  exponent_ = change.exponent;
  saturated_ = change.saturated;
  waiting_ = std::move(change.waiting);
  clean_waiting_ = std::min(clean_waiting_, change.kept_waiting);
}

KeyIndex KeyIndex::fork(Ftl& ftl) const {
  KeyIndex copy = *this;
  copy.clean_waiting_ = 0;
  if (list_ != GroupMap::kNoList) copy.list_ = ftl.fork_list(list_, pages());
  return copy;
}

void KeyIndex::release(Ftl& ftl) {
  if (list_ != GroupMap::kNoList) ftl.drop_list(list_);
  list_ = GroupMap::kNoList;
}

void KeyIndex::claim(Ftl& ftl) const {
  if (list_ != GroupMap::kNoList) ftl.claim(list_);
}

void KeyIndex::save(RecordWriter& writer, bool everything) const {
  const std::size_t kept = everything ? 0 : clean_waiting_;
  writer.put(SavedIndex{list_, spans_, exponent_, static_cast<std::uint32_t>(kept),
                        static_cast<std::uint32_t>(waiting_.size() - kept), 0, saturated_});
  writer.put_all(std::span(waiting_).subspan(kept));
}

void KeyIndex::load(RecordReader& reader, std::uint32_t tokens) {
  const auto saved = reader.get<SavedIndex>();
  if (!saved.sane(span_bytes(head_dim_), tokens, waiting_.size())) {
    throw std::runtime_error("a record of a head's index is damaged");
  }
  const auto added = reader.take(saved.added_waiting);
  waiting_.resize(saved.kept_waiting);
  waiting_.insert(waiting_.end(), added.begin(), added.end());
  list_ = saved.list;
  spans_ = saved.spans;
  exponent_ = saved.exponent;
  saturated_ = saved.saturated;
  committed();
}

}  // namespace kvdrive
