// SPDX-License-Identifier: Apache-2.0
// A head's rows in the journal: what they were cut to, then what was added.
#include <stdexcept>
#include <string>

#include "kv/head_rows.hpp"

namespace kvdrive {
namespace {

struct SavedRows {
  std::uint32_t session;
  std::uint16_t layer;
  std::uint8_t head, kind;
  std::uint32_t row_bytes, sparse, tokens;
  std::uint32_t kept, added, kept_embedding, added_embedding, kept_tail, added_tail;
};

bool sane(const SavedRows& s) {
  const bool shape = s.kind <= abi::kValues && s.row_bytes > 0 && s.row_bytes <= abi::kMaxHeadDim * 2 &&
                     s.row_bytes % (abi::kHeadDimStep * 2) == 0 && s.sparse <= 1 && s.tokens <= abi::kMaxTokens;
  if (!shape) return false;
  const std::uint64_t groups = std::uint64_t{s.kept} + s.added;
  const std::uint64_t rows = groups * (abi::kPageBytes / s.row_bytes);
  const std::uint64_t tail = std::uint64_t{s.kept_tail} + s.added_tail;
  return s.tokens >= rows && (s.tokens - rows) * s.row_bytes == tail && tail < abi::kPageBytes &&
         std::uint64_t{s.kept_embedding} + s.added_embedding <= embedding_pages(s.row_bytes / 2, s.tokens);
}

// The part of `values` behind the first `kept`.
template <typename T>
std::span<const T> behind(const std::vector<T>& values, std::size_t kept) {
  return std::span(values).subspan(kept);
}

template <typename T>
void replace(std::vector<T>& values, std::size_t kept, RecordReader& reader, std::size_t added) {
  if (kept > values.size()) throw std::runtime_error("a record keeps more of a head than there is");
  const auto more = reader.get_all<T>(added);
  values.resize(kept);
  values.insert(values.end(), more.begin(), more.end());
}

}  // namespace

void HeadRows::save(RecordWriter& writer, bool everything) const {
  const std::size_t kept = everything ? 0 : clean_groups_;
  const std::size_t kept_embedding = everything ? 0 : clean_embedding_;
  const std::size_t kept_tail = everything ? 0 : clean_tail_;
  const auto size = [](std::size_t count) { return static_cast<std::uint32_t>(count); };
  writer.put(RecordType::kRows);
  writer.put(SavedRows{name_.session, name_.layer, name_.head, static_cast<std::uint8_t>(name_.kind), row_bytes_,
                       sparse_, tokens_, size(kept), size(groups_.size() - kept), size(kept_embedding),
                       size(embedding_.size() - kept_embedding), size(kept_tail), size(tail_.size() - kept_tail)});
  writer.put_all(behind(groups_, kept));
  writer.put_all(behind(embedding_, kept_embedding));
  writer.put_all(behind(tail_, kept_tail));
  writer.put_all(std::span(sums_));
  writer.end_record();
}

void HeadRows::committed() {
  dirty_ = false;
  clean_groups_ = groups_.size();
  clean_embedding_ = embedding_.size();
  clean_tail_ = tail_.size();
}

// `reader` stays at the record: `load` reads it.
HeadRows HeadRows::named_by(RecordReader reader) {
  const auto saved = reader.get<SavedRows>();
  if (!sane(saved)) throw std::runtime_error("a record of a head's rows is damaged");
  const Name name{saved.session, saved.layer, saved.head, static_cast<abi::KvKind>(saved.kind)};
  return {name, saved.row_bytes, saved.sparse != 0};
}

void HeadRows::load(RecordReader& reader) {
  const auto saved = reader.get<SavedRows>();
  if (saved.row_bytes != row_bytes_) throw std::runtime_error("a record changes the size of a head's rows");
  replace(groups_, saved.kept, reader, saved.added);
  replace(embedding_, saved.kept_embedding, reader, saved.added_embedding);
  replace(tail_, saved.kept_tail, reader, saved.added_tail);
  sums_ = reader.get_all<std::int64_t>(sums_.size());
  tokens_ = saved.tokens;
  committed();
}

void HeadRows::check(Ftl& ftl, const std::function<void(const std::string&)>& report) const {
  const std::string name = "session " + std::to_string(name_.session) + ", layer " + std::to_string(name_.layer) +
                           ", head " + std::to_string(name_.head) + (name_.kind == abi::kKeys ? ", K" : ", V");
  const auto compare = [&](std::span<const GroupId> groups, GroupKind kind, const char* what) {
    for (std::size_t i = 0; i < groups.size(); ++i) {
      const std::string place = name + ", " + what + " group " + std::to_string(i);
      Owner found;
      if (groups[i] >= ftl.groups() || ftl.references(groups[i]) == 0) {
        report(place + ": the group table does not hold it");
      } else if (ftl.owner_of(groups[i], found)) {
        Owner expected = owner(kind, i);
        expected.session = found.session;  // a shared group names the session that wrote it
        if (found != expected) report(place + ": its page belongs to another place");
      }
    }
  };
  compare(groups_, name_.kind == abi::kKeys ? GroupKind::kKeys : GroupKind::kValues, "token-indexed");
  compare(embedding_, GroupKind::kKeyRows, "embedding-indexed");
}

}  // namespace kvdrive
