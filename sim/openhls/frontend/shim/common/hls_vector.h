// SPDX-License-Identifier: Apache-2.0
// hls::vector: N elements that are computed side by side, aligned to a power of two of bytes. Software builds and the
// front end of openhls share this file.
#pragma once

#include <cassert>
#include <cstddef>
#include <initializer_list>

namespace hls {

namespace details {
constexpr std::size_t vector_alignment(std::size_t bytes) {
  std::size_t power = 1;
  while (power < bytes && power < 4096) power *= 2;
  return power;
}
}  // namespace details

template <typename T, std::size_t N>
class alignas(details::vector_alignment(N * sizeof(T))) vector {
 public:
  using value_type = T;
  vector() = default;
  vector(const T& value) { fill(value); }
  vector(const T (&values)[N]) {
    for (std::size_t i = 0; i < N; ++i) {
#pragma HLS UNROLL
      data_[i] = values[i];
    }
  }
  vector(std::initializer_list<T> values) {
    assert(values.size() == N);
    const T* from = values.begin();
    for (std::size_t i = 0; i < N; ++i) {
#pragma HLS UNROLL
      data_[i] = from[i];
    }
  }

  T& operator[](std::size_t i) { return data_[i]; }
  const T& operator[](std::size_t i) const { return data_[i]; }
  static constexpr std::size_t size() { return N; }
  T* begin() { return data_; }
  T* end() { return data_ + N; }
  const T* begin() const { return data_; }
  const T* end() const { return data_ + N; }

  // One element after the other, each with the operator of its type.
  template <typename Operation>
  vector combined(const vector& other, Operation operation) const {
    vector result;
    for (std::size_t i = 0; i < N; ++i) {
#pragma HLS UNROLL
      result.data_[i] = static_cast<T>(operation(data_[i], other.data_[i]));
    }
    return result;
  }
  friend vector operator+(const vector& a, const vector& b) {
    return a.combined(b, [](const T& x, const T& y) { return x + y; });
  }
  vector& operator+=(const vector& other) { return *this = *this + other; }
  friend vector operator-(const vector& a, const vector& b) {
    return a.combined(b, [](const T& x, const T& y) { return x - y; });
  }
  vector& operator-=(const vector& other) { return *this = *this - other; }
  friend vector operator*(const vector& a, const vector& b) {
    return a.combined(b, [](const T& x, const T& y) { return x * y; });
  }
  vector& operator*=(const vector& other) { return *this = *this * other; }
  friend vector operator/(const vector& a, const vector& b) {
    return a.combined(b, [](const T& x, const T& y) { return x / y; });
  }
  vector& operator/=(const vector& other) { return *this = *this / other; }
  friend vector operator%(const vector& a, const vector& b) {
    return a.combined(b, [](const T& x, const T& y) { return x % y; });
  }
  vector& operator%=(const vector& other) { return *this = *this % other; }
  friend vector operator&(const vector& a, const vector& b) {
    return a.combined(b, [](const T& x, const T& y) { return x & y; });
  }
  vector& operator&=(const vector& other) { return *this = *this & other; }
  friend vector operator|(const vector& a, const vector& b) {
    return a.combined(b, [](const T& x, const T& y) { return x | y; });
  }
  vector& operator|=(const vector& other) { return *this = *this | other; }
  friend vector operator^(const vector& a, const vector& b) {
    return a.combined(b, [](const T& x, const T& y) { return x ^ y; });
  }
  vector& operator^=(const vector& other) { return *this = *this ^ other; }
  friend vector operator<<(const vector& a, const vector& b) {
    return a.combined(b, [](const T& x, const T& y) { return x << y; });
  }
  vector& operator<<=(const vector& other) { return *this = *this << other; }
  friend vector operator>>(const vector& a, const vector& b) {
    return a.combined(b, [](const T& x, const T& y) { return x >> y; });
  }
  vector& operator>>=(const vector& other) { return *this = *this >> other; }
  friend bool operator==(const vector& a, const vector& b) {
    bool equal = true;
    for (std::size_t i = 0; i < N; ++i) {
#pragma HLS UNROLL
      equal = equal && a.data_[i] == b.data_[i];
    }
    return equal;
  }
  friend bool operator!=(const vector& a, const vector& b) { return !(a == b); }

  template <typename Operation>
  T reduced(Operation operation) const {
    T total = data_[0];
    for (std::size_t i = 1; i < N; ++i) {
#pragma HLS UNROLL
      total = static_cast<T>(operation(total, data_[i]));
    }
    return total;
  }
  T reduce_add() const {
    return reduced([](const T& x, const T& y) { return x + y; });
  }
  T reduce_mult() const {
    return reduced([](const T& x, const T& y) { return x * y; });
  }
  T reduce_and() const {
    return reduced([](const T& x, const T& y) { return x & y; });
  }
  T reduce_or() const {
    return reduced([](const T& x, const T& y) { return x | y; });
  }
  T reduce_xor() const {
    return reduced([](const T& x, const T& y) { return x ^ y; });
  }
  T reduce_max() const {
    return reduced([](const T& x, const T& y) { return x < y ? y : x; });
  }
  T reduce_min() const {
    return reduced([](const T& x, const T& y) { return y < x ? y : x; });
  }

 private:
  void fill(const T& value) {
    for (std::size_t i = 0; i < N; ++i) {
#pragma HLS UNROLL
      data_[i] = value;
    }
  }
  T data_[N];
};

}  // namespace hls
