// SPDX-License-Identifier: Apache-2.0
// Memory for direct I/O. It starts at a multiple of the page size and grows by doubling.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <memory>
#include <new>
#include <span>
#include <utility>

#include "common/abi.hpp"

namespace kvdrive {

class AlignedBuffer {
 public:
  AlignedBuffer() = default;
  explicit AlignedBuffer(std::size_t size) { resize(size); }
  AlignedBuffer(AlignedBuffer&& other) noexcept
      : bytes_(std::move(other.bytes_)),
        size_(std::exchange(other.size_, 0)),
        capacity_(std::exchange(other.capacity_, 0)) {}
  AlignedBuffer& operator=(AlignedBuffer&& other) noexcept {
    bytes_ = std::move(other.bytes_);
    size_ = std::exchange(other.size_, 0);
    capacity_ = std::exchange(other.capacity_, 0);
    return *this;
  }

  std::byte* data() { return bytes_.get(); }
  const std::byte* data() const { return bytes_.get(); }
  std::size_t size() const { return size_; }
  std::span<std::byte> span() { return {data(), size_}; }
  std::span<const std::byte> span() const { return {data(), size_}; }

  void resize(std::size_t size) {
    reserve(size);
    if (size > size_) std::memset(bytes_.get() + size_, 0, size - size_);
    size_ = size;
  }

  // Adds `bytes` bytes with undefined contents and returns their address.
  std::byte* extend(std::size_t bytes) {
    reserve(size_ + bytes);
    size_ += bytes;
    return bytes_.get() + size_ - bytes;
  }

  void append(std::span<const std::byte> bytes) {
    reserve(size_ + bytes.size());
    if (!bytes.empty()) std::memcpy(bytes_.get() + size_, bytes.data(), bytes.size());
    size_ += bytes.size();
  }

 private:
  void reserve(std::size_t size) {
    if (size <= capacity_) return;
    const std::size_t pages = (std::max(size, capacity_ * 2) + abi::kPageBytes - 1) / abi::kPageBytes;
    Bytes grown(static_cast<std::byte*>(::operator new(pages * abi::kPageBytes, kAlignment)));
    if (size_ > 0) std::memcpy(grown.get(), bytes_.get(), size_);
    bytes_ = std::move(grown);
    capacity_ = pages * abi::kPageBytes;
  }

  static constexpr std::align_val_t kAlignment{abi::kPageBytes};
  struct Free {
    void operator()(std::byte* bytes) const { ::operator delete(bytes, kAlignment); }
  };
  using Bytes = std::unique_ptr<std::byte, Free>;

  Bytes bytes_;
  std::size_t size_ = 0;
  std::size_t capacity_ = 0;
};

}  // namespace kvdrive
