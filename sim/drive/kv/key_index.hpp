// SPDX-License-Identifier: Apache-2.0
// The 2-bit index of a head's K for policy groups (docs/arithmetic.md, groups): 10 d bytes for each whole span of 32
// tokens.
//
// The spans follow one another without gaps, across the borders of pages. So pages that are read one after the other
// are the array that the engine scores from, and no byte of a page is left unused for any head dimension. Bytes behind
// the last whole page wait in drive memory and in the journal.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "common/abi.hpp"
#include "ftl/ftl.hpp"

namespace kvdrive {

class KeyIndex {
 public:
  static constexpr std::uint32_t kSpanTokens = abi::kSpanTokens;

  // The state after `apply`. New pages are in the list already.
  struct Change {
    std::uint32_t spans = 0;
    std::uint32_t exponent = 0;
    std::uint64_t saturated = 0;
    std::vector<std::byte> waiting;
    std::size_t kept_waiting = 0;  // length of the unchanged first part of `waiting`
  };
  // Writes `count` rows of K from token `first` on, as binary16 numbers. Returns false if a group of them is lost.
  using ReadRows = std::function<bool(std::uint32_t first, std::uint32_t count, std::byte* out)>;

  explicit KeyIndex(std::uint32_t head_dim) : head_dim_(head_dim) {}

  std::uint32_t spans() const { return spans_; }
  std::uint32_t tokens() const { return spans_ * kSpanTokens; }
  std::uint32_t exponent() const { return exponent_; }    // 0: nothing was appended yet
  std::uint64_t saturated() const { return saturated_; }  // channels of indexed spans whose range was clamped
  ListId list() const { return list_; }                   // kNoList if there are no pages
  std::uint32_t pages() const { return pages_of(head_dim_, spans_); }
  std::span<const std::byte> waiting() const { return waiting_; }

  static std::uint32_t span_bytes(std::uint32_t head_dim) { return (kSpanTokens / 4 + 2) * head_dim; }
  // The number of whole pages that the index of so many spans fills.
  static std::uint32_t pages_of(std::uint32_t head_dim, std::uint32_t spans) {
    return static_cast<std::uint32_t>(std::uint64_t{spans} * span_bytes(head_dim) / abi::kPageBytes);
  }
  // Drive memory that a head needs for waiting bytes.
  static std::uint64_t memory_bytes(std::uint32_t head_dim) { return abi::kPageBytes + span_bytes(head_dim); }

  // Indexes the spans that are whole with `tokens` tokens. If a group of K is lost, later tokens get no index and are
  // attended to exactly. `owner` names the head; its index is set for each page. If it throws, `revert` drops the new
  // pages.
  void prepare_append(Ftl& ftl, Owner owner, std::uint32_t tokens, const ReadRows& read, Change& change);
  void revert(Ftl& ftl) const;
  // Keeps the spans of the first `tokens` tokens. If the page that must be cut is lost, no span is kept: the index
  // follows from K, so it never makes a command fail that changes K. The next append makes it again.
  Change prepare_truncate(Ftl& ftl, std::uint32_t tokens) const;
  // The state without any span. The exponent stays.
  Change emptied() const;
  void apply(Ftl& ftl, Change&& change);

  KeyIndex fork(Ftl& ftl) const;
  void release(Ftl& ftl);
  void claim(Ftl& ftl) const;

  // The part of the head's record in the journal. `load` throws std::runtime_error if it is damaged.
  void save(RecordWriter& writer, bool everything) const;
  void load(RecordReader& reader, std::uint32_t tokens);
  // Returns the first span whose bytes differ from the index of its rows; spans() if there is none, or if a group of
  // either is lost.
  std::uint32_t first_wrong_span(Ftl& ftl, const ReadRows& read) const;
  void committed() { clean_waiting_ = waiting_.size(); }

 private:
  Change unchanged() const;
  void choose_exponent(std::uint32_t tokens, const ReadRows& read, Change& change) const;

  std::uint32_t head_dim_;
  std::uint32_t spans_ = 0;
  std::uint32_t exponent_ = 0;
  std::uint64_t saturated_ = 0;
  ListId list_ = GroupMap::kNoList;
  std::vector<std::byte> waiting_;
  std::size_t clean_waiting_ = 0;  // length of the part of `waiting_` that has not changed since the last commit
};

}  // namespace kvdrive
