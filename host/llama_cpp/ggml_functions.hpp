// SPDX-License-Identifier: Apache-2.0
// The functions of ggml that the plugin calls, taken from the very libraries that loaded it.
//
// The plugin is linked to no ggml: the name of that library differs between builds of llama.cpp, and a process may hold
// several of them, some of which are not visible to a library that is loaded later.
#pragma once

#include "ggml-backend-impl.h"
#include "ggml-backend.h"
#include "ggml.h"

#define KVDRIVE_GGML_FUNCTIONS(X)      \
  X(ggml_backend_buffer_clear)         \
  X(ggml_backend_buffer_free)          \
  X(ggml_backend_buffer_get_base)      \
  X(ggml_backend_buffer_get_size)      \
  X(ggml_backend_buffer_get_usage)     \
  X(ggml_backend_buffer_init)          \
  X(ggml_backend_buffer_set_usage)     \
  X(ggml_backend_buft_get_alignment)   \
  X(ggml_backend_buft_get_device)      \
  X(ggml_backend_buft_is_host)         \
  X(ggml_backend_buft_name)            \
  X(ggml_backend_dev_backend_reg)      \
  X(ggml_backend_dev_buffer_type)      \
  X(ggml_backend_dev_by_type)          \
  X(ggml_backend_dev_description)      \
  X(ggml_backend_dev_init)             \
  X(ggml_backend_dev_memory)           \
  X(ggml_backend_dev_name)             \
  X(ggml_backend_dev_supports_buft)    \
  X(ggml_backend_dev_supports_op)      \
  X(ggml_backend_dev_type)             \
  X(ggml_backend_free)                 \
  X(ggml_backend_get_device)           \
  X(ggml_backend_graph_compute)        \
  X(ggml_backend_name)                 \
  X(ggml_backend_reg_dev_count)        \
  X(ggml_backend_reg_dev_get)          \
  X(ggml_backend_reg_get_proc_address) \
  X(ggml_backend_reg_name)             \
  X(ggml_backend_tensor_get)           \
  X(ggml_backend_tensor_memset)        \
  X(ggml_backend_tensor_set)           \
  X(ggml_build_forward_expand)         \
  X(ggml_flash_attn_ext)               \
  X(ggml_fp16_to_fp32_row)             \
  X(ggml_fp32_to_fp16_row)             \
  X(ggml_free)                         \
  X(ggml_graph_n_nodes)                \
  X(ggml_graph_node)                   \
  X(ggml_graph_overhead)               \
  X(ggml_init)                         \
  X(ggml_nbytes)                       \
  X(ggml_new_graph)                    \
  X(ggml_new_tensor_4d)                \
  X(ggml_op_name)                      \
  X(ggml_rope_ext_inplace)             \
  X(ggml_set_name)                     \
  X(ggml_set_rows)                     \
  X(ggml_tensor_overhead)              \
  X(ggml_type_name)                    \
  X(ggml_version)                      \
  X(ggml_view_3d)

namespace kvdrive::llama {

struct GgmlFunctions {
#define KVDRIVE_MEMBER(name) decltype(&::name) name;
  KVDRIVE_GGML_FUNCTIONS(KVDRIVE_MEMBER)
#undef KVDRIVE_MEMBER
};

// Finds the functions in the library that holds `caller`, code of ggml, and in what that library was linked to. Throws
// std::runtime_error with a sentence if one is missing.
void find_ggml(const void* caller);

// Precondition: find_ggml has returned.
const GgmlFunctions& ggml();

}  // namespace kvdrive::llama
