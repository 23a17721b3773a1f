// SPDX-License-Identifier: Apache-2.0
#include "versions.hpp"

#include <algorithm>
#include <cstring>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>

#include "device.hpp"
#include "ggml_functions.hpp"

namespace kvdrive::llama {
namespace {

constexpr std::string_view kTested[] = {"0.25.1", "0.25.3", "0.23.0"};

std::string tested() {
  std::string names;
  for (const std::string_view version : kTested) names += (names.empty() ? "" : ", ") + std::string(version);
  return names;
}

void must(bool agrees, const char* what) {
  if (agrees) return;
  throw std::runtime_error(std::string("the structure of ") + what + " in this llama.cpp (ggml " +
                           ggml().ggml_version() +
                           ") is not the one that libggml-kvdrive.so was compiled for: use ggml " + tested());
}

bool same(const char* one, const char* other) { return one != nullptr && std::strcmp(one, other) == 0; }

// ggml reads our structures: what its functions say of them is what we wrote.
void check_device() {
  ggml_backend_reg_t reg = registration();
  must(same(ggml().ggml_backend_reg_name(reg), kDeviceName), "a registration");
  must(ggml().ggml_backend_reg_dev_count(reg) == 1, "a registration");
  must(ggml().ggml_backend_reg_dev_get(reg, 0) == device(), "a registration");
  must(ggml().ggml_backend_reg_get_proc_address(reg, "ggml_backend_set_n_threads") != nullptr, "a registration");
  must(same(ggml().ggml_backend_dev_name(device()), kDeviceName), "a device");
  must(ggml().ggml_backend_dev_type(device()) == GGML_BACKEND_DEVICE_TYPE_GPU, "a device");
  must(ggml().ggml_backend_dev_backend_reg(device()) == reg, "a device");
  ggml_backend_buffer_type_t type = ggml().ggml_backend_dev_buffer_type(device());
  must(ggml().ggml_backend_dev_supports_buft(device(), type), "a device");
  must(same(ggml().ggml_backend_buft_name(type), kDeviceName), "a buffer type");
  must(ggml().ggml_backend_buft_get_alignment(type) == 64, "a buffer type");
  must(ggml().ggml_backend_buft_get_device(type) == device(), "a buffer type");
  must(!ggml().ggml_backend_buft_is_host(type), "a buffer type");
}

// A buffer and a backend of our structures, whose functions note that ggml called them.
struct Calls {
  bool freed = false, cleared = false, computed = false;
  char memory[64] = {};
};
Calls* calls = nullptr;

void check_buffer() {
  ggml_backend_buffer_i functions{};
  functions.free_buffer = [](ggml_backend_buffer_t buffer) { static_cast<Calls*>(buffer->context)->freed = true; };
  functions.get_base = [](ggml_backend_buffer_t buffer) -> void* {
    return static_cast<Calls*>(buffer->context)->memory;
  };
  functions.memset_tensor = [](ggml_backend_buffer_t, ggml_tensor* tensor, std::uint8_t value, std::size_t offset,
                               std::size_t size) {
    std::memset(static_cast<char*>(tensor->data) + offset, value, size);
  };
  functions.set_tensor = [](ggml_backend_buffer_t, ggml_tensor* tensor, const void* data, std::size_t offset,
                            std::size_t size) { std::memcpy(static_cast<char*>(tensor->data) + offset, data, size); };
  functions.get_tensor = [](ggml_backend_buffer_t, const ggml_tensor* tensor, void* data, std::size_t offset,
                            std::size_t size) { std::memcpy(data, static_cast<char*>(tensor->data) + offset, size); };
  functions.clear = [](ggml_backend_buffer_t buffer, std::uint8_t) {
    static_cast<Calls*>(buffer->context)->cleared = true;
  };
  ggml_backend_buffer_t buffer = ggml().ggml_backend_buffer_init(ggml().ggml_backend_dev_buffer_type(device()),
                                                                 functions, calls, sizeof calls->memory);
  must(buffer->size == sizeof calls->memory && ggml().ggml_backend_buffer_get_size(buffer) == buffer->size, "a buffer");
  must(ggml().ggml_backend_buffer_get_base(buffer) == calls->memory, "a buffer");
  ggml().ggml_backend_buffer_set_usage(buffer, GGML_BACKEND_BUFFER_USAGE_COMPUTE);
  must(buffer->usage == GGML_BACKEND_BUFFER_USAGE_COMPUTE, "a buffer");
  ggml().ggml_backend_buffer_clear(buffer, 0);
  must(calls->cleared, "a buffer");
  ggml_tensor tensor{};
  tensor.type = GGML_TYPE_F32;
  tensor.ne[0] = 4;
  std::fill(tensor.ne + 1, tensor.ne + GGML_MAX_DIMS, 1);
  tensor.nb[0] = sizeof(float);
  std::fill(tensor.nb + 1, tensor.nb + GGML_MAX_DIMS, 4 * sizeof(float));
  tensor.buffer = buffer;
  tensor.data = calls->memory;
  const float given[4] = {1, 2, 3, 4};
  float got[4] = {};
  ggml().ggml_backend_tensor_set(&tensor, given, 0, sizeof given);
  ggml().ggml_backend_tensor_get(&tensor, got, 0, sizeof got);
  must(std::memcmp(given, got, sizeof given) == 0, "a tensor");
  ggml().ggml_backend_tensor_memset(&tensor, 0, 0, sizeof(float));
  must(calls->memory[3] == 0, "a tensor");
  ggml().ggml_backend_buffer_free(buffer);
  must(calls->freed, "a buffer");
}

// We read ggml's tensors: what it made is what our header shows.
void check_tensors(ggml_context* context) {
  const auto make = [context](ggml_type type, std::int64_t a, std::int64_t b, std::int64_t c) {
    return ggml().ggml_new_tensor_4d(context, type, a, b, c, 1);
  };
  ggml_tensor* cache = make(GGML_TYPE_F16, 64, 8, 2);
  ggml().ggml_set_name(cache, "cache_k_l7");
  must(same(cache->name, "cache_k_l7"), "a tensor");
  must(cache->type == GGML_TYPE_F16 && cache->ne[1] == 8 && cache->nb[2] == 1024, "a tensor");
  ggml_tensor* view = ggml().ggml_view_3d(context, cache, 32, 2, 8, 64, 128, 1024);
  must(view->view_src == cache && view->view_offs == 1024, "a tensor");
  ggml_tensor* rows = ggml().ggml_set_rows(context, make(GGML_TYPE_F16, 64, 8, 1), make(GGML_TYPE_F32, 64, 1, 1),
                                           make(GGML_TYPE_I64, 1, 1, 1));
  must(rows->op == GGML_OP_SET_ROWS && same(ggml().ggml_op_name(rows->op), "SET_ROWS"), "a node");
  ggml_tensor* q = make(GGML_TYPE_F32, 32, 1, 2);
  ggml_tensor* attention =
      ggml().ggml_flash_attn_ext(context, q, make(GGML_TYPE_F16, 32, 8, 2), make(GGML_TYPE_F16, 32, 8, 2),
                                 make(GGML_TYPE_F16, 8, 1, 1), 0.5F, 0, 2.0F);
  float parameters[3] = {};
  std::memcpy(parameters, attention->op_params, sizeof parameters);
  must(attention->op == GGML_OP_FLASH_ATTN_EXT && same(ggml().ggml_op_name(attention->op), "FLASH_ATTN_EXT"), "a node");
  must(attention->src[0] == q && parameters[0] == 0.5F && parameters[1] == 0 && parameters[2] == 2.0F, "a node");
  ggml_cgraph* graph = ggml().ggml_new_graph(context);
  ggml().ggml_build_forward_expand(graph, attention);
  const int nodes = ggml().ggml_graph_n_nodes(graph);
  must(nodes > 0 && ggml().ggml_graph_node(graph, nodes - 1) == attention, "a graph");
  must((attention->flags & GGML_TENSOR_FLAG_COMPUTE) != 0, "a node");

  ggml_backend backend{};
  backend.iface.get_name = [](ggml_backend_t) { return kDeviceName; };
  backend.iface.graph_compute = [](ggml_backend_t of, ggml_cgraph*) {
    static_cast<Calls*>(of->context)->computed = true;
    return GGML_STATUS_SUCCESS;
  };
  backend.device = device();
  backend.context = calls;
  must(same(ggml().ggml_backend_name(&backend), kDeviceName), "a backend");
  must(ggml().ggml_backend_get_device(&backend) == device(), "a backend");
  must(ggml().ggml_backend_graph_compute(&backend, graph) == GGML_STATUS_SUCCESS && calls->computed, "a backend");
}

}  // namespace

void check_version() {
  const std::string version = ggml().ggml_version();
  if (std::find(std::begin(kTested), std::end(kTested), version) == std::end(kTested)) {
    throw std::runtime_error("libggml-kvdrive.so is not tested with this llama.cpp (ggml " + version + "): use ggml " +
                             tested());
  }
  Calls noted;
  calls = &noted;
  check_device();
  check_buffer();
  const std::size_t bytes = 32 * ggml().ggml_tensor_overhead() + ggml().ggml_graph_overhead();
  const std::unique_ptr<ggml_context, decltype(&ggml_free)> context(
      ggml().ggml_init({.mem_size = bytes, .mem_buffer = nullptr, .no_alloc = true}), ggml().ggml_free);
  check_tensors(context.get());
  calls = nullptr;
}

}  // namespace kvdrive::llama
