// SPDX-License-Identifier: Apache-2.0
#include "host_graph.hpp"

#include <cstring>
#include <memory>
#include <stdexcept>

namespace kvdrive::llama {
namespace {

constexpr std::size_t kTensors = 16;
constexpr int kSinks = 4;  // place of the sinks among the sources of FLASH_ATTN_EXT

struct FreeContext {
  void operator()(ggml_context* context) const { ggml().ggml_free(context); }
};
using Context = std::unique_ptr<ggml_context, FreeContext>;

Context make_context() {
  const std::size_t bytes = kTensors * ggml().ggml_tensor_overhead() + ggml().ggml_graph_overhead();
  Context context(ggml().ggml_init({.mem_size = bytes, .mem_buffer = nullptr, .no_alloc = true}));
  if (!context) throw std::runtime_error("there is no memory for a graph of ggml");
  return context;
}

struct Extent {
  std::int64_t size;
  std::size_t stride;
};

// A tensor over memory that exists, with element-wise contiguous rows.
ggml_tensor* over(const Context& context, ggml_type type, void* data, std::int64_t row, Extent second, Extent third) {
  ggml_tensor* tensor = ggml().ggml_new_tensor_4d(context.get(), type, row, second.size, third.size, 1);
  tensor->data = data;
  tensor->nb[1] = second.stride;
  tensor->nb[2] = third.stride;
  tensor->nb[3] = third.stride * static_cast<std::size_t>(third.size);
  return tensor;
}

void* shifted(void* data, std::size_t bytes) { return static_cast<char*>(data) + bytes; }

}  // namespace

HostGraph::~HostGraph() {
  if (backend_ != nullptr) ggml().ggml_backend_free(backend_);
}

void HostGraph::attend(const HeadsAttention& part, int threads) {
  const ggml_tensor *q = part.node->src[0], *k = part.node->src[1], *v = part.node->src[2];
  const std::int64_t queries = q->ne[1], group = q->ne[2] / k->ne[2];
  const Context context = make_context();
  const auto tensor_of = [&](const ggml_tensor* like, std::uint16_t* rows) {
    const std::size_t row_bytes = 2 * static_cast<std::size_t>(like->ne[0]);
    return over(context, GGML_TYPE_F16, rows, like->ne[0], {part.rows, row_bytes}, {part.heads, row_bytes * part.rows});
  };
  const std::int64_t first_query_head = part.first_head * group;
  ggml_tensor* queries_of_heads =
      over(context, GGML_TYPE_F32,
           shifted(q->data, static_cast<std::size_t>(first_query_head) * q->nb[2] + part.stream * q->nb[3]), q->ne[0],
           {queries, q->nb[1]}, {part.heads * group, q->nb[2]});
  ggml_tensor* mask = nullptr;
  if (part.mask != nullptr) {
    const std::size_t row_bytes = std::size_t{2} * part.rows;
    mask = over(context, GGML_TYPE_F16, part.mask, part.rows, {queries, row_bytes},
                {1, row_bytes * static_cast<std::size_t>(queries)});
  }
  float scale = 0, max_bias = 0, soft_cap = 0;
  std::memcpy(&scale, part.node->op_params, sizeof scale);
  std::memcpy(&max_bias, part.node->op_params + 1, sizeof max_bias);
  std::memcpy(&soft_cap, part.node->op_params + 2, sizeof soft_cap);
  ggml_tensor* result = ggml().ggml_flash_attn_ext(context.get(), queries_of_heads, tensor_of(k, part.k),
                                                   tensor_of(v, part.v), mask, scale, max_bias, soft_cap);
  std::memcpy(result->op_params, part.node->op_params, sizeof result->op_params);
  if (const ggml_tensor* sinks = part.node->src[kSinks]; sinks != nullptr) {
    const std::int64_t heads = part.heads * group;
    const std::size_t bytes = sizeof(float) * static_cast<std::size_t>(heads);
    result->src[kSinks] =
        over(context, GGML_TYPE_F32, shifted(sinks->data, sizeof(float) * static_cast<std::size_t>(first_query_head)),
             heads, {1, bytes}, {1, bytes});
  }
  result->data = part.out;
  compute(context.get(), result, threads);
}

void HostGraph::rotate(const ggml_tensor* node, std::uint32_t rows, std::uint32_t row_bytes, std::uint16_t* k,
                       const std::int32_t* shifts, int threads) {
  const ggml_tensor *source = node->src[0], *factors = node->src[2];
  const Context context = make_context();
  // The rotated numbers of a head may begin behind others.
  ggml_tensor* rotated = over(context, GGML_TYPE_F16, shifted(k, source->view_offs % row_bytes), source->ne[0],
                              {source->ne[1], source->nb[1]}, {rows, row_bytes});
  ggml_tensor* positions = over(context, GGML_TYPE_I32, const_cast<std::int32_t*>(shifts), rows,
                                {1, sizeof(std::int32_t) * rows}, {1, sizeof(std::int32_t) * rows});
  ggml_tensor* frequencies = nullptr;
  if (factors != nullptr) {
    const std::size_t bytes = sizeof(float) * static_cast<std::size_t>(factors->ne[0]);
    frequencies = over(context, GGML_TYPE_F32, factors->data, factors->ne[0], {1, bytes}, {1, bytes});
  }
  ggml_tensor* result = ggml().ggml_rope_ext_inplace(context.get(), rotated, positions, frequencies,
                                                     static_cast<int>(source->ne[0]), 0, 0, 0, 1, 0, 1, 0, 0);
  std::memcpy(result->op_params, node->op_params, sizeof result->op_params);
  compute(context.get(), result, threads);
}

void HostGraph::compute(ggml_context* context, ggml_tensor* result, int threads) {
  ggml_backend_dev_t device = ggml().ggml_backend_dev_by_type(GGML_BACKEND_DEVICE_TYPE_CPU);
  if (device == nullptr) throw std::runtime_error("llama.cpp has loaded no CPU backend");
  if (backend_ == nullptr) backend_ = ggml().ggml_backend_dev_init(device, nullptr);
  if (backend_ == nullptr) throw std::runtime_error("llama.cpp's CPU backend does not start");
  auto* set_threads = reinterpret_cast<ggml_backend_set_n_threads_t>(ggml().ggml_backend_reg_get_proc_address(
      ggml().ggml_backend_dev_backend_reg(device), "ggml_backend_set_n_threads"));
  if (set_threads != nullptr) set_threads(backend_, threads);
  ggml_cgraph* graph = ggml().ggml_new_graph(context);
  ggml().ggml_build_forward_expand(graph, result);
  if (ggml().ggml_backend_graph_compute(backend_, graph) != GGML_STATUS_SUCCESS) {
    throw std::runtime_error("llama.cpp's CPU backend failed");
  }
}

}  // namespace kvdrive::llama
