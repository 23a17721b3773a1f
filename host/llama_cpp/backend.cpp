// SPDX-License-Identifier: Apache-2.0
#include "backend.hpp"

#include <algorithm>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>

#include "attention.hpp"
#include "buffer.hpp"
#include "device.hpp"
#include "halves.hpp"
#include "kv_cache.hpp"
#include "plugin.hpp"

namespace kvdrive::llama {
namespace {

struct Backend {
  explicit Backend(SessionDrive& drive) : attention(drive) {}
  Attention attention;
  int threads = 1;
};

bool moves_nothing(const ggml_tensor* node) {
  switch (node->op) {
    case GGML_OP_NONE:
    case GGML_OP_VIEW:
    case GGML_OP_RESHAPE:
    case GGML_OP_PERMUTE:
    case GGML_OP_TRANSPOSE:
      return true;
    default:
      return false;
  }
}

bool is_empty(const ggml_tensor* node) {
  return std::any_of(node->ne, node->ne + GGML_MAX_DIMS, [](std::int64_t size) { return size == 0; });
}

// The cache that a node reads or writes. False if there is none.
bool cache_of(const ggml_tensor* node, KvCache*& cache) {
  if (in_cache(node, cache)) return true;
  return std::any_of(node->src, node->src + GGML_MAX_SRC,
                     [&cache](const ggml_tensor* source) { return source != nullptr && in_cache(source, cache); });
}

KvCache::Tensor& tensor_of(KvCache& cache, const ggml_tensor* view) {
  KvCache::Tensor* tensor = cache.find(view);
  if (tensor == nullptr) throw std::runtime_error(std::string("the drive does not know the cache ") + view->name);
  return *tensor;
}

void check_rows(const ggml_tensor* node, KvCache& cache) {
  const ggml_tensor *source = node->src[0], *index = node->src[1];
  const bool whole = node->ne[0] == tensor_of(cache, node).row && node->ne[2] == 1 && node->ne[3] == 1;
  if (!whole) {
    throw std::runtime_error(
        "llama.cpp stores V by columns, which the drive does not: switch flash attention on (-fa on)");
  }
  if (source->type != GGML_TYPE_F32 || source->nb[0] != sizeof(float) ||
      (index->type != GGML_TYPE_I64 && index->type != GGML_TYPE_I32)) {
    throw std::runtime_error("llama.cpp stores rows of K and V in an unknown form");
  }
}

void check_rotation(const ggml_tensor* node, const KvCache& cache) {
  const ggml_tensor *source = node->src[0], *shifts = node->src[1];
  const std::int64_t all = std::int64_t{cache.cells()} * cache.streams();
  if (source->type != GGML_TYPE_F16 || source->ne[2] != all || shifts->type != GGML_TYPE_I32 || shifts->ne[0] != all) {
    throw std::runtime_error("llama.cpp shifts the context in an unknown form: switch it off (--no-context-shift)");
  }
}

void check(const ggml_tensor* node, KvCache& cache) {
  switch (node->op) {
    case GGML_OP_SET_ROWS:
      return check_rows(node, cache);
    case GGML_OP_FLASH_ATTN_EXT:
      return Attention::check(node, cache);
    case GGML_OP_ROPE:
      return check_rotation(node, cache);
    default:
      throw std::runtime_error(std::string("llama.cpp computes ") + ggml().ggml_op_name(node->op) +
                               " over K and V, which the drive does not: switch flash attention on (-fa on)");
  }
}

std::int64_t index_of(const ggml_tensor* index, std::int64_t row) {
  if (index->type == GGML_TYPE_I64) return static_cast<const std::int64_t*>(index->data)[row];
  return static_cast<const std::int32_t*>(index->data)[row];
}

void set_rows(const ggml_tensor* node, KvCache& cache) {
  struct Rows {
    std::vector<std::uint32_t> cells;
    std::vector<std::uint16_t> halves;
  };
  const ggml_tensor *source = node->src[0], *index = node->src[1];
  KvCache::Tensor& tensor = tensor_of(cache, node);
  std::map<std::uint32_t, Rows> streams;
  for (std::int64_t row = 0; row < source->ne[1]; ++row) {
    const std::int64_t cell = index_of(index, row);
    if (cell < 0 || cell >= std::int64_t{cache.cells()} * cache.streams()) {
      throw std::runtime_error("llama.cpp stores a row behind the end of the cache");
    }
    Rows& rows = streams[static_cast<std::uint32_t>(cell / cache.cells())];
    rows.cells.push_back(static_cast<std::uint32_t>(cell % cache.cells()));
    rows.halves.resize(rows.halves.size() + tensor.row);
    const auto* numbers = reinterpret_cast<const float*>(static_cast<const char*>(source->data) +
                                                         static_cast<std::size_t>(row) * source->nb[1]);
    to_halves(numbers, tensor.row, rows.halves.data() + rows.halves.size() - tensor.row);
  }
  for (const auto& [stream, rows] : streams) {
    cache.write(tensor, stream, rows.cells, rows.halves.data(), KvCache::Writer::kGraph);
  }
}

// A context shift rotates K of all layers. All of them are rotated at the first one's turn, because a stream is written
// anew for it.
void shift(const std::vector<const ggml_tensor*>& nodes, KvCache& cache, Backend& backend) {
  for (std::uint32_t stream = 0; stream < cache.streams(); ++stream) {
    const auto* shifts =
        static_cast<const std::int32_t*>(nodes.front()->src[1]->data) + std::size_t{stream} * cache.cells();
    const std::vector<std::uint32_t> live = cache.log(stream).live_cells();
    if (std::none_of(live.begin(), live.end(), [shifts](std::uint32_t cell) { return shifts[cell] != 0; })) continue;
    std::map<const KvCache::Tensor*, KvCache::Change> changes;
    for (const ggml_tensor* node : nodes) {
      KvCache::Tensor& tensor = tensor_of(cache, node);
      changes[&tensor] = [node, &tensor, &backend, shifts](std::span<const std::uint32_t> cells, std::uint16_t* rows) {
        std::vector<std::int32_t> of_rows(cells.size());
        for (std::size_t i = 0; i < cells.size(); ++i) of_rows[i] = shifts[cells[i]];
        backend.attention.host().rotate(node, static_cast<std::uint32_t>(cells.size()),
                                        static_cast<std::uint32_t>(tensor.row_bytes()), rows, of_rows.data(),
                                        backend.threads);
      };
    }
    cache.rewrite(stream, changes);
  }
}

void compute(Backend& backend, ggml_cgraph* graph) {
  std::map<KvCache*, std::vector<const ggml_tensor*>> rotations;
  for (int i = 0; i < ggml().ggml_graph_n_nodes(graph); ++i) {
    const ggml_tensor* node = ggml().ggml_graph_node(graph, i);
    if (moves_nothing(node) || is_empty(node) || (node->flags & GGML_TENSOR_FLAG_COMPUTE) == 0) continue;
    KvCache* cache = nullptr;
    if (!cache_of(node, cache) || cache == nullptr) {
      throw std::runtime_error(std::string("llama.cpp sent the drive an operation that it does not compute, ") +
                               ggml().ggml_op_name(node->op));
    }
    if (!cache->refusal().empty()) throw std::runtime_error(cache->refusal());
    check(node, *cache);
    if (node->op == GGML_OP_SET_ROWS) {
      set_rows(node, *cache);
    } else if (node->op == GGML_OP_FLASH_ATTN_EXT) {
      const bool in_drive = backend.attention.run(node, *cache, backend.threads);
      ++(in_drive ? Plugin::get().in_drive : Plugin::get().in_host);
    } else {
      rotations[cache].push_back(node);
    }
  }
  for (const auto& [cache, nodes] : rotations) shift(nodes, *cache, backend);
}

ggml_status graph_compute(ggml_backend_t backend, ggml_cgraph* graph) {
  auto& ours = *static_cast<Backend*>(backend->context);
  ++Plugin::get().graphs;
  try {
    compute(ours, graph);
    return GGML_STATUS_SUCCESS;
  } catch (const std::exception& error) {
    report(error.what());
    return GGML_STATUS_FAILED;
  }
}

const char* get_name(ggml_backend_t) { return kDeviceName; }

void free_backend(ggml_backend_t backend) {
  delete static_cast<Backend*>(backend->context);
  delete backend;
}

}  // namespace

ggml_backend_t make_backend(ggml_backend_dev_t device) {
  static ggml_guid guid = {'k', 'v', 'd', 'r', 'i', 'v', 'e', ' ', 'l', 'l', 'a', 'm', 'a', '.', 'c', 1};
  try {
    auto* made = new ggml_backend{};
    made->guid = &guid;
    made->iface.get_name = get_name;
    made->iface.free = free_backend;
    made->iface.graph_compute = graph_compute;
    made->device = device;
    made->context = new Backend(Plugin::get().drive());
    return made;
  } catch (const std::exception& error) {
    report(error.what());
    return nullptr;
  }
}

void set_threads(ggml_backend_t backend, int threads) {
  static_cast<Backend*>(backend->context)->threads = std::max(1, threads);
}

bool supports(const ggml_tensor* node) {
  if (moves_nothing(node)) return true;
  KvCache* cache = nullptr;
  if (!cache_of(node, cache)) return false;
  if (cache == nullptr) return true;
  try {
    check(node, *cache);
  } catch (const std::exception& error) {
    if (cache->refusal().empty()) report(error.what());
    cache->refuse(error.what());
  }
  return true;
}

}  // namespace kvdrive::llama
