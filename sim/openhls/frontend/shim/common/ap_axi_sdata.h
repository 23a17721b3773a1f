// SPDX-License-Identifier: Apache-2.0
// Words of AXI4-Stream with side channels: hls::axis, ap_axis and ap_axiu. Software builds and the front end of openhls
// share this file. A word travels as its fields, one above the other: data, keep, strb, user, last, id, dest.
#pragma once

#include <ap_int.h>

#include <cstddef>
#include <cstdint>
#include <type_traits>

#define AXIS_ENABLE_DATA 0b00000001
#define AXIS_ENABLE_DEST 0b00000010
#define AXIS_ENABLE_ID 0b00000100
#define AXIS_ENABLE_KEEP 0b00001000
#define AXIS_ENABLE_LAST 0b00010000
#define AXIS_ENABLE_STRB 0b00100000
#define AXIS_ENABLE_USER 0b01000000
#define AXIS_ENABLE_ALL 0b01111111
#define AXIS_DISABLE_DATA (AXIS_ENABLE_ALL ^ AXIS_ENABLE_DATA)
#define AXIS_DISABLE_DEST (AXIS_ENABLE_ALL ^ AXIS_ENABLE_DEST)
#define AXIS_DISABLE_ID (AXIS_ENABLE_ALL ^ AXIS_ENABLE_ID)
#define AXIS_DISABLE_KEEP (AXIS_ENABLE_ALL ^ AXIS_ENABLE_KEEP)
#define AXIS_DISABLE_LAST (AXIS_ENABLE_ALL ^ AXIS_ENABLE_LAST)
#define AXIS_DISABLE_STRB (AXIS_ENABLE_ALL ^ AXIS_ENABLE_STRB)
#define AXIS_DISABLE_USER (AXIS_ENABLE_ALL ^ AXIS_ENABLE_USER)
#define AXIS_DISABLE_ALL 0

namespace openhls {

// The bits of a value: numbers as they are, everything else as its bytes.
template <typename T>
struct flat {
  static constexpr int kWidth = 8 * static_cast<int>(sizeof(T));
  template <typename Word>
  static void put(Word& word, int low, const T& value) {
    unsigned char raw[sizeof(T)];
    __builtin_memcpy(raw, &value, sizeof(T));
    for (std::size_t i = 0; i < sizeof(T); ++i) {
#pragma HLS UNROLL
      word.range(low + 8 * static_cast<int>(i) + 7, low + 8 * static_cast<int>(i)) = raw[i];
    }
  }
  template <typename Word>
  static void get(const Word& word, int low, T& value) {
    unsigned char raw[sizeof(T)];
    for (std::size_t i = 0; i < sizeof(T); ++i) {
#pragma HLS UNROLL
      const int at = low + 8 * static_cast<int>(i);
      raw[i] = static_cast<unsigned char>(ap_uint<8>(Word(word).range(at + 7, at)).to_uint());
    }
    __builtin_memcpy(static_cast<void*>(&value), raw, sizeof(T));
  }
};
template <typename T, int W>
struct flat_number {
  static constexpr int kWidth = W;
  template <typename Word>
  static void put(Word& word, int low, const T& value) {
    word.range(low + W - 1, low) = ap_uint<W>(value);
  }
  template <typename Word>
  static void get(const Word& word, int low, T& value) {
    value = T(ap_uint<W>(Word(word).range(low + W - 1, low)));
  }
};
template <int W>
struct flat<ap_uint<W>> : flat_number<ap_uint<W>, W> {};
template <int W>
struct flat<ap_int<W>> : flat_number<ap_int<W>, W> {};

// A channel that a stream does not have: it takes anything and is 0.
struct no_channel {
  no_channel() = default;
  template <typename T>
  no_channel(const T&) {}
  operator int() const { return 0; }
};
template <>
struct flat<no_channel> {
  static constexpr int kWidth = 0;
  template <typename Word>
  static void put(Word&, int, const no_channel&) {}
  template <typename Word>
  static void get(const Word&, int, no_channel&) {}
};

template <int W>
struct channel {
  using type = ap_uint<W>;
};
template <>
struct channel<0> {
  using type = no_channel;
};
template <typename T, bool Has>
struct data_channel {
  using type = typename std::conditional<Has, T, no_channel>::type;
};
template <bool Has>
struct data_channel<void, Has> {
  using type = no_channel;
};

}  // namespace openhls

namespace hls {

template <typename T, std::size_t WUser = 0, std::size_t WId = 0, std::size_t WDest = 0,
          std::uint8_t Enabled = AXIS_ENABLE_ALL, bool Strict = false>
struct axis {
  using Data = typename openhls::data_channel<T, (Enabled & AXIS_ENABLE_DATA) != 0>::type;
  static constexpr int kBytes = (openhls::flat<Data>::kWidth + 7) / 8;
  using Keep = typename openhls::channel<(Enabled & AXIS_ENABLE_KEEP) != 0 ? kBytes : 0>::type;
  using Strb = typename openhls::channel<(Enabled & AXIS_ENABLE_STRB) != 0 ? kBytes : 0>::type;
  using User = typename openhls::channel<(Enabled & AXIS_ENABLE_USER) != 0 ? static_cast<int>(WUser) : 0>::type;
  using Last = typename openhls::channel<(Enabled & AXIS_ENABLE_LAST) != 0 ? 1 : 0>::type;
  using Id = typename openhls::channel<(Enabled & AXIS_ENABLE_ID) != 0 ? static_cast<int>(WId) : 0>::type;
  using Dest = typename openhls::channel<(Enabled & AXIS_ENABLE_DEST) != 0 ? static_cast<int>(WDest) : 0>::type;

