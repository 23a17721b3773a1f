// SPDX-License-Identifier: Apache-2.0
// Sessions in the journal, and their comparison with the flash.
#include <stdexcept>

#include "kv/kv_store.hpp"

namespace kvdrive {
namespace {

struct SavedSession {
  std::uint32_t session, next_sequence;
};

}  // namespace

void KvStore::save(RecordWriter& writer, bool everything) const {
  if (!everything) {
    for (const std::uint32_t session : ended_) {
      writer.put(RecordType::kSessionEnd);
      writer.put(session);
    }
  }
  for (const auto& [number, session] : sessions_) {
    if (!everything && !dirty_.contains(number)) continue;
    writer.put(RecordType::kSession);
    writer.put(SavedSession{number, session.next_sequence});
    for (const auto& [key, rows] : session.heads) {
      if (everything || rows.dirty()) rows.save(writer, everything);
    }
  }
}

void KvStore::committed() {
  for (const std::uint32_t number : dirty_) {
    for (auto& [key, rows] : sessions_.at(number).heads) rows.committed();
  }
  dirty_.clear();
  ended_.clear();
}

void KvStore::load_session(RecordReader& reader) {
  const auto saved = reader.get<SavedSession>();
  sessions_[saved.session].next_sequence = saved.next_sequence;
}

void KvStore::load_session_end(RecordReader& reader) { sessions_.erase(reader.get<std::uint32_t>()); }

void KvStore::load_rows(RecordReader& reader) {
  HeadRows named = HeadRows::named_by(reader);
  const HeadRows::Name& name = named.name();
  const auto session = sessions_.find(name.session);
  if (session == sessions_.end()) throw std::runtime_error("a record adds rows to a session that does not exist");
  const std::uint32_t key = std::uint32_t{name.layer} << 16 | std::uint32_t{name.head} << 8 | name.kind;
  session->second.heads.try_emplace(key, std::move(named)).first->second.load(reader);
}

void KvStore::claim_lists() {
  for (const auto& [number, session] : sessions_) {
    for (const auto& [key, rows] : session.heads) rows.claim(ftl_);
  }
}

void KvStore::finish_loading() {
  for (auto& [number, session] : sessions_) {
    for (const auto& [key, rows] : session.heads) {
      rows.drop_unfinished(ftl_);
      count(session, rows, 1);
      ftl_.charge(static_cast<std::int64_t>(rows.memory_bytes()));
    }
  }
}

void KvStore::check(const std::function<void(const std::string&)>& report) const {
  for (const auto& [number, session] : sessions_) {
    for (const auto& [key, rows] : session.heads) rows.check(ftl_, report);
  }
}

}  // namespace kvdrive
