// SPDX-License-Identifier: Apache-2.0
#include "buffer.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <new>
#include <stdexcept>
#include <string_view>
#include <vector>

#include "device.hpp"
#include "plugin.hpp"

namespace kvdrive::llama {
namespace {

constexpr std::size_t kAlignment = 64;
constexpr std::uint32_t kCellsTogether = 4096;  // of a state that llama.cpp restores

Buffer& of(ggml_backend_buffer_t buffer) { return *static_cast<Buffer*>(buffer->context); }

const ggml_tensor* owner_of(const ggml_tensor* view) { return view->view_src == nullptr ? view : view->view_src; }

bool named_cache(const ggml_tensor* tensor) { return std::string_view(tensor->name).starts_with("cache_"); }

// Runs what ggml gives no way to fail. After a failure the next computation fails.
template <typename Work>
void guarded(KvCache& cache, Work work) {
  try {
    work();
  } catch (const std::exception& error) {
    report(error.what());
    cache.refuse(error.what());
  }
}

void free_buffer(ggml_backend_buffer_t buffer) {
  Plugin::get().remove(&of(buffer));
  delete &of(buffer);
}

void* get_base(ggml_backend_buffer_t buffer) { return of(buffer).memory; }

ggml_status init_tensor(ggml_backend_buffer_t buffer, ggml_tensor* tensor) {
  if (tensor->view_src != nullptr || !named_cache(tensor)) return GGML_STATUS_SUCCESS;
  Buffer& target = of(buffer);
  try {
    if (target.cache.empty()) mprotect(target.memory, target.size, PROT_NONE);
    target.cache.add(tensor);
  } catch (const std::exception& error) {
    report(error.what());
    return GGML_STATUS_FAILED;
  }
  return GGML_STATUS_SUCCESS;
}

// Writes rows of a cache: `data`, or zeros.
void write_cells(KvCache& cache, KvCache::Tensor& tensor, const KvCache::Range& range, const void* data) {
  std::vector<std::uint32_t> cells;
  std::vector<std::uint16_t> rows;
  for (std::uint32_t done = 0; done < range.cells;) {
    const std::uint32_t part = std::min(range.cells - done, kCellsTogether);
    cells.resize(part);
    for (std::uint32_t i = 0; i < part; ++i) cells[i] = range.first_cell + done + i;
    rows.assign(std::size_t{part} * tensor.row, 0);
    if (data != nullptr) {
      std::memcpy(rows.data(), static_cast<const char*>(data) + done * tensor.row_bytes(), part * tensor.row_bytes());
    }
    cache.write(tensor, range.stream, cells, rows.data(), KvCache::Writer::kHost);
    done += part;
  }
}

void memset_tensor(ggml_backend_buffer_t buffer, ggml_tensor* tensor, std::uint8_t value, std::size_t offset,
                   std::size_t size) {
  KvCache& cache = of(buffer).cache;
  KvCache::Tensor* target = cache.find(tensor);
  if (target == nullptr) {
    std::memset(static_cast<char*>(tensor->data) + offset, value, size);
    return;
  }
  guarded(cache, [&] {
    if (value != 0) throw std::runtime_error("llama.cpp filled K or V with other numbers than zeros");
    write_cells(cache, *target, cache.range(*target, tensor, offset, size), nullptr);
  });
}

void set_tensor(ggml_backend_buffer_t buffer, ggml_tensor* tensor, const void* data, std::size_t offset,
                std::size_t size) {
  KvCache& cache = of(buffer).cache;
  KvCache::Tensor* target = cache.find(tensor);
  if (target == nullptr) {
    std::memcpy(static_cast<char*>(tensor->data) + offset, data, size);
    return;
  }
  guarded(cache, [&] {
    const KvCache::Range range = cache.range(*target, tensor, offset, size);
    if (!cache.takes(*target, range)) write_cells(cache, *target, range, data);
  });
}

void get_tensor(ggml_backend_buffer_t buffer, const ggml_tensor* tensor, void* data, std::size_t offset,
                std::size_t size) {
  KvCache& cache = of(buffer).cache;
  KvCache::Tensor* source = cache.find(tensor);
  if (source == nullptr) {
    std::memcpy(data, static_cast<const char*>(tensor->data) + offset, size);
    return;
  }
  std::memset(data, 0, size);
  guarded(cache, [&] {
    const KvCache::Range range = cache.range(*source, tensor, offset, size);
    std::vector<std::uint16_t> rows(std::size_t{range.cells} * source->row);
    cache.read(*source, range, rows.data());
    std::memcpy(data, rows.data(), size);
  });
}

// A copy of a whole stream is a fork. ggml does all other copies through get_tensor and set_tensor.
bool cpy_tensor(ggml_backend_buffer_t buffer, const ggml_tensor* source, ggml_tensor* target) {
  KvCache& cache = of(buffer).cache;
  KvCache::Tensor *from = cache.find(source), *to = cache.find(target);
  if (from == nullptr || from != to) return false;
  guarded(cache, [&] {
    const auto whole = [&](const ggml_tensor* view) {
      const KvCache::Range range = cache.range(*from, view, 0, ggml().ggml_nbytes(view));
      if (range.first_cell != 0 || range.cells != cache.cells()) {
        throw std::runtime_error("llama.cpp copied a part of a sequence inside the drive");
      }
      return range.stream;
    };
    cache.copy(*from, whole(source), whole(target));
  });
  return true;
}

void clear(ggml_backend_buffer_t buffer, std::uint8_t value) {
  Buffer& target = of(buffer);
  if (!target.cache.empty()) {
    guarded(target.cache, [&] {
      if (value != 0) throw std::runtime_error("llama.cpp filled K and V with other numbers than zeros");
      target.cache.clear();
    });
  } else if (value != 0) {
    std::memset(target.memory, value, target.size);
  } else {
    madvise(target.memory, target.size, MADV_DONTNEED);  // private memory reads as zeros then, and takes no room
  }
}

const char* type_name(ggml_backend_buffer_type_t) { return kDeviceName; }

ggml_backend_buffer_t alloc_buffer(ggml_backend_buffer_type_t type, std::size_t size) {
  try {
    const std::string refusal = Plugin::get().refusal();
    if (!refusal.empty()) throw std::runtime_error("llama.cpp gets no memory, because " + refusal);
    auto buffer = std::make_unique<Buffer>(Plugin::get().drive(), size);
    ggml_backend_buffer_i calls{};
    calls.free_buffer = free_buffer;
    calls.get_base = get_base;
    calls.init_tensor = init_tensor;
    calls.memset_tensor = memset_tensor;
    calls.set_tensor = set_tensor;
    calls.get_tensor = get_tensor;
    calls.cpy_tensor = cpy_tensor;
    calls.clear = clear;
    Plugin::get().add(buffer.get());
    return ggml().ggml_backend_buffer_init(type, calls, buffer.release(), size);
  } catch (const std::exception& error) {
    report(error.what());
    return nullptr;
  }
}

std::size_t get_alignment(ggml_backend_buffer_type_t) { return kAlignment; }

}  // namespace

Buffer::Buffer(SessionDrive& drive, std::size_t bytes) : cache(drive), size(bytes) {
  memory = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) throw std::runtime_error("this machine has no addresses for a cache of this size (-c)");
}

Buffer::~Buffer() { munmap(memory, size); }

ggml_backend_buffer_type_t buffer_type() {
  static ggml_backend_buffer_type type = [] {
    ggml_backend_buffer_type made{};
    made.iface.get_name = type_name;
    made.iface.alloc_buffer = alloc_buffer;
    made.iface.get_alignment = get_alignment;
    made.device = device();
    return made;
  }();
  return &type;
}

bool in_cache(const ggml_tensor* tensor, KvCache*& cache) {
  const ggml_tensor* owner = owner_of(tensor);
  if (owner->buffer == nullptr || owner->buffer->buft != buffer_type() || !named_cache(owner)) return false;
  cache = owner->buffer->context == nullptr ? nullptr : &of(owner->buffer).cache;
  return true;
}

}  // namespace kvdrive::llama