  Data data;
  Keep keep;
  Strb strb;
  User user;
  Last last;
  Id id;
  Dest dest;

  Data get_data() const { return data; }
  Keep get_keep() const { return keep; }
  Strb get_strb() const { return strb; }
  User get_user() const { return user; }
  Last get_last() const { return last; }
  Id get_id() const { return id; }
  Dest get_dest() const { return dest; }
  void set_data(const Data& value) { data = value; }
  void set_keep(const Keep& value) { keep = value; }
  void set_strb(const Strb& value) { strb = value; }
  void set_user(const User& value) { user = value; }
  void set_last(const Last& value) { last = value; }
  void set_id(const Id& value) { id = value; }
  void set_dest(const Dest& value) { dest = value; }
  void keep_all() { keep = -1; }

  // How the word travels.
  static constexpr int kKeepAt = openhls::flat<Data>::kWidth;
  static constexpr int kStrbAt = kKeepAt + openhls::flat<Keep>::kWidth;
  static constexpr int kUserAt = kStrbAt + openhls::flat<Strb>::kWidth;
  static constexpr int kLastAt = kUserAt + openhls::flat<User>::kWidth;
  static constexpr int kIdAt = kLastAt + openhls::flat<Last>::kWidth;
  static constexpr int kDestAt = kIdAt + openhls::flat<Id>::kWidth;
  static constexpr int kWidth = kDestAt + openhls::flat<Dest>::kWidth;
  using Word = ap_uint<kWidth>;
  void pack(Word& word) const {
    openhls::flat<Data>::put(word, 0, data);
    openhls::flat<Keep>::put(word, kKeepAt, keep);
    openhls::flat<Strb>::put(word, kStrbAt, strb);
    openhls::flat<User>::put(word, kUserAt, user);
    openhls::flat<Last>::put(word, kLastAt, last);
    openhls::flat<Id>::put(word, kIdAt, id);
    openhls::flat<Dest>::put(word, kDestAt, dest);
  }
  void unpack(const Word& word) {
    openhls::flat<Data>::get(word, 0, data);
    openhls::flat<Keep>::get(word, kKeepAt, keep);
    openhls::flat<Strb>::get(word, kStrbAt, strb);
    openhls::flat<User>::get(word, kUserAt, user);
    openhls::flat<Last>::get(word, kLastAt, last);
    openhls::flat<Id>::get(word, kIdAt, id);
    openhls::flat<Dest>::get(word, kDestAt, dest);
  }
};

template <typename T, std::uint8_t Enabled = AXIS_ENABLE_ALL, bool Strict = false>
using axis_data = axis<T, 0, 0, 0, Enabled, Strict>;
template <std::size_t WUser, std::uint8_t Enabled = AXIS_ENABLE_ALL, bool Strict = false>
using axis_user = axis<void, WUser, 0, 0, Enabled, Strict>;

template <std::size_t W, std::size_t WUser = 0, std::size_t WId = 0, std::size_t WDest = 0,
          std::uint8_t Enabled = AXIS_ENABLE_ALL, bool Strict = false>
using ap_axis = axis<ap_int<static_cast<int>(W)>, WUser, WId, WDest, Enabled, Strict>;
template <std::size_t W, std::size_t WUser = 0, std::size_t WId = 0, std::size_t WDest = 0,
          std::uint8_t Enabled = AXIS_ENABLE_ALL, bool Strict = false>
using ap_axiu = axis<ap_uint<static_cast<int>(W)>, WUser, WId, WDest, Enabled, Strict>;

}  // namespace hls

template <std::size_t W, std::size_t WUser = 0, std::size_t WId = 0, std::size_t WDest = 0,
          std::uint8_t Enabled = AXIS_ENABLE_ALL, bool Strict = false>
using ap_axis = hls::ap_axis<W, WUser, WId, WDest, Enabled, Strict>;
template <std::size_t W, std::size_t WUser = 0, std::size_t WId = 0, std::size_t WDest = 0,
          std::uint8_t Enabled = AXIS_ENABLE_ALL, bool Strict = false>
using ap_axiu = hls::ap_axiu<W, WUser, WId, WDest, Enabled, Strict>;

// Packets of the vendor's QDMA: data, keep and last.
template <std::size_t W, std::size_t WUser, std::size_t WId, std::size_t WDest>
using qdma_axis = hls::axis<ap_uint<static_cast<int>(W)>, WUser, WId, WDest,
                            AXIS_ENABLE_DATA | AXIS_ENABLE_KEEP | AXIS_ENABLE_LAST>;
