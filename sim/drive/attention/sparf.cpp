// SPDX-License-Identifier: Apache-2.0
// SparF as three jobs with page reads between them: choose rows of K; score every token from these and choose tokens;
// attend to the chosen tokens and blend with the mean of all V (docs/jobs.md).
#include <algorithm>
#include <cstring>

#include "attention/attention_unit.hpp"
#include "kv/halves.hpp"
#include "kv/row_fetch.hpp"

namespace kvdrive {

AttentionUnit::Outcome AttentionUnit::run_sparf(const Head& head) {
  if (const Outcome done = choose_rows(head); done.engine_status != 0) return done;
  if (!place_columns(head, flags_at(memory_->job.rows, head.k.head_dim()))) return {abi::kUnrecoveredRead};
  if (const Outcome done = choose_tokens(head); done.engine_status != 0) return done;
  if (!place_chosen(head, flags_at(memory_->job.out, head.command.tokens)) || !place_mean(head)) {
    return {abi::kUnrecoveredRead};
  }
  return attend_to_chosen(head);
}

AttentionUnit::Outcome AttentionUnit::choose_rows(const Head& head) {
  memory_->clear();
  memory_->job.q = memory_->place(head.q);
  memory_->job.rows = memory_->place(abi::kBeatBytes);
  memory_->job.r = head.command.r;
  start_job(head, abi::kSparfRows);
  return run_job();
}

// Precondition: the columns are placed.
AttentionUnit::Outcome AttentionUnit::choose_tokens(const Head& head) {
  if (!head.valid.empty()) memory_->job.valid = memory_->place(head.valid);
  memory_->job.k_top = head.command.k_top;
  memory_->job.local = head.command.local;
  place_tail(head, false);
  start_job(head, abi::kSparfTokens);
  return run_job();
}

// Precondition: K and V of the chosen tokens and the mean are placed.
AttentionUnit::Outcome AttentionUnit::attend_to_chosen(const Head& head) {
  const std::uint32_t selected = memory_->record().selected;
  memory_->job.valid = 0;
  place_tail(head, true);
  start_job(head, abi::kSparfAttend);
  memory_->job.tokens = selected;
  return run_job();
}

std::vector<bool> AttentionUnit::flags_at(std::uint64_t address, std::uint32_t count) {
  std::vector<bool> flags(count);
  const std::byte* bitmap = memory_->at(address);
  for (std::uint32_t i = 0; i < count; ++i) flags[i] = (std::to_integer<unsigned>(bitmap[i / 8]) >> i % 8 & 1) != 0;
  return flags;
}

// The chosen rows of K as SPARF_TOKENS takes them: [ceil(tokens / 32)][r][32].
bool AttentionUnit::place_columns(const Head& head, const std::vector<bool>& rows) {
  const std::uint32_t tokens = head.command.tokens, r = head.command.r;
  const std::uint64_t bytes = (std::uint64_t{tokens} + abi::kLanes - 1) / abi::kLanes * abi::kLanes * r * 2;
  memory_->job.k = memory_->place(bytes);
  std::byte* const columns = memory_->at(memory_->job.k);
  std::memset(columns, 0, bytes);
  const auto column = [&](std::uint32_t token, std::uint32_t row) {
    return columns + ((std::uint64_t{token} / abi::kLanes * r + row) * abi::kLanes + token % abi::kLanes) * 2;
  };
  EmbeddingSpan span = EmbeddingSpan::first(head.k.head_dim());
  std::vector<EmbeddingSpan> spans;
  std::vector<RowFilter::Request> indexed;
  for (; span.first_page + span.pages() <= head.k.embedding() && span.first_token < tokens; span = span.next()) {
    if (!head.any_valid(span.first_token, std::min(span.end(), tokens))) continue;  // their scores do not count
    spans.push_back(span);
    indexed.push_back(RowFilter::dimensions(head.k, span, rows));
  }
  const auto columns_read = filter_.run(indexed, ready_);
  if (!columns_read) return false;
  data_done_ = std::max(data_done_, columns_read->done);
  for (std::size_t i = 0; i < spans.size(); ++i) {
    const std::uint8_t* from = columns_read->of[i].data();
    for (std::uint32_t page = 0, row = 0; page < spans[i].pages(); ++page) {
      const auto first = rows.begin() + spans[i].first_row(page);
      const auto kept = static_cast<std::uint32_t>(std::count(first, first + spans[i].rows_per_page, true));
      const std::uint32_t token = spans[i].first_token_of(page);
      const std::uint32_t count = std::min(token + spans[i].block_tokens(), std::max(tokens, token)) - token;
      for (std::uint32_t k = 0; k < kept; ++k, from += spans[i].row_bytes()) {
        for (std::uint32_t t = 0; t < count; t += abi::kLanes) {
          const std::size_t lanes = std::min<std::size_t>(abi::kLanes, count - t);
          std::memcpy(column(token + t, row + k), from + t * 2, lanes * 2);
        }
      }
      if ((page + 1) % spans[i].blocks == 0) row += kept;
    }
  }
  if (span.first_token >= tokens) return true;
  const std::uint32_t count = tokens - span.first_token;  // not indexed
  std::vector<std::byte> whole(std::size_t{count} * head.k.row_bytes());
  RowFetch fetch;
  fetch_rows(head, head.k, span.first_token, whole.data(), fetch);
  const auto read = fetch.run(ftl_, ready_, Sink::kComputer);
  if (!read.whole) return false;
  data_done_ = std::max(data_done_, read.done);
  tail_bytes_read_ += fetch.tail_bytes();
  for (std::uint32_t dimension = 0, row = 0; dimension < rows.size(); ++dimension) {
    if (!rows[dimension]) continue;
    for (std::uint32_t t = 0; t < count; ++t) {
      std::memcpy(column(span.first_token + t, row), whole.data() + std::size_t{t} * head.k.row_bytes() + dimension * 2,
                  2);
    }
    ++row;
  }
  return true;
}

bool AttentionUnit::place_chosen(const Head& head, const std::vector<bool>& chosen) {
  const RowFilter::Request requests[] = {RowFilter::tokens(head.k, chosen), RowFilter::tokens(head.v, chosen)};
  const auto rows = filter_.run(requests, data_done_);
  if (!rows) return false;
  memory_->job.k = memory_->place(std::as_bytes(std::span(rows->of[0])));
  memory_->job.v = memory_->place(std::as_bytes(std::span(rows->of[1])));
  data_done_ = std::max(data_done_, rows->done);
  return true;
}

// Sum and number of the V rows that count. Starts from the stored sum of all rows when fewer rows are missing from it
// than are in it.
bool AttentionUnit::place_mean(const Head& head) {
  const std::uint32_t tokens = head.command.tokens;
  if (head.valid.empty() && tokens == head.v.tokens() && !head.v.sums().empty()) {
    filter_.count({.pages_left = head.v.groups()});
    std::vector<std::int64_t> sums(head.v.sums().begin(), head.v.sums().end());
    add_rows(head.tail_v, sums, 1);
    memory_->job.v_sum = memory_->place(std::as_bytes(std::span(sums)));
    memory_->job.count = tokens + head.command.tail_tokens;
    return true;
  }
  std::vector<bool> counts(head.v.tokens());
  for (std::uint32_t token = 0; token < tokens; ++token) counts[token] = head.is_valid(token);
  const auto in = static_cast<std::uint32_t>(std::count(counts.begin(), counts.end(), true));
  const bool subtract = !head.v.sums().empty() && counts.size() - in < in;
  if (subtract) counts.flip();
  const RowFilter::Request request = RowFilter::tokens(head.v, counts);
  const auto rows = filter_.run(std::span(&request, 1), ready_);
  if (!rows) return false;
  data_done_ = std::max(data_done_, rows->done);
  std::vector<std::int64_t> sums(head.v.head_dim());
  if (subtract) std::ranges::copy(head.v.sums(), sums.begin());
  add_rows(std::as_bytes(std::span(rows->of[0])), sums, subtract ? -1 : 1);
  add_rows(head.tail_v, sums, 1);
  memory_->job.v_sum = memory_->place(std::as_bytes(std::span(sums)));
  memory_->job.count = in + head.command.tail_tokens;
  return true;
}

}  // namespace kvdrive
