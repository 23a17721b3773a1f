// SPDX-License-Identifier: Apache-2.0
#include "feed_forward/ffn_unit.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

#include "engine/fast/exact.hpp"
#include "engine/fast/rounding.hpp"

namespace kvdrive {
namespace {

// A block of rows is in memory at a time. A page that two blocks share is read for both.
constexpr std::uint64_t kBlockBytes = 8 << 20;

// y = fl32(sum * 2^-48), as the command's data.
std::vector<std::byte> rounded(const std::vector<FfnSum>& sums) {
  std::vector<std::byte> data(sums.size() * sizeof(std::uint32_t));
  for (std::size_t i = 0; i < sums.size(); ++i) {
    const std::uint32_t y = fast::to_single(fast::to_sticky(sums[i]) * 0x1p-48);
    std::memcpy(data.data() + i * sizeof y, &y, sizeof y);
  }
  return data;
}

}  // namespace

AttentionOutcome FfnUnit::run(const FfnCall& call, Ns arrival) {
  const Value& value = *values_.find(call.key());
  const Ns ready = arrival + device_.firmware_read(UINT32_MAX);
  const std::size_t at_once = std::max<std::size_t>(1, kBlockBytes / call.neuron_bytes());
  std::vector<FfnSum> sums(std::size_t{call.block().tokens} * call.block().hidden);
  FfnBlock block = call.block();
  Ns done = ready;
  if (call.expert()) {
    const ReadResult found = read_down(value, call, ready);
    done = std::max(done, found.done);
    if (!found.whole) return {.status = abi::kUnrecoveredRead, .data = {}, .done = done};
  }
  const Ns down_done = done;
  for (std::size_t first = 0; first < call.block().neurons; first += at_once) {
    const std::size_t count = std::min<std::size_t>(at_once, call.block().neurons - first);
    const ReadResult found =
        call.expert() ? read_expert(value, call, first, count, ready) : read_rows(value, call, first, count, ready);
    done = std::max(done, found.done);
    if (!found.whole) return {.status = abi::kUnrecoveredRead, .data = {}, .done = found.done};
    block.neurons = static_cast<unsigned>(count);
    block.activations = call.block().activations == nullptr ? nullptr : call.block().activations + first;
    block.rows = rows_.data();
    done = std::max(done, clock_.count(block, std::max(down_done, found.done)));
    if (!ftl_.keeps_payload()) continue;
    if (const std::uint32_t status = engine_.ffn(block, sums.data()); status != 0) {
      return {.status = status_of(status), .result = status, .data = {}, .done = done};
    }
  }
  return {.data = rounded(sums), .done = done};
}

ReadResult FfnUnit::read_rows(const Value& value, const FfnCall& call, std::size_t first, std::size_t count, Ns ready) {
  std::vector<Piece> pieces;
  for (std::size_t i = first; i < first + count; ++i) {
    const std::uint64_t at = call.rows_at(i);
    if (!pieces.empty() && pieces.back().at + pieces.back().bytes == at) {
      pieces.back().bytes += call.neuron_bytes();
    } else {
      pieces.push_back({at, call.neuron_bytes()});
    }
  }
  const ReadResult found = read(value, pieces, ready);
  std::swap(rows_, stored_);
  return found;
}

ReadResult FfnUnit::read_expert(const Value& value, const FfnCall& call, std::size_t first, std::size_t count,
                                Ns ready) {
  const std::size_t hidden = call.block().hidden;
  const std::uint64_t row = hidden * sizeof(std::uint16_t), gate = call.offset() + first * row;
  const ReadResult found = read(value, {{gate, count * row}, {gate + call.block().neurons * row, count * row}}, ready);
  rows_.resize(3 * count * hidden);
  for (std::size_t i = 0; i < count; ++i) {
    std::uint16_t* const to = rows_.data() + 3 * i * hidden;
    std::copy_n(stored_.data() + i * hidden, hidden, to);
    std::copy_n(stored_.data() + (count + i) * hidden, hidden, to + hidden);
    std::copy_n(down_.data() + (first + i) * hidden, hidden, to + 2 * hidden);
  }
  return found;
}

// In the value, down has a row for each output. A block of its rows at a time is turned into columns.
ReadResult FfnUnit::read_down(const Value& value, const FfnCall& call, Ns ready) {
  const std::size_t neurons = call.block().neurons, hidden = call.block().hidden;
  const std::uint64_t row = neurons * sizeof(std::uint16_t);
  const std::size_t at_once = std::max<std::size_t>(1, kBlockBytes / row);
  down_.resize(neurons * hidden);
  ReadResult all{.done = ready};
  for (std::size_t first = 0; first < hidden; first += at_once) {
    const std::size_t count = std::min(at_once, hidden - first);
    const ReadResult found = read(value, {{call.down_at() + first * row, count * row}}, ready);
    all.done = std::max(all.done, found.done);
    all.whole = found.whole;
    if (!all.whole) break;
    for (std::size_t i = 0; i < neurons; ++i) {
      std::uint16_t* const to = down_.data() + i * hidden + first;
      for (std::size_t j = 0; j < count; ++j) to[j] = stored_[j * neurons + i];
    }
  }
  return all;
}

// Each page is read once, also if it holds the end of one piece and the beginning of the next one.
ReadResult FfnUnit::read(const Value& value, const std::vector<Piece>& pieces, Ns ready) {
  std::vector<std::uint32_t> wanted;
  std::uint64_t bytes = 0;
  for (const Piece& piece : pieces) {
    auto page = static_cast<std::uint32_t>(piece.at / abi::kPageBytes);
    const auto end = static_cast<std::uint32_t>((piece.at + piece.bytes + abi::kPageBytes - 1) / abi::kPageBytes);
    if (!wanted.empty()) page = std::max(page, wanted.back() + 1);
    for (; page < end; ++page) wanted.push_back(page);
    bytes += piece.bytes;
  }
  pages_.resize(wanted.size() * abi::kPageBytes);
  std::vector<GroupRead> reads;
  reads.reserve(wanted.size());
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    reads.push_back({value.list, wanted[i], pages_.data() + i * abi::kPageBytes});
  }
  const ReadResult found = ftl_.read(reads, ready, Sink::kComputer);
  stored_.resize(bytes / sizeof(std::uint16_t));
  auto* to = reinterpret_cast<std::byte*>(stored_.data());
  std::size_t place = 0;  // of the page that holds the byte `at`
  for (const Piece& piece : pieces) {
    for (std::uint64_t at = piece.at, end = piece.at + piece.bytes; at < end;) {
      while (wanted[place] != at / abi::kPageBytes) ++place;
      const std::uint64_t within = at % abi::kPageBytes;
      const std::uint64_t count = std::min(end - at, abi::kPageBytes - within);
      std::memcpy(to, pages_.data() + place * abi::kPageBytes + within, count);
      to += count;
      at += count;
    }
  }
  return found;
}

}  // namespace kvdrive
