// SPDX-License-Identifier: Apache-2.0
// K or V of one head: token-indexed groups on flash, then staged rows, which wait in drive memory until they fill
// groups. A head may also keep what a policy needs: for SparF an embedding-indexed copy of its K and the sum of its V,
// for policy groups a 2-bit index of its K.
//
// A group holds floor(kPageBytes / row_bytes) consecutive tokens, starting at its first byte. A change is prepared
// first and applied afterwards, so that a command over several heads changes all of them or none.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "formats.hpp"
#include "ftl/ftl.hpp"
#include "kv/embedding.hpp"
#include "kv/key_index.hpp"

namespace kvdrive {

// How the rows of a head are stored.
struct RowLayout {
  std::uint32_t row_bytes = 0;
  RowFormat format = nvme::kBinary16;
  bool sparse = false;   // also keep the copy of K, in binary16, and the sum of V that SparF needs
  bool indexed = false;  // also keep the 2-bit index of K that policy groups needs

  // All but the size in one number: bit 0 is `sparse`, bit 7 is `indexed`.
  std::uint8_t code() const {
    return static_cast<std::uint8_t>(format << 1 | (sparse ? kSparse : 0U) | (indexed ? kIndexed : 0U));
  }
  static RowLayout from(std::uint32_t row_bytes, std::uint32_t code) {
    return {row_bytes, static_cast<RowFormat>((code & ~kIndexed) >> 1), (code & kSparse) != 0, (code & kIndexed) != 0};
  }
  std::uint32_t head_dim() const { return head_dim_of(format, row_bytes); }
  // True if rows of this layout exist.
  bool possible() const;
  bool operator==(const RowLayout&) const = default;

 private:
  static constexpr std::uint32_t kSparse = 1, kIndexed = 0x80;
};

class HeadRows {
 public:
  struct Name {
    std::uint32_t session = 0;
    std::uint16_t layer = 0;
    std::uint8_t head = 0;
    abi::KvKind kind = abi::kKeys;
  };

  // The state after `apply`: the number of groups of each index, and the staged rows. The new groups are in the lists
  // already.
  struct Change {
    std::uint32_t groups = 0;
    std::uint32_t embedding = 0;
    std::vector<std::byte> staged;
    std::size_t kept_staged = 0;  // length of the unchanged first part of `staged`
    std::vector<std::int64_t> sums;
    std::uint32_t tokens = 0;
    std::uint32_t removed = 0;  // groups of the list behind the first one that are removed
    KeyIndex::Change index;     // if the head has an index
  };

  // Precondition: layout.possible().
  HeadRows(const Name& name, const RowLayout& layout);

  const Name& name() const { return name_; }
  const RowLayout& layout() const { return layout_; }
  RowFormat format() const { return layout_.format; }
  std::uint32_t row_bytes() const { return layout_.row_bytes; }
  std::uint32_t head_dim() const { return head_dim_; }
  std::uint32_t half_bytes() const { return head_dim_ * 2; }  // of a row's values as binary16 numbers
  bool sparse() const { return layout_.sparse; }
  // Null unless this is K of a head that keeps one.
  const KeyIndex* index() const { return index_.get(); }
  std::uint32_t tokens() const { return tokens_; }
  std::uint32_t tokens_per_group() const { return abi::kPageBytes / row_bytes(); }
  std::uint32_t tokens_in_groups() const { return groups_ * tokens_per_group(); }
  std::uint32_t groups() const { return groups_; }
  std::uint32_t embedding() const { return embedding_; }
  ListId list() const { return list_; }                      // kNoList if there are no groups
  ListId embedding_list() const { return embedding_list_; }  // kNoList if there are no such groups
  // All three lists of the head.
  std::array<ListId, 3> lists() const { return {list_, embedding_list_, index_ ? index_->list() : GroupMap::kNoList}; }
  std::span<const std::byte> staged() const { return staged_; }
  std::span<const std::int64_t> sums() const {
    return sums_;
  }  // sum of all rows; empty unless this is V of a sparse head
  // The number of whole groups among the staged rows. They move to flash when there are at least `run` (see
  // prepare_append).
  std::uint32_t staged_groups() const { return tokens_ / tokens_per_group() - groups_; }
  // The number of groups in flash, including those that are still staged.
  std::uint64_t owned_groups() const {
    return std::uint64_t{tokens_ / tokens_per_group()} + embedding_ + (index_ ? index_->pages() : 0);
  }
  // The number of groups that an append of `tokens` adds to owned_groups().
  std::uint64_t groups_to_append(std::uint32_t tokens) const;
  // Bytes of staged rows after an append of `tokens`.
  std::uint64_t staged_after(std::uint32_t tokens, std::uint32_t run) const;
  // Drive memory of the head without its staged rows.
  std::uint64_t memory_bytes() const;

