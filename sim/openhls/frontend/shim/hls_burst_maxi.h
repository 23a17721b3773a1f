// SPDX-License-Identifier: Apache-2.0
// hls::burst_maxi for the front end of openhls: every access is a volatile access far behind the pointer, which the
// importer recognises by its offset (frontend/addresses.py). Nothing of it is ever executed.
#pragma once

#include <ap_int.h>

#include <cstddef>

namespace openhls {

constexpr long kBurstAt = 1L << 40;
constexpr long kReadRequestAt = kBurstAt, kWriteRequestAt = kBurstAt + 64, kAnswerAt = kBurstAt + 128;
constexpr long kElementReadAt = kBurstAt + 4096, kElementWriteAt = kBurstAt + 8192;

// An element as memory holds it: numbers are padded, signed ones with their sign.
template <typename T>
struct element {
  using bits = unsigned _BitInt(8 * sizeof(T));
  AP_INLINE static bits pack(const T& value) {
    bits packed;
    __builtin_memcpy(&packed, &value, sizeof(T));
    return packed;
  }
};
template <int W>
struct element<ap_int<W>> {
  using bits = unsigned _BitInt(8 * sizeof(ap_int<W>));
  AP_INLINE static bits pack(const ap_int<W>& value) {
    return static_cast<bits>(static_cast<_BitInt(8 * sizeof(ap_int<W>))>(value.V));
  }
};
template <int W>
struct element<ap_uint<W>> {
  using bits = unsigned _BitInt(8 * sizeof(ap_uint<W>));
  AP_INLINE static bits pack(const ap_uint<W>& value) { return static_cast<bits>(value.V); }
};

}  // namespace openhls

namespace hls {

template <typename T>
class burst_maxi {
 public:
  using Bits = typename openhls::element<T>::bits;

  AP_INLINE burst_maxi(T* data) : data_(data) {}

  AP_INLINE void read_request(std::size_t offset, std::size_t count) {
    request(openhls::kReadRequestAt, offset, count);
  }
  AP_INLINE T read() {
    const Bits packed = at<Bits>(openhls::kElementReadAt);
    T value;
    __builtin_memcpy(static_cast<void*>(&value), &packed, sizeof(T));
    return value;
  }
  AP_INLINE void write_request(std::size_t offset, std::size_t count) {
    request(openhls::kWriteRequestAt, offset, count);
  }
  AP_INLINE void write(const T& value) { at<Bits>(openhls::kElementWriteAt) = openhls::element<T>::pack(value); }
  AP_INLINE void write_response() {
    [[maybe_unused]] const unsigned char answer = at<unsigned char>(openhls::kAnswerAt);
  }

 private:
  template <typename U>
  AP_INLINE volatile U& at(long offset) const {
    return *reinterpret_cast<volatile U*>(const_cast<unsigned char*>(reinterpret_cast<const unsigned char*>(data_)) +
                                          offset);
  }
  AP_INLINE void request(long place, std::size_t offset, std::size_t count) {
    using Word = unsigned _BitInt(128);
    at<Word>(place) = static_cast<Word>(count) << 96 | static_cast<Word>(offset * sizeof(T));
  }

  T* data_;
};

}  // namespace hls
