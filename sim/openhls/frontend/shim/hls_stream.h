// SPDX-License-Identifier: Apache-2.0
// hls::stream for the front end of openhls: every access is a volatile access to a fixed place in the stream object,
// which the importer recognises by its offset. Nothing of it is ever executed.
#pragma once

#include <ap_int.h>

namespace hls {
template <typename T, unsigned long, unsigned long, unsigned long, unsigned char, bool>
struct axis;
}

namespace openhls {

// How a word travels: numbers as they are, everything else as its bytes.
template <typename T>
struct word {
  static constexpr int kWidth = 8 * sizeof(T);
  using bits = unsigned _BitInt(8 * sizeof(T));
  AP_INLINE static void pack(bits& packed, const T& value) { __builtin_memcpy(&packed, &value, sizeof(T)); }
  AP_INLINE static void unpack(T& value, const bits& packed) {
    __builtin_memcpy(static_cast<void*>(&value), &packed, sizeof(T));
  }
};
template <typename T, int W>
struct number_word {
  static constexpr int kWidth = W;
  using bits = unsigned _BitInt(W);
  AP_INLINE static void pack(bits& packed, const T& value) { packed = static_cast<bits>(value.V); }
  AP_INLINE static void unpack(T& value, const bits& packed) { value.set_raw(packed); }
};
template <int W>
struct word<ap_uint<W>> : number_word<ap_uint<W>, W> {};
template <int W>
struct word<ap_int<W>> : number_word<ap_int<W>, W> {};
// Side channels (ap_axi_sdata.h) are fields of the word.
template <typename T, unsigned long U, unsigned long I, unsigned long D, unsigned char E, bool S>
struct word<hls::axis<T, U, I, D, E, S>> {
  using axis = hls::axis<T, U, I, D, E, S>;
  static constexpr int kWidth = axis::kWidth;
  using bits = unsigned _BitInt(kWidth);
  AP_INLINE static void pack(bits& packed, const axis& value) {
    typename axis::Word all = 0;
    value.pack(all);
    packed = all.V;
  }
  AP_INLINE static void unpack(axis& value, const bits& packed) {
    typename axis::Word all;
    all.set_raw(packed);
    value.unpack(all);
  }
};
template <>
struct word<bool> {
  static constexpr int kWidth = 1;
  using bits = unsigned _BitInt(1);
  AP_INLINE static void pack(bits& packed, bool value) { packed = value; }
  AP_INLINE static void unpack(bool& value, const bits& packed) { value = packed != 0; }
};

// Places in a stream object, in bytes, and what an access there means. Words of `width` bits are read and written at
// 64 * width behind the first place of their kind, because memory holds padded words.
constexpr int kMaxWordBits = 8192;
constexpr int kReadAt = 0, kWriteAt = 1 << 20, kEmptyAt = 2 << 20, kFullAt = kEmptyAt + 64, kDepthAt = kEmptyAt + 128;
constexpr int kStreamBytes = kEmptyAt + 192;

}  // namespace openhls

namespace hls {

template <typename T, int Depth = 0>
class stream;

template <typename T>
class stream<T, 0> {
 public:
  AP_INLINE constexpr stream() { made(); }
  AP_INLINE constexpr explicit stream(const char*) { made(); }
  stream(const stream&) = delete;
  stream& operator=(const stream&) = delete;

  AP_INLINE T read() {
    Bits packed = at<Bits>(openhls::kReadAt + 64 * Word::kWidth);
    T value;
    Word::unpack(value, packed);
    return value;
  }
  AP_INLINE void read(T& value) { value = read(); }
  AP_INLINE void operator>>(T& value) { value = read(); }
  AP_INLINE void write(const T& value) {
    Bits packed;
    Word::pack(packed, value);
    at<Bits>(openhls::kWriteAt + 64 * Word::kWidth) = packed;
  }
  AP_INLINE void operator<<(const T& value) { write(value); }
  AP_INLINE bool read_nb(T& value) {
    if (empty()) return false;
    value = read();
    return true;
  }
  AP_INLINE bool write_nb(const T& value) {
    if (full()) return false;
    write(value);
    return true;
  }
  AP_INLINE bool empty() const { return at<unsigned char>(openhls::kEmptyAt) != 0; }
  AP_INLINE bool full() const { return at<unsigned char>(openhls::kFullAt) != 0; }
  AP_INLINE void openhls_depth(int words) { at<int>(openhls::kDepthAt) = words; }

 protected:
  using Word = openhls::word<T>;
  using Bits = typename Word::bits;
  static_assert(Word::kWidth <= openhls::kMaxWordBits, "openhls: a stream word has at most 8192 bits");

  template <typename U>
  AP_INLINE volatile U& at(int offset) const {
    return *reinterpret_cast<volatile U*>(const_cast<unsigned char*>(place) + offset);
  }

  // Marks where the life of a stream begins, empty. The mark also keeps clang from taking the object apart: its words
  // would become variables of their own.
  AP_INLINE constexpr void made() {
    if (!__builtin_is_constant_evaluated()) asm volatile("openhls.stream" : : "r"(this));
  }

  alignas(64) unsigned char place[openhls::kStreamBytes];
};

template <typename T, int Depth>
class stream : public stream<T, 0> {
  static_assert(Depth > 0, "openhls: a stream has a depth of one word at least");

 public:
  AP_INLINE stream() { this->openhls_depth(Depth); }
  AP_INLINE explicit stream(const char*) : stream() {}
};

}  // namespace hls
