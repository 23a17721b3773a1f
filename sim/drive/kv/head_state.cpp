// SPDX-License-Identifier: Apache-2.0
// A head in the journal. Each record holds the number of staged bytes that stay from the last record, then the added
// bytes.
#include <stdexcept>
#include <string>

#include "kv/head_rows.hpp"

namespace kvdrive {
namespace {

struct SavedRows {
  std::uint32_t session;
  std::uint16_t layer;
  std::uint8_t head, kind;
  std::uint32_t row_bytes, layout, tokens;  // layout: RowLayout::code
  ListId list, embedding_list;
  std::uint32_t groups, embedding, kept_staged, added_staged;
};

bool sane(const SavedRows& s) {
  const RowLayout layout = RowLayout::from(s.row_bytes, s.layout);
  if (s.kind > abi::kValues || !layout.possible() || s.tokens > abi::kMaxTokens) return false;
  const std::uint64_t rows = std::uint64_t{s.groups} * (abi::kPageBytes / s.row_bytes);
  const std::uint64_t staged = std::uint64_t{s.kept_staged} + s.added_staged;
  return s.tokens >= rows && (s.tokens - rows) * s.row_bytes == staged &&
         s.embedding <= embedding_pages(layout.head_dim(), s.tokens);
}

}  // namespace

void HeadRows::save(RecordWriter& writer, bool everything) const {
  const std::size_t kept = everything ? 0 : clean_staged_;
  writer.put(RecordType::kRows);
  writer.put(SavedRows{name_.session, name_.layer, name_.head, static_cast<std::uint8_t>(name_.kind), row_bytes(),
                       layout_.code(), tokens_, list_, embedding_list_, groups_, embedding_,
                       static_cast<std::uint32_t>(kept), static_cast<std::uint32_t>(staged_.size() - kept)});
  writer.put_all(std::span(staged_).subspan(kept));
  writer.put_all(std::span(sums_));
  if (index_) index_->save(writer, everything);
  writer.end_record();
}

void HeadRows::committed() {
  dirty_ = false;
  clean_staged_ = staged_.size();
  if (index_) index_->committed();
}

// `reader` is passed by value, so that `load` can still read the record.
HeadRows HeadRows::named_by(RecordReader reader) {
  const auto saved = reader.get<SavedRows>();
  if (!sane(saved)) throw std::runtime_error("a record of a head's rows is damaged");
  const Name name{saved.session, saved.layer, saved.head, static_cast<abi::KvKind>(saved.kind)};
  return {name, RowLayout::from(saved.row_bytes, saved.layout)};
}

void HeadRows::load(RecordReader& reader) {
  const auto saved = reader.get<SavedRows>();
  if (RowLayout::from(saved.row_bytes, saved.layout) != layout_) {
    throw std::runtime_error("a record changes how a head's rows are stored");
  }
  if (saved.kept_staged > staged_.size()) throw std::runtime_error("a record keeps more of a head than there is");
  const auto added = reader.take(saved.added_staged);
  staged_.resize(saved.kept_staged);
  staged_.insert(staged_.end(), added.begin(), added.end());
  list_ = saved.list;
  groups_ = saved.groups;
  embedding_list_ = saved.embedding_list;
  embedding_ = saved.embedding;
  sums_ = reader.get_all<std::int64_t>(sums_.size());
  tokens_ = saved.tokens;
  if (index_) index_->load(reader, tokens_);
  committed();
}

void HeadRows::check(Ftl& ftl, const std::function<void(const std::string&)>& report) const {
  const std::string name = "session " + std::to_string(name_.session) + ", layer " + std::to_string(name_.layer) +
                           ", head " + std::to_string(name_.head) + (name_.kind == abi::kKeys ? ", K" : ", V");
  const auto compare = [&](ListId list, std::uint32_t groups, GroupKind kind, const char* what) {
    for (std::uint32_t i = 0; i < groups; ++i) {
      const std::string place = name + ", " + what + " group " + std::to_string(i);
      Owner found;
      if (!ftl.holds(list, i)) {
        report(place + ": the map does not hold it");
      } else if (ftl.owner_of(list, i, found)) {
        Owner expected = owner(kind, ftl.index(list, i));
        expected.session = found.session;    // a shared group names the session that wrote it
        expected.removals = found.removals;  // the state of the list when the group was written
        if (found != expected) report(place + ": its page belongs to another place");
      }
    }
  };
  compare(list_, groups_, name_.kind == abi::kKeys ? GroupKind::kKeys : GroupKind::kValues, "token-indexed");
  compare(embedding_list_, embedding_, GroupKind::kKeyRows, "embedding-indexed");
  if (!index_) return;
  compare(index_->list(), index_->pages(), GroupKind::kKeyIndex, "2-bit index");
  if (!ftl.keeps_payload()) return;
  const auto read = [&](std::uint32_t first, std::uint32_t count, std::byte* out) {
    return read_halves(ftl, {}, first, count, out);
  };
  if (const std::uint32_t span = index_->first_wrong_span(ftl, read); span < index_->spans()) {
    report(name + ", 2-bit index: span " + std::to_string(span) + " is not the index of its rows");
  }
}

}  // namespace kvdrive
