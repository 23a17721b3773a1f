// SPDX-License-Identifier: Apache-2.0
#include "attention.hpp"

#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <string>

#include "engine/shapes.hpp"
#include "halves.hpp"
#include "plugin.hpp"

namespace kvdrive::llama {
namespace {

constexpr std::uint16_t kHidden = 0xfc00;       // minus infinity: the query does not see the cell
constexpr std::uint32_t kMostDriveQueries = 8;  // of a stream; above, rows are read once and computed here
constexpr std::size_t kPassBytes = 64 << 20;    // of K and V that are read at once
constexpr std::uint32_t kShortGap = 64;         // hidden tokens that are read with their neighbours
constexpr std::uint32_t kBeatBits = 8 * abi::kBeatBytes;

[[noreturn]] void refuse(const std::string& what) {
  throw std::runtime_error("the drive does not compute attention " + what + ": run this model without kvdrive");
}

bool rows_of_heads(const ggml_tensor* view, std::size_t row_bytes) {
  const std::size_t head_bytes = sizeof(std::uint16_t) * static_cast<std::size_t>(view->ne[0]);
  return view->nb[0] == sizeof(std::uint16_t) && view->nb[2] == head_bytes && view->nb[1] == row_bytes;
}

bool finite(const std::vector<std::uint16_t>& halves) {
  return std::none_of(halves.begin(), halves.end(), [](std::uint16_t half) { return (half & 0x7c00) == 0x7c00; });
}

float parameter(const ggml_tensor* node, int index) {
  float value = 0;
  std::memcpy(&value, node->op_params + index, sizeof value);
  return value;
}

}  // namespace

AttentionNode::AttentionNode(const ggml_tensor* of)
    : node(of),
      q(of->src[0]),
      k(of->src[1]),
      v(of->src[2]),
      mask(of->src[3]),
      sinks(of->src[4]),
      queries(static_cast<std::uint32_t>(q->ne[1])),
      heads(static_cast<std::uint32_t>(q->ne[2])),
      kv_heads(static_cast<std::uint32_t>(k->ne[2])),
      group(heads / kv_heads),
      streams(static_cast<std::uint32_t>(q->ne[3])),
      cells(static_cast<std::uint32_t>(k->ne[1])),
      k_dim(static_cast<std::uint32_t>(k->ne[0])),
      v_dim(static_cast<std::uint32_t>(v->ne[0])),
      scale(parameter(of, 0)),
      max_bias(parameter(of, 1)),
      soft_cap(parameter(of, 2)) {}

const float* AttentionNode::query(std::uint32_t stream, std::uint32_t query, std::uint32_t head) const {
  const auto* bytes = static_cast<const char*>(q->data);
  return reinterpret_cast<const float*>(bytes + stream * q->nb[3] + query * q->nb[1] + head * q->nb[2]);
}

const std::uint16_t* AttentionNode::mask_row(std::uint32_t stream, std::uint32_t query) const {
  const auto* bytes = static_cast<const char*>(mask->data);
  const std::size_t plane = stream % static_cast<std::size_t>(mask->ne[3]);
  return reinterpret_cast<const std::uint16_t*>(bytes + plane * mask->nb[3] + query * mask->nb[1]);
}

float* AttentionNode::out(std::uint32_t stream, std::uint32_t query) const {
  return reinterpret_cast<float*>(static_cast<char*>(node->data) + stream * node->nb[3] + query * node->nb[2]);
}

void Attention::check(const ggml_tensor* node, KvCache& cache) {
  const AttentionNode op(node);
  KvCache::Tensor *k = cache.find(op.k), *v = cache.find(op.v);
  if (k == nullptr || v == nullptr) refuse("where K and V lie in different caches");
  if (k == v || k->rows.kind != abi::kKeys || v->rows.kind != abi::kValues || k->rows.layer != v->rows.layer) {
    refuse("where V is a part of K (MLA)");
  }
  if (op.q->type != GGML_TYPE_F32 || (op.mask != nullptr && op.mask->type != GGML_TYPE_F16)) {
    refuse("over queries or masks in other formats than f32 and f16");
  }
  if (op.mask != nullptr && (op.mask->ne[2] != 1 || op.mask->ne[0] != op.k->ne[1])) refuse("with a mask for each head");
  if (!rows_of_heads(op.k, k->row_bytes()) || !rows_of_heads(op.v, v->row_bytes())) refuse("over parts of rows");
  cache.set_shape(*k, op.kv_heads, op.k_dim);
  cache.set_shape(*v, op.kv_heads, op.v_dim);
}

bool Attention::run(const ggml_tensor* node, KvCache& cache, int threads) {
  const AttentionNode op(node);
  check(node, cache);
  Seen& seen = seen_of(cache);
  KvCache::Tensor &k = *cache.find(op.k), &v = *cache.find(op.v);
  const std::size_t stream_bytes = k.row_bytes() * cache.cells();
  const auto first_stream = static_cast<std::uint32_t>(
      static_cast<std::size_t>(static_cast<const char*>(op.k->data) - k.data) / stream_bytes);
  if (first_stream + op.streams > cache.streams()) refuse("over more streams than the cache has");
  for (std::uint32_t stream = 0; stream < op.streams; ++stream) {
    cache.complete(k, first_stream + stream);
    cache.complete(v, first_stream + stream);
  }
  if (run_in_drive(op, cache, first_stream, seen)) return true;
  for (std::uint32_t stream = 0; stream < op.streams; ++stream)
    run_in_host(op, cache, first_stream, stream, seen, threads);
  return false;
}

Attention::Seen& Attention::seen_of(const KvCache& cache) {
  Seen& seen = seen_[&cache];
  if (seen.epoch != cache.epoch()) seen = {.epoch = cache.epoch()};
  return seen;
}

const Attention::Visible* Attention::visible(const AttentionNode& op, const CellLog& log, std::uint32_t stream,
                                             std::uint32_t query, Seen& seen) {
  const std::uint16_t* mask = op.mask_row(stream, query);
  const auto key = std::make_pair(static_cast<const void*>(mask), stream);
  const auto found = seen.visible.find(key);
  if (found != seen.visible.end()) return &found->second;
  Visible result;
  std::vector<std::byte> bitmap((log.tokens() + kBeatBits - 1) / kBeatBits * abi::kBeatBytes);
  for (std::uint32_t cell = 0; cell < op.cells; ++cell) {
    if (mask[cell] == kHidden) continue;
    const std::int32_t token = log.token_of(cell);
    if (mask[cell] != 0 || token == CellLog::kNone) return nullptr;  // a bias, or rows of zeros
    const auto place = static_cast<std::uint32_t>(token);
    bitmap[place / 8] |= std::byte(1U << place % 8);
    result.tokens = std::max(result.tokens, place + 1);
    ++result.count;
  }
  if (result.count != result.tokens) {
    bitmap.resize((result.tokens + kBeatBits - 1) / kBeatBits * abi::kBeatBytes);
    result.bitmap = std::move(bitmap);
  }
  return &seen.visible.emplace(key, std::move(result)).first->second;
}

bool Attention::run_in_drive(const AttentionNode& op, KvCache& cache, std::uint32_t first_stream, Seen& seen) {
  if (op.queries > kMostDriveQueries || op.sinks != nullptr || op.mask == nullptr || op.max_bias != 0 ||
      op.soft_cap != 0 || op.k_dim != op.v_dim || !serves_group(op.group)) {
    return false;
  }
  // A cache of windows is shorter than the other one, and a window is read whole.
  const bool chooses = cache.cells() == Plugin::get().most_cells();
  std::vector<Query> queries;
  for (std::uint32_t stream = 0; stream < op.streams; ++stream) {
    for (std::uint32_t number = 0; number < op.queries; ++number) {
      const Visible* tokens = visible(op, cache.log(first_stream + stream), stream, number, seen);
      if (tokens == nullptr) return false;
      float* out = op.out(stream, number);
      if (tokens->count == 0) {
        std::fill_n(out, std::size_t{op.heads} * op.v_dim, 0.0F);
        continue;
      }
      Query query{.session = cache.session(first_stream + stream).number,
                  .layer = cache.find(op.k)->rows.layer,
                  .heads = op.kv_heads,
                  .group = op.group,
                  .dim = op.k_dim,
                  .tokens = tokens->tokens,
                  .valid = tokens->bitmap,
                  .scale = op.scale,
                  .choice = chooses ? drive_.policy().choice(tokens->tokens) : UnitChoice{},
                  .q = std::vector<std::uint16_t>(std::size_t{op.heads} * op.k_dim),
                  .out = out};
      for (std::uint32_t head = 0; head < op.heads; ++head) {
        to_halves(op.query(stream, number, head), op.k_dim, query.q.data() + std::size_t{head} * op.k_dim);
      }
      if (!finite(query.q)) return false;
      queries.push_back(std::move(query));
    }
  }
  drive_.attend(queries);
  return true;
}

Attention::Rows& Attention::rows(const AttentionNode& op, const KvCache& cache, std::uint32_t first_stream,
                                 std::uint32_t stream, Seen& seen) {
  const auto key = std::make_pair(static_cast<const void*>(op.mask == nullptr ? nullptr : op.mask->data), stream);
  const auto found = seen.rows.find(key);
  if (found != seen.rows.end()) return found->second;
  return seen.rows.emplace(key, choose_rows(op, cache.log(first_stream + stream), stream)).first->second;
}

Attention::Rows Attention::choose_rows(const AttentionNode& op, const CellLog& log, std::uint32_t stream) {
  const std::uint32_t written = std::min(log.tokens(), op.cells);
  Rows by_cell{.by_cell = true, .runs = {}, .count = op.cells, .mask = {}};
  if (written > 0) by_cell.runs.emplace_back(0, written);
  std::vector<bool> wanted(log.tokens());
  std::uint32_t count = 0;
  bool unwritten = op.mask == nullptr;
  // With all tokens in order and wanted, the rows are those of the cells, whatever the other queries see.
  const auto settled = [&] { return log.in_order() && count == written; };
  for (std::uint32_t query = op.queries; query-- > 0 && op.mask != nullptr && !settled();) {
    const std::uint16_t* mask = op.mask_row(stream, query);
    for (std::uint32_t cell = 0; cell < op.cells; ++cell) {
      if (mask[cell] == kHidden) continue;
      const std::int32_t token = log.token_of(cell);
      if (token == CellLog::kNone) {
        unwritten = true;
      } else if (!wanted[static_cast<std::size_t>(token)]) {
        wanted[static_cast<std::size_t>(token)] = true;
        ++count;
      }
    }
  }
  if (log.in_order() && (unwritten || count >= written - written / 4)) return by_cell;
  if (unwritten) throw std::runtime_error("llama.cpp attends to cells that it has not written");
  Rows chosen;
  for (std::uint32_t token = 0; token < log.tokens(); ++token) {
    if (!wanted[token]) continue;
    if (!chosen.runs.empty() && token - (chosen.runs.back().first + chosen.runs.back().second) < kShortGap) {
      chosen.runs.back().second = token + 1 - chosen.runs.back().first;
    } else {
      chosen.runs.emplace_back(token, 1);
    }
  }
  for (const auto& [first, tokens] : chosen.runs) chosen.count += tokens;
  chosen.mask.reserve(std::size_t{op.queries} * chosen.count);
  for (std::uint32_t query = 0; query < op.queries; ++query) {
    const std::uint16_t* mask = op.mask_row(stream, query);
    for (const auto& [first, tokens] : chosen.runs) {
      for (std::uint32_t token = first; token < first + tokens; ++token) {
        const std::int32_t cell = log.cell_of(token);
        const bool present = cell != CellLog::kNone && static_cast<std::uint32_t>(cell) < op.cells;
        chosen.mask.push_back(present ? mask[cell] : kHidden);
      }
    }
  }
  return chosen;
}

void Attention::read_rows(const KvCache& cache, const KvCache::Tensor& tensor, std::uint32_t stream, const Rows& rows,
                          std::uint32_t first_head, std::uint32_t heads, std::vector<std::uint16_t>& out) {
  out.resize(std::size_t{heads} * rows.count * tensor.rows.dim);
  for (std::uint32_t head = 0; head < heads; ++head) {
    std::uint16_t* to = out.data() + std::size_t{head} * rows.count * tensor.rows.dim;
    std::uint16_t* const end = to + std::size_t{rows.count} * tensor.rows.dim;
    for (const auto& [first, tokens] : rows.runs) {
      drive_.read(cache.session(stream), tensor.rows, first_head + head, 1, first, tokens, to);
      to += std::size_t{tokens} * tensor.rows.dim;
    }
    std::fill(to, end, std::uint16_t{0});
  }
}

bool Attention::in_blocks(const AttentionNode& op) {
  return op.sinks == nullptr && op.max_bias == 0 && op.soft_cap == 0 && op.k_dim % 8 == 0 && op.v_dim % 8 == 0;
}

void Attention::run_in_blocks(const AttentionNode& op, std::uint32_t stream, Rows& rows, std::uint32_t first_head,
                              std::uint32_t heads, int threads) {
  if (op.mask != nullptr && !rows.tiles) {
    const std::uint16_t* const mask = rows.by_cell ? op.mask_row(stream, 0) : rows.mask.data();
    rows.tiles.emplace(mask, rows.by_cell ? op.mask->nb[1] / sizeof *mask : rows.count, op.queries, rows.count);
  }
  const std::uint32_t first = first_head * op.group;
  prompts_.run({.queries = op.queries,
                .heads = heads,
                .group = op.group,
                .rows = rows.count,
                .k_dim = op.k_dim,
                .v_dim = op.v_dim,
                .scale = op.scale,
                .q = op.query(stream, 0, first),
                .q_query = op.q->nb[1] / sizeof(float),
                .q_head = op.q->nb[2] / sizeof(float),
                .k = k_.data(),
                .v = v_.data(),
                .mask = rows.tiles ? &*rows.tiles : nullptr,
                .out = op.out(stream, 0) + std::size_t{first} * op.v_dim,
                .out_query = op.node->nb[2] / sizeof(float)},
               threads);
}

void Attention::run_in_host(const AttentionNode& op, KvCache& cache, std::uint32_t first_stream, std::uint32_t stream,
                            Seen& seen, int threads) {
  const std::uint32_t cache_stream = first_stream + stream;
  Rows& chosen = rows(op, cache, first_stream, stream, seen);
  if (chosen.count == 0) {
    std::fill_n(op.out(stream, 0), std::size_t{op.queries} * op.heads * op.v_dim, 0.0F);
    return;
  }
  const std::size_t head_bytes = sizeof(std::uint16_t) * chosen.count * (op.k_dim + op.v_dim);
  // The slope of a bias depends on a head's number among all.
  const std::size_t fitting = op.max_bias != 0 ? op.kv_heads : std::max<std::size_t>(1, kPassBytes / head_bytes);
  for (std::uint32_t first = 0; first < op.kv_heads;) {
    const auto heads = static_cast<std::uint32_t>(std::min<std::size_t>(fitting, op.kv_heads - first));
    read_rows(cache, *cache.find(op.k), cache_stream, chosen, first, heads, k_);
    read_rows(cache, *cache.find(op.v), cache_stream, chosen, first, heads, v_);
    if (in_blocks(op)) {
      run_in_blocks(op, stream, chosen, first, heads, threads);
      first += heads;
      continue;
    }
    const bool whole = heads == op.kv_heads;
    const std::size_t part = std::size_t{heads} * op.group * op.v_dim;  // numbers of a query
    if (!whole) out_.resize(op.queries * part);
    void* mask = nullptr;
    if (op.mask != nullptr) {
      mask = const_cast<std::uint16_t*>(chosen.by_cell ? op.mask_row(stream, 0) : chosen.mask.data());
    }
    host_.attend({.node = op.node,
                  .stream = stream,
                  .first_head = first,
                  .heads = heads,
                  .rows = chosen.count,
                  .k = k_.data(),
                  .v = v_.data(),
                  .mask = mask,
                  .out = whole ? op.out(stream, 0) : out_.data()},
                 threads);
    for (std::uint32_t query = 0; !whole && query < op.queries; ++query) {
      std::memcpy(op.out(stream, query) + std::size_t{first} * op.group * op.v_dim, out_.data() + query * part,
                  sizeof(float) * part);
    }
    first += heads;
  }
}

}  // namespace kvdrive::llama
