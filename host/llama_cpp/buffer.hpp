// SPDX-License-Identifier: Apache-2.0
// Buffers of ggml: a cache of K and V in the drive, or memory for what the scheduler puts beside it.
//
// Both come from one buffer type, and the type cannot know which one it allocates: a buffer becomes a cache when
// llama.cpp places a tensor named cache_* in it. Its memory is a range of addresses then that nothing may touch.
#pragma once

#include <cstddef>

#include "ggml_functions.hpp"
#include "kv_cache.hpp"
#include "session_drive.hpp"

namespace kvdrive::llama {

struct Buffer {
  Buffer(SessionDrive& drive, std::size_t bytes);
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  ~Buffer();

  KvCache cache;
  void* memory = nullptr;
  std::size_t size = 0;
};

ggml_backend_buffer_type_t buffer_type();

// True for a tensor of llama.cpp's cache in memory of this type, or a view of one. `cache` is null where the buffer is
// a dummy, with which llama.cpp measures what it would need.
bool in_cache(const ggml_tensor* tensor, KvCache*& cache);

}  // namespace kvdrive::llama
