// SPDX-License-Identifier: Apache-2.0
// numpy arrays as arguments and results. Arguments are in C order.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <utility>
#include <vector>

namespace kvdrive {

template <typename T, int N>
using In = nanobind::ndarray<const T, nanobind::ndim<N>, nanobind::c_contig, nanobind::device::cpu>;
template <typename T, int N>
using Out = nanobind::ndarray<nanobind::numpy, T, nanobind::ndim<N>>;
using Bytes = In<std::uint8_t, 1>;
using OutBytes = Out<std::uint8_t, 1>;

// Moves a vector into a numpy array without a copy.
template <typename T, int N>
Out<T, N> to_numpy(std::vector<T>&& values, std::initializer_list<std::size_t> shape) {
  auto* owner = new std::vector<T>(std::move(values));
  nanobind::capsule capsule(owner, [](void* p) noexcept { delete static_cast<std::vector<T>*>(p); });
  return Out<T, N>(owner->data(), shape, capsule);
}

template <typename T>
Out<T, 1> to_numpy(std::vector<T>&& values) {
  const std::size_t size = values.size();
  return to_numpy<T, 1>(std::move(values), {size});
}

inline OutBytes to_numpy(std::vector<std::byte>&& data) {
  auto* owner = new std::vector<std::byte>(std::move(data));
  nanobind::capsule capsule(owner, [](void* p) noexcept { delete static_cast<std::vector<std::byte>*>(p); });
  return OutBytes(owner->data(), {owner->size()}, capsule);
}

}  // namespace kvdrive
