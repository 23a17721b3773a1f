// SPDX-License-Identifier: Apache-2.0
#include "kv_cache.hpp"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <numeric>
#include <stdexcept>
#include <string_view>
#include <utility>

#include "engine/shapes.hpp"

namespace kvdrive::llama {
namespace {

constexpr std::uint32_t kLeastDead = 4096;     // dead tokens that are not worth a rewrite
constexpr std::uint32_t kRowsTogether = 1024;  // rows that are moved at once

const ggml_tensor* owner_of(const ggml_tensor* view) { return view->view_src == nullptr ? view : view->view_src; }

// The layer's number at the end of names like cache_k_l7; K and V are told by the letter before it.
LayerRows rows_of(const ggml_tensor* tensor) {
  const std::string_view name = tensor->name;
  const std::size_t at = name.rfind("_l");
  LayerRows rows;
  const char letter = at == std::string_view::npos || at == 0 ? '\0' : name[at - 1];
  if (letter == 'k' || letter == 'v') {
    const char* digits = name.data() + at + 2;
    const auto end = std::from_chars(digits, name.data() + name.size(), rows.layer);
    rows.kind = letter == 'k' ? abi::kKeys : abi::kValues;
    if (end.ec == std::errc() && end.ptr == name.data() + name.size()) return rows;
  }
  throw std::runtime_error("the drive keeps K and V, and this model has another kind of state (" + std::string(name) +
                           "): run it without kvdrive, or with --no-kv-offload");
}

// [tokens][heads][dim] <-> [heads][tokens][dim]
void by_head(const std::uint16_t* rows, std::uint32_t tokens, const LayerRows& shape, std::uint16_t* out) {
  for (std::uint32_t head = 0; head < shape.heads; ++head) {
    for (std::uint32_t token = 0; token < tokens; ++token, out += shape.dim) {
      std::memcpy(out, rows + std::size_t{token} * shape.row() + std::size_t{head} * shape.dim, 2 * shape.dim);
    }
  }
}
void by_token(const std::uint16_t* rows, std::uint32_t tokens, const LayerRows& shape, std::uint16_t* out) {
  for (std::uint32_t head = 0; head < shape.heads; ++head) {
    for (std::uint32_t token = 0; token < tokens; ++token, rows += shape.dim) {
      std::memcpy(out + std::size_t{token} * shape.row() + std::size_t{head} * shape.dim, rows, 2 * shape.dim);
    }
  }
}

}  // namespace

KvCache::~KvCache() {
  try {
    for (const Stream& stream : streams_) drive_.remove(stream.session);
  } catch (const std::exception&) {
    // The drive's list names the sessions, so that the next process removes them.
  }
}

void KvCache::add(const ggml_tensor* tensor) {
  const LayerRows rows = rows_of(tensor);
  if (tensor->type != GGML_TYPE_F16) {
    throw std::runtime_error(std::string("the drive stores K and V in a format of its own (KVDRIVE_FORMAT), not in ") +
                             ggml().ggml_type_name(tensor->type) + ": leave -ctk and -ctv out");
  }
  const auto cells = static_cast<std::uint32_t>(tensor->ne[1]), streams = static_cast<std::uint32_t>(tensor->ne[2]);
  if (tensor->ne[1] > abi::kMaxTokens) {
    throw std::runtime_error("the drive takes at most " + std::to_string(abi::kMaxTokens) +
                             " tokens of a sequence: ask llama.cpp for a shorter context (-c)");
  }
  if (!tensors_.empty() && (cells != cells_ || streams != streams_.size())) {
    throw std::runtime_error(
        "the layers of this model have caches of different lengths, which the drive does not keep");
  }
  if (tensors_.empty()) {
    cells_ = cells;
    for (std::uint32_t stream = 0; stream < streams; ++stream) {
      streams_.emplace_back(cells);
      streams_.back().session = drive_.open();
    }
  }
  Tensor& added = tensors_[static_cast<const char*>(tensor->data)];
  added.rows = rows;
  added.data = static_cast<const char*>(tensor->data);
  added.row = static_cast<std::uint32_t>(tensor->ne[0]);
  added.ends.assign(streams, 0);
}

KvCache::Tensor* KvCache::find(const ggml_tensor* view) {
  const auto found = tensors_.find(static_cast<const char*>(owner_of(view)->data));
  return found == tensors_.end() ? nullptr : &found->second;
}

void KvCache::set_shape(Tensor& tensor, std::uint32_t heads, std::uint32_t dim) {
  if (heads * dim != tensor.row || heads > 255 || !serves_head_dim(dim)) {
    throw std::runtime_error("the drive keeps heads of 8 to " + std::to_string(abi::kMaxHeadDim) +
                             " numbers, a multiple of 8; this model has " + std::to_string(heads) + " KV heads of " +
                             std::to_string(dim) + " in a row of " + std::to_string(tensor.row));
  }
  if (tensor.rows.heads != 0 && (tensor.rows.heads != heads || tensor.rows.dim != dim)) {
    throw std::runtime_error("layer " + std::to_string(tensor.rows.layer) +
                             " reads its rows as heads of two sizes, which the drive does not keep");
  }
  tensor.rows.heads = heads;
  tensor.rows.dim = dim;
}

void KvCache::refuse(const std::string& sentence) {
  if (refusal_.empty()) refusal_ = sentence;
}

bool KvCache::follows(const Tensor& tensor, std::uint32_t stream, std::span<const std::uint32_t> cells,
                      Writer writer) const {
  const CellLog& log = streams_[stream].log;
  const std::uint32_t end = tensor.ends[stream];
  if (writer == Writer::kGraph) return end <= log.batch() && log.batch_is(cells);
  if (log.tokens() - end < cells.size()) return false;
  for (std::uint32_t i = 0; i < cells.size(); ++i) {
    if (log.cell_of(end + i) != static_cast<std::int32_t>(cells[i])) return false;
  }
  return true;
}

void KvCache::write(Tensor& tensor, std::uint32_t stream, std::span<const std::uint32_t> cells,
                    const std::uint16_t* rows, Writer writer) {
  if (tensor.rows.heads == 0) {
    throw std::runtime_error("llama.cpp wrote rows of a layer whose attention it has not shown");
  }
  if (!copying_.empty()) throw std::runtime_error("llama.cpp copied a sequence without some of its layers");
  if (taking()) throw std::runtime_error("llama.cpp restored a sequence without some of its layers");
  Stream& target = streams_[stream];
  if (writer == Writer::kHost && !target.host_writes) complete_all(stream, 0);
  target.host_writes = writer == Writer::kHost;
  if (!follows(tensor, stream, cells, writer)) {
    if (writer == Writer::kHost && tensor.ends[stream] != target.log.tokens()) {
      throw std::runtime_error("llama.cpp restored other cells in one layer than in another");
    }
    begin_batch(stream, cells);
  }
  try {
    if (writer == Writer::kGraph) fill(tensor, stream, target.log.batch());
    append(tensor, stream, static_cast<std::uint32_t>(cells.size()), rows);
  } catch (...) {
    drop_batch(stream);
    throw;
  }
}

// llama.cpp frees the cells of a batch that failed. A full drive gets their room back.
void KvCache::drop_batch(std::uint32_t stream) {
  try {
    trim(stream, streams_[stream].log.batch());
  } catch (const std::exception&) {
    // They stay dead tokens, which the next batch of these cells overwrites.
  }
}

void KvCache::begin_batch(std::uint32_t stream, std::span<const std::uint32_t> cells) {
  CellLog& log = streams_[stream].log;
  ++epoch_;
  const std::uint32_t rewritten = log.rewritten_end(cells);
  if (rewritten > 0) trim(stream, log.tokens() - rewritten);
  const std::uint32_t live = log.tokens() - log.dead();
  if (log.dead() > std::max(kLeastDead, live) || log.tokens() + cells.size() > abi::kMaxTokens) rewrite(stream, {});
  if (log.tokens() + cells.size() > abi::kMaxTokens) {
    throw std::runtime_error("the drive takes at most " + std::to_string(abi::kMaxTokens) +
                             " tokens of a sequence, and this one has no more room");
  }
  log.add(cells);
}

void KvCache::trim(std::uint32_t stream, std::uint32_t tokens) {
  Stream& target = streams_[stream];
  if (tokens == 0) {
    drive_.remove(target.session);
    target.session = drive_.open();
  } else {
    drive_.trim(target.session, tokens);
  }
  for (auto& [address, tensor] : tensors_) tensor.ends[stream] = std::min(tensor.ends[stream], tokens);
  target.log.trim(tokens);
}

void KvCache::fill(Tensor& tensor, std::uint32_t stream, std::uint32_t tokens) {
  while (tensor.ends[stream] < tokens) {
    const std::uint32_t part = std::min(tokens - tensor.ends[stream], kRowsTogether);
    const std::vector<std::uint16_t> zeros(std::size_t{part} * tensor.row);
    append(tensor, stream, part, zeros.data());
  }
}

void KvCache::append(Tensor& tensor, std::uint32_t stream, std::uint32_t tokens, const std::uint16_t* rows) {
  scratch_.resize(std::size_t{tokens} * tensor.row);
  by_head(rows, tokens, tensor.rows, scratch_.data());
  drive_.append(streams_[stream].session, tensor.rows, tensor.ends[stream], tokens, scratch_);
  tensor.ends[stream] += tokens;
}

void KvCache::complete(Tensor& tensor, std::uint32_t stream) { fill(tensor, stream, streams_[stream].log.tokens()); }

void KvCache::complete_all(std::uint32_t stream, std::uint32_t least) {
  for (auto& [address, tensor] : tensors_) {
    if (tensor.rows.heads != 0 && tensor.ends[stream] >= least) complete(tensor, stream);
  }
}

void KvCache::read_tokens(const Tensor& tensor, std::uint32_t stream, std::uint32_t first, std::uint32_t tokens,
                          std::uint16_t* out) {
  std::vector<std::uint16_t> heads(std::size_t{tokens} * tensor.row);
  drive_.read(streams_[stream].session, tensor.rows, 0, tensor.rows.heads, first, tokens, heads.data());
  by_token(heads.data(), tokens, tensor.rows, out);
}

void KvCache::read_cells(const Tensor& tensor, std::uint32_t stream, std::span<const std::uint32_t> cells,
                         std::uint16_t* out) {
  const CellLog& log = streams_[stream].log;
  for (std::size_t i = 0; i < cells.size();) {
    const std::int32_t first = log.token_of(cells[i]);
    std::uint16_t* to = out + i * tensor.row;
    if (first == CellLog::kNone || static_cast<std::uint32_t>(first) >= tensor.ends[stream]) {
      std::memset(to, 0, tensor.row_bytes());
      ++i;
      continue;
    }
    std::uint32_t count = 1;
    const std::uint32_t most = std::min(kRowsTogether, tensor.ends[stream] - static_cast<std::uint32_t>(first));
    while (i + count < cells.size() && count < most &&
           log.token_of(cells[i + count]) == first + static_cast<std::int32_t>(count)) {
      ++count;
    }
    read_tokens(tensor, stream, static_cast<std::uint32_t>(first), count, to);
    i += count;
  }
}

void KvCache::read(Tensor& tensor, const Range& range, std::uint16_t* out) {
  std::vector<std::uint32_t> cells(range.cells);
  for (std::uint32_t i = 0; i < range.cells; ++i) cells[i] = range.first_cell + i;
  read_cells(tensor, range.stream, cells, out);
}

KvCache::Range KvCache::range(const Tensor& tensor, const ggml_tensor* view, std::size_t offset,
                              std::size_t bytes) const {
  const std::size_t at = static_cast<std::size_t>(static_cast<const char*>(view->data) - tensor.data) + offset;
  const std::size_t stream_bytes = tensor.row_bytes() * cells_;
  if (at % tensor.row_bytes() != 0 || bytes % tensor.row_bytes() != 0 || at % stream_bytes + bytes > stream_bytes) {
    throw std::runtime_error("llama.cpp moves parts of rows of K and V, which the drive does not");
  }
  return {.stream = static_cast<std::uint32_t>(at / stream_bytes),
          .first_cell = static_cast<std::uint32_t>(at % stream_bytes / tensor.row_bytes()),
          .cells = static_cast<std::uint32_t>(bytes / tensor.row_bytes())};
}

void KvCache::copy(Tensor& tensor, std::uint32_t from, std::uint32_t to) {
  if (from == to) return;
  if (copying_.contains(&tensor) && from == copying_from_ && to == copying_to_) {
    copying_.erase(&tensor);
    return;
  }
  if (!copying_.empty()) throw std::runtime_error("llama.cpp copied a sequence without some of its layers");
  complete_all(from, 1);
  forget(to);
  Stream &source = streams_[from], &target = streams_[to];
  ++epoch_;
  if (source.log.tokens() > 0) {
    const Session forked = drive_.fork(source.session, source.log.tokens());
    drive_.remove(std::exchange(target.session, forked));
    target.log = source.log;
    for (auto& [address, each] : tensors_) each.ends[to] = each.ends[from];
  }
  for (auto& [address, each] : tensors_) copying_.insert(&each);
  copying_.erase(&tensor);
  copying_from_ = from;
  copying_to_ = to;
}

void KvCache::rewrite(std::uint32_t stream, const std::map<const Tensor*, Change>& changes) {
  Stream& target = streams_[stream];
  complete_all(stream, 1);
  const std::vector<std::uint32_t> live = target.log.live_cells();
  Session session = drive_.open();
  try {
    write_live(stream, live, changes, session);
  } catch (...) {
    drive_.remove(session);
    throw;
  }
  drive_.remove(std::exchange(target.session, session));
  for (auto& [address, tensor] : tensors_) {
    if (tensor.ends[stream] > 0) tensor.ends[stream] = static_cast<std::uint32_t>(live.size());
  }
  target.log.clear();
  target.log.add(live);
  ++epoch_;
}

void KvCache::write_live(std::uint32_t stream, std::span<const std::uint32_t> live,
                         const std::map<const Tensor*, Change>& changes, Session& session) {
  std::vector<std::uint16_t> rows, heads;
  for (auto& [address, tensor] : tensors_) {
    if (tensor.ends[stream] == 0) continue;
    const auto change = changes.find(&tensor);
    for (std::size_t done = 0; done < live.size(); done += kRowsTogether) {
      const auto cells = live.subspan(done, std::min<std::size_t>(kRowsTogether, live.size() - done));
      rows.resize(cells.size() * tensor.row);
      heads.resize(rows.size());
      read_cells(tensor, stream, cells, rows.data());
      if (change != changes.end()) change->second(cells, rows.data());
      by_head(rows.data(), static_cast<std::uint32_t>(cells.size()), tensor.rows, heads.data());
      drive_.append(session, tensor.rows, static_cast<std::uint32_t>(done), static_cast<std::uint32_t>(cells.size()),
                    heads);
    }
  }
}

KvCache::Stream& KvCache::stream_of(std::uint32_t number) {
  if (number >= streams_.size()) throw std::runtime_error("llama.cpp's cache has no such sequence");
  return streams_[number];
}

void KvCache::forget(std::uint32_t stream) {
  Stream& target = stream_of(stream);
  if (taking_stream_ == stream) taking_.clear();
  if (target.log.tokens() == 0) return;
  for (auto& [address, tensor] : tensors_) tensor.ends[stream] = 0;
  target.log.clear();
  target.host_writes = false;
  drive_.remove(target.session);
  target.session = drive_.open();
  ++epoch_;
}

void KvCache::shorten(std::uint32_t stream, std::uint32_t cells) {
  settle(stream);
  if (cells < streams_[stream].log.tokens()) {
    ++epoch_;
    trim(stream, cells);
  }
}

void KvCache::settle(std::uint32_t stream) {
  const CellLog& log = stream_of(stream).log;
  if (!log.in_order() || log.dead() > 0) {
    throw std::runtime_error("the tokens of this sequence are not in the order of llama.cpp's cells");
  }
  complete_all(stream, 0);
}

void KvCache::take(std::uint32_t stream, const Session& session, std::uint32_t tokens) {
  settle(stream);
  if (tokens == 0 || tokens > cells_) throw std::runtime_error("a session of as many tokens does not fit the cache");
  for (const auto& [address, tensor] : tensors_) {
    if (tensor.rows.heads == 0) throw std::runtime_error("llama.cpp has not shown the attention of every layer");
  }
  Stream& target = streams_[stream];
  drive_.take(session);
  drive_.remove(std::exchange(target.session, session));
  target.log.clear();
  std::vector<std::uint32_t> cells(tokens);
  std::iota(cells.begin(), cells.end(), 0U);
  target.log.add(cells);
  target.host_writes = false;
  ++epoch_;
  for (auto& [address, tensor] : tensors_) {
    tensor.ends[stream] = tokens;
    taking_.insert(&tensor);
  }
  taking_stream_ = stream;
}

bool KvCache::takes(const Tensor& tensor, const Range& range) {
  if (!taking()) return false;
  if (range.stream != taking_stream_ || range.first_cell != 0 || range.cells != streams_[taking_stream_].log.tokens() ||
      taking_.erase(&tensor) == 0) {
    throw std::runtime_error("llama.cpp restored other cells than those of the session");
  }
  return true;
}

void KvCache::clear() {
  copying_.clear();
  taking_.clear();
  for (std::uint32_t stream = 0; stream < streams_.size(); ++stream) forget(stream);
}

}  // namespace kvdrive::llama