  // Stores the groups that `rows` complete if there are at least `run`; otherwise the rows stay staged. If it throws,
  // `revert` drops the stored groups.
  void prepare_append(Ftl& ftl, std::span<const std::byte> rows, std::uint32_t run, Change& change);
  void revert(Ftl& ftl) const;

  // Precondition: `tokens` <= tokens(). Returns false if the group that must be cut is lost.
  [[nodiscard]] bool prepare_truncate(Ftl& ftl, std::uint32_t tokens, Change& change) const;

  // Removes `tokens` tokens behind the first group. Precondition: can_remove(tokens). Returns false if a removed group
  // is lost and its rows are in a sum. Indexes of K are dropped; the next append makes them again.
  [[nodiscard]] bool prepare_remove(Ftl& ftl, std::uint32_t tokens, Change& change) const;
  // True if these are whole groups, and the head has them behind its first group.
  bool can_remove(std::uint32_t tokens) const {
    return tokens % tokens_per_group() == 0 && tokens / tokens_per_group() < tokens_ / tokens_per_group();
  }

  void apply(Ftl& ftl, Change&& change);

  // Makes a head with the same rows under another name. The heads share groups.
  HeadRows fork(Ftl& ftl, const Name& name) const;
  void release(Ftl& ftl);

  // Writes the changes since the last commit, or the whole state if `everything`.
  void save(RecordWriter& writer, bool everything) const;
  void committed();
  // Makes an empty head with the name in the record at `reader`. Throws std::runtime_error if the record is damaged.
  static HeadRows named_by(RecordReader reader);
  void load(RecordReader& reader);
  void claim(Ftl& ftl) const;
  // To be called after the lists were loaded. Drops the groups of a command that was never finished. Throws
  // std::runtime_error if groups are missing.
  void drop_unfinished(Ftl& ftl) const;

  // Keeps the groups that verify. Groups of `found` replace damaged ones and are added behind the last one. `report`
  // gets a sentence if anything changed. `found` holds the groups that name this head as their owner, by index, the
  // newest first.
  void salvage(Ftl& ftl, std::span<const FoundGroup> found, const std::function<void(const std::string&)>& report);
  // Precondition: the head has no list and no rows.
  void take_list(ListId list) { list_ = list; }

  bool dirty() const { return dirty_; }
  void check(Ftl& ftl, const std::function<void(const std::string&)>& report) const;

 private:
  Owner owner(GroupKind kind, std::size_t index) const;
  bool subtract_rows(Ftl& ftl, std::uint32_t first, std::uint32_t end, std::vector<std::int64_t>& sums) const;
  bool read_rows(Ftl& ftl, std::span<const std::byte> added_rows, std::uint32_t first, std::uint32_t count,
                 std::byte* out) const;
  bool read_halves(Ftl& ftl, std::span<const std::byte> added_rows, std::uint32_t first, std::uint32_t count,
                   std::byte* out) const;
  void keep_groups(Ftl& ftl, std::uint32_t groups);
  void drop_indexes(Ftl& ftl);
  void index_spans(Ftl& ftl, std::span<const std::byte> rows, Change& change);

  Name name_;
  RowLayout layout_;
  std::uint32_t head_dim_;
  std::uint32_t tokens_ = 0;
  ListId list_ = GroupMap::kNoList;
  std::uint32_t groups_ = 0;
  ListId embedding_list_ = GroupMap::kNoList;
  std::uint32_t embedding_ = 0;
  std::unique_ptr<KeyIndex> index_;
  std::vector<std::byte> staged_;
  std::vector<std::int64_t> sums_;
  bool dirty_ = true;             // changed since the last commit
  std::size_t clean_staged_ = 0;  // length of the part of `staged_` that has not changed since the last commit
};

// The number of damaged groups. `pages` holds those of groups `first` and on. Pages behind the last group are staged
// rows and do not count.
inline std::uint32_t damaged_groups(const Ftl& ftl, const HeadRows& rows, std::size_t first,
                                    std::span<const std::byte* const> pages) {
  if (first >= rows.groups()) return 0;
  const std::size_t stored = std::min<std::size_t>(pages.size(), rows.groups() - first);
  return ftl.damaged(rows.list(), static_cast<std::uint32_t>(first), pages.first(stored));
}

}  // namespace kvdrive
