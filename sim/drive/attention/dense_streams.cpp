// SPDX-License-Identifier: Apache-2.0
#include "attention/dense_streams.hpp"

#include <utility>

namespace kvdrive {

DenseStreams::Rows DenseStreams::rows_of(const abi::AttnSubmit& query) {
  return {.session = query.session, .layer = query.layer, .head = query.head, .heads = query.heads};
}

std::unique_ptr<GroupStream> DenseStreams::open(const abi::AttnSubmit& query, const RowPlace& place,
                                                std::uint32_t first_token, std::vector<GroupStream::Group> groups) {
  const Rows rows = rows_of(query);
  if (place.first) {
    if (held_early_ == 0) held_.reset();  // a command reads the disk, also if the one before read the same
    note(rows);
  }
  if (known_.size() >= kMostKnown && !known_.contains(rows)) known_.clear();
  known_[rows].first_token = first_token;
  if (held_ == nullptr || changes_ != ftl_.read_path().changes() || held_->groups() != groups) {
    drop_held();
    changes_ = ftl_.read_path().changes();
    return stream_over(std::move(groups));
  }
  early_ += held_early_;
  known_[rows].unused = 0;
  held_early_ = 0;
  return std::move(held_);
}

void DenseStreams::close(std::unique_ptr<GroupStream> stream, const abi::AttnSubmit& query, const RowPlace& place) {
  const bool unchanged = changes_ == ftl_.read_path().changes();
  if (place.next != nullptr && rows_of(*place.next) == rows_of(query)) {
    if (unchanged && stream->rewind()) held_ = std::move(stream);
    return;
  }
  stream.reset();  // its buffers serve the next one
  if (place.next != nullptr) return begin_early(rows_of(*place.next));
  if (!command_) return;
  const auto known = known_.find(*command_);
  if (known == known_.end()) return;
  const std::optional<Rows>& next = known->second.next;
  if (next && known->second.twice && *next != *command_) begin_early(*next);
}

// Learns what the command before is followed by.
void DenseStreams::note(const Rows& rows) {
  if (command_) {
    if (const auto before = known_.find(*command_); before != known_.end()) {
      before->second.twice = before->second.next == rows;
      before->second.next = rows;
    }
  }
  command_ = rows;
}

std::vector<GroupStream::Group> DenseStreams::groups_of(const Rows& rows, std::uint32_t first_token) const {
  std::vector<GroupStream::Group> groups;
  for (std::uint32_t head = rows.head; head < rows.head + std::uint32_t{rows.heads}; ++head) {
    for (const auto kind : {abi::kKeys, abi::kValues}) {
      const HeadRows* const found = store_.find(rows.session, rows.layer, head, kind);
      if (found == nullptr) return {};
      for (std::uint32_t i = first_token / found->tokens_per_group(); i < found->groups(); ++i) {
        groups.push_back({found->list(), i});
      }
    }
  }
  return groups;
}

std::unique_ptr<GroupStream> DenseStreams::stream_over(std::vector<GroupStream::Group> groups) const {
  return std::make_unique<GroupStream>(ftl_.read_path(), *ftl_.direct(), std::move(groups), DirectReads::kBuffers,
                                       Sink::kComputer, true);
}

void DenseStreams::begin_early(const Rows& rows) {
  if (ftl_.direct() == nullptr || !ftl_.direct()->asynchronous()) return;
  const auto known = known_.find(rows);
  if (known == known_.end() || known->second.unused == kMostUnused) return;
  std::vector<GroupStream::Group> groups = groups_of(rows, known->second.first_token);
  if (groups.empty()) return;
  held_ = stream_over(std::move(groups));
  held_early_ = held_->begin_early(kEarlyPieces);
  changes_ = ftl_.read_path().changes();
  expected_ = rows;
  if (held_early_ == 0) held_.reset();
}

void DenseStreams::drop_held() {
  if (held_ != nullptr && held_early_ > 0) {
    unused_ += held_early_;
    if (const auto known = known_.find(expected_); known != known_.end()) ++known->second.unused;
  }
  held_.reset();
  held_early_ = 0;
}

}  // namespace kvdrive
