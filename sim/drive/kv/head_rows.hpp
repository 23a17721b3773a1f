// SPDX-License-Identifier: Apache-2.0
// K or V of one head: token-indexed groups, then a tail of a few rows in drive memory; of K, on demand, the
// embedding-indexed copy; of V, on demand, the sum of all rows.
//
// A group holds floor(kPageBytes / row_bytes) consecutive tokens from its first byte on. Changes are prepared first and
// applied afterwards, so that a command over several heads happens to all of them or to none.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "ftl/ftl.hpp"
#include "kv/embedding.hpp"

namespace kvdrive {

class HeadRows {
 public:
  struct Name {
    std::uint32_t session = 0;
    std::uint16_t layer = 0;
    std::uint8_t head = 0;
    abi::KvKind kind = abi::kKeys;
  };

  // What applying leaves behind: so many groups of each index, then `tail`. New groups are in the lists already.
  struct Change {
    std::uint32_t groups = 0;
    std::uint32_t embedding = 0;
    std::vector<std::byte> tail;
    std::size_t kept_tail = 0;  // bytes of it that were there
    std::vector<std::int64_t> sums;
    std::uint32_t tokens = 0;
  };

  // `sparse`: keep what SparF needs beside the rows. `row_bytes` is at most kPageBytes.
  HeadRows(const Name& name, std::uint32_t row_bytes, bool sparse);

  const Name& name() const { return name_; }
  std::uint32_t row_bytes() const { return row_bytes_; }
  std::uint32_t head_dim() const { return row_bytes_ / 2; }
  bool sparse() const { return sparse_; }
  std::uint32_t tokens() const { return tokens_; }
  std::uint32_t tokens_per_group() const { return abi::kPageBytes / row_bytes_; }
  std::uint32_t tokens_in_groups() const { return groups_ * tokens_per_group(); }
  std::uint32_t groups() const { return groups_; }
  std::uint32_t embedding() const { return embedding_; }
  ListId list() const { return list_; }                      // of the groups, if there are any
  ListId embedding_list() const { return embedding_list_; }  // of these, if there are any
  std::span<const std::byte> tail() const { return tail_; }
  std::span<const std::int64_t> sums() const { return sums_; }  // of all rows; empty unless sparse V
  // `run`: groups that are stored together at least; fewer wait in the tail.
  std::uint32_t waiting_groups() const { return tokens_ / tokens_per_group() - groups_; }
  // Of flash, with those that wait.
  std::uint64_t owned_groups() const { return std::uint64_t{tokens_ / tokens_per_group()} + embedding_; }
  // What `tokens` more add to that.
  std::uint64_t groups_to_append(std::uint32_t tokens) const;
  // Bytes of the tail after them.
  std::uint64_t tail_after(std::uint32_t tokens, std::uint32_t run) const;
  // Drive memory beside the tail.
  std::uint64_t memory_bytes() const;

  // Stores the groups that `rows` fill. When it throws, `revert` forgets them.
  void prepare_append(Ftl& ftl, std::span<const std::byte> rows, std::uint32_t run, Change& change);
  void revert(Ftl& ftl) const;

  // Precondition: `tokens` <= tokens(). False when a group that must be cut is lost.
  [[nodiscard]] bool prepare_truncate(Ftl& ftl, std::uint32_t tokens, Change& change) const;

  void apply(Ftl& ftl, Change&& change);

  // The same rows under another name: groups are shared.
  HeadRows fork(Ftl& ftl, const Name& name) const;
  void release(Ftl& ftl);

  // Durable form: what changed since the last commit, or everything.
  void save(RecordWriter& writer, bool everything) const;
  void committed();
  // Without rows, as the record at `reader` names it. Throws std::runtime_error when that is damaged.
  static HeadRows named_by(RecordReader reader);
  void load(RecordReader& reader);
  void claim(Ftl& ftl) const;
  // After the lists were loaded: forgets groups of a command that was never finished. Throws std::runtime_error when
  // groups are missing.
  void settle(Ftl& ftl) const;

  bool dirty() const { return dirty_; }
  void check(Ftl& ftl, const std::function<void(const std::string&)>& report) const;

 private:
  Owner owner(GroupKind kind, std::size_t index) const;
  bool read_rows(Ftl& ftl, std::span<const std::byte> added_rows, std::uint32_t first, std::uint32_t count,
                 std::byte* out) const;
  void index_spans(Ftl& ftl, std::span<const std::byte> rows, Change& change);

  Name name_;
  std::uint32_t row_bytes_;
  bool sparse_;
  std::uint32_t tokens_ = 0;
  ListId list_ = GroupMap::kNoList;
  std::uint32_t groups_ = 0;
  ListId embedding_list_ = GroupMap::kNoList;
  std::uint32_t embedding_ = 0;
  std::vector<std::byte> tail_;
  std::vector<std::int64_t> sums_;
  // Unchanged since the last commit:
  bool dirty_ = true;
  std::size_t clean_tail_ = 0;
};

// Of the pages of groups `first` and on, and of the tail behind them: how many groups are not what was stored.
inline std::uint32_t damaged_groups(const Ftl& ftl, const HeadRows& rows, std::size_t first,
                                    std::span<const std::byte* const> pages) {
  if (first >= rows.groups()) return 0;
  const std::size_t stored = std::min<std::size_t>(pages.size(), rows.groups() - first);
  return ftl.damaged(rows.list(), static_cast<std::uint32_t>(first), pages.first(stored));
}

}  // namespace kvdrive
