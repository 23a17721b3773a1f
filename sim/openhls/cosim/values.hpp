// SPDX-License-Identifier: Apache-2.0
// Values, buffers and arguments of the top as 32-bit words of a record.
//
// Record of a case, 32-bit words: the seed or number of the case; each scalar; each input stream: count, words; each
// output stream: count, words; each output; each pointer: bytes of its buffer, their words before and after. A value of
// w bits has ceil(w / 32) words, the low one first; a buffer holds its elements one after the other.
#pragma once

#include <ap_fixed.h>
#include <ap_int.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <random>
#include <type_traits>
#include <vector>

#ifdef __SANITIZE_ADDRESS__
extern "C" inline const char* __asan_default_options() { return "detect_leaks=0"; }
#endif

namespace openhls {

using Words = std::vector<std::uint32_t>;

// ---- values as words ----

template <typename Word>
using Travels = void;
template <typename T, typename = void>
struct Bits {
  static_assert(std::is_integral<T>::value || std::is_enum<T>::value,
                "arguments and stream words must be integers or ap_int types: pack a struct into an ap_uint");
  static constexpr int kWidth = std::is_same<T, bool>::value ? 1 : 8 * static_cast<int>(sizeof(T));
  static void put(Words& out, T value) {
    const auto bits = static_cast<std::uint64_t>(value);
    out.push_back(static_cast<std::uint32_t>(bits & (kWidth < 32 ? (1ull << kWidth) - 1 : 0xffffffffull)));
    if (kWidth > 32) out.push_back(static_cast<std::uint32_t>(bits >> 32));
  }
  static T get(const Words& in) {
    const std::uint64_t high = kWidth > 32 ? in[1] : 0;
    return static_cast<T>(in[0] | high << 32);
  }
};

template <typename T, int kBits>
struct ApBits {
  static constexpr int kWidth = kBits;
  static void put(Words& out, const T& value) {
    for (int low = 0; low < kBits; low += 32) {
      out.push_back(static_cast<std::uint32_t>(T(value).range(low + 32 < kBits ? low + 31 : kBits - 1, low).to_uint()));
    }
  }
  static T get(const Words& in) {
    T value = 0;
    for (int low = 0; low < kBits; low += 32) {
      value.range(low + 32 < kBits ? low + 31 : kBits - 1, low) = in[static_cast<std::size_t>(low / 32)];
    }
    return value;
  }
};

template <typename T>
struct IsAp : std::false_type {};
template <int kBits>
struct IsAp<ap_uint<kBits>> : std::true_type {};
template <int kBits>
struct IsAp<ap_int<kBits>> : std::true_type {};
template <int kBits, int kInteger, ap_q_mode kQ, ap_o_mode kO, int kN>
struct IsAp<ap_fixed<kBits, kInteger, kQ, kO, kN>> : std::true_type {};
template <int kBits, int kInteger, ap_q_mode kQ, ap_o_mode kO, int kN>
struct IsAp<ap_ufixed<kBits, kInteger, kQ, kO, kN>> : std::true_type {};
template <typename T>
struct IsSignedAp : std::false_type {};
template <int kBits, int kInteger, ap_q_mode kQ, ap_o_mode kO, int kN>
struct IsSignedAp<ap_fixed<kBits, kInteger, kQ, kO, kN>> : std::true_type {};
template <int kBits>
struct IsSignedAp<ap_int<kBits>> : std::true_type {};

// What knows how it travels: the words of AXI4-Stream with side channels.
template <typename T>
struct Bits<T, Travels<typename T::Word>> {
  static constexpr int kWidth = T::kWidth;
  static void put(Words& out, const T& value) {
    typename T::Word all = 0;
    value.pack(all);
    ApBits<typename T::Word, kWidth>::put(out, all);
  }
  static T get(const Words& in) {
    T value;
    value.unpack(ApBits<typename T::Word, kWidth>::get(in));
    return value;
  }
};
template <int kBits>
struct Bits<ap_uint<kBits>> : ApBits<ap_uint<kBits>, kBits> {};
template <int kBits>
struct Bits<ap_int<kBits>> : ApBits<ap_int<kBits>, kBits> {};
template <int kBits, int kInteger, ap_q_mode kQ, ap_o_mode kO, int kN>
struct Bits<ap_fixed<kBits, kInteger, kQ, kO, kN>> : ApBits<ap_fixed<kBits, kInteger, kQ, kO, kN>, kBits> {};
template <int kBits, int kInteger, ap_q_mode kQ, ap_o_mode kO, int kN>
struct Bits<ap_ufixed<kBits, kInteger, kQ, kO, kN>> : ApBits<ap_ufixed<kBits, kInteger, kQ, kO, kN>, kBits> {};

// ---- buffers as memory has them ----

template <typename T>
constexpr bool kIsNumber = !std::is_class<T>::value || IsAp<T>::value;

// Memory pads a number to a power of two of bytes, with copies of the sign of an ap_int.
template <typename Element>
constexpr std::size_t memory_bytes() {
  if constexpr (std::is_array<Element>::value) {
    return std::extent<Element>::value * memory_bytes<typename std::remove_extent<Element>::type>();
  } else if constexpr (kIsNumber<Element>) {
    std::size_t size = 1;
    while (8 * size < static_cast<std::size_t>(Bits<Element>::kWidth)) size *= 2;
    return size;
  }
  return sizeof(Element);
}

template <typename Element>
void extend(Words& one) {
  constexpr int kWidth = Bits<Element>::kWidth;
  const bool negative = IsSignedAp<Element>::value && (one[(kWidth - 1) / 32] >> (kWidth - 1) % 32 & 1) != 0;
  if (negative && kWidth % 32 != 0) one.back() |= ~0u << kWidth % 32;
  one.resize((memory_bytes<Element>() + 3) / 4, negative ? ~0u : 0);
}

// Elements one after the other.
template <typename Element>
Words memory_words(const Element* elements, std::size_t count) {
  if constexpr (std::is_array<Element>::value) {
    using Inner = typename std::remove_all_extents<Element>::type;
    return memory_words(reinterpret_cast<const Inner*>(elements), count * (sizeof(Element) / sizeof(Inner)));
  }
  constexpr std::size_t kBytes = memory_bytes<Element>();
  std::vector<std::uint8_t> all;
  for (std::size_t i = 0; i < count; ++i) {
    Words one;
    if constexpr (std::is_array<Element>::value) {
    } else if constexpr (kIsNumber<Element>) {
      Bits<Element>::put(one, elements[i]);
      extend<Element>(one);
    } else {
      one.resize((sizeof(Element) + 3) / 4);
      std::memcpy(one.data(), &elements[i], sizeof(Element));
    }
    const auto* raw = reinterpret_cast<const std::uint8_t*>(one.data());
    all.insert(all.end(), raw, raw + kBytes);
  }
  Words packed((all.size() + 3) / 4);
  std::memcpy(packed.data(), all.data(), all.size());
  return packed;
}

// A number in a struct: so many bits from byte `offset` on, below copies of its sign or zeros.
struct Field {
  std::size_t offset;
  int bits;
  bool is_signed;
  std::size_t bytes() const {
    std::size_t size = 1;
    while (8 * size < static_cast<std::size_t>(bits)) size *= 2;
    return size;
  }
  // Makes any bytes there those of a number of its type.
  void tidy(std::uint8_t* element) const {
    std::uint8_t* const first = element + offset;
    const bool negative = is_signed && (first[(bits - 1) / 8] >> (bits - 1) % 8 & 1) != 0;
    for (std::size_t bit = static_cast<std::size_t>(bits); bit < 8 * bytes(); ++bit) {
      const auto mask = static_cast<std::uint8_t>(1u << bit % 8);
      first[bit / 8] = static_cast<std::uint8_t>(negative ? first[bit / 8] | mask : first[bit / 8] & ~mask);
    }
  }
};

// Elements as the words of a stream, each as memory has it; the padding of a struct of these `fields` is 0.
template <typename Element>
void put_words(Words& out, const Element* elements, std::size_t count, const std::vector<Field>& fields) {
  out.push_back(static_cast<std::uint32_t>(count));
  for (std::size_t i = 0; i < count; ++i) {
    Words one = memory_words(&elements[i], 1);
    if (!fields.empty()) {
      const Words whole = one;
      std::fill(one.begin(), one.end(), 0);
      for (const Field& field : fields) {
        std::memcpy(reinterpret_cast<std::uint8_t*>(one.data()) + field.offset,
                    reinterpret_cast<const std::uint8_t*>(whole.data()) + field.offset, field.bytes());
      }
    }
    out.insert(out.end(), one.begin(), one.end());
  }
}

// ---- words of streams ----

// A struct without channels travels as its bytes, padding is 0.
template <typename T, typename = void>
constexpr bool kIsBytes = std::is_class<T>::value && !IsAp<T>::value;
template <typename T>
constexpr bool kIsBytes<T, Travels<typename T::Word>> = false;

template <typename T>
constexpr int word_bits() {
  if constexpr (kIsBytes<T>)
    return 8 * static_cast<int>(sizeof(T));
  else
    return Bits<T>::kWidth;
}

template <typename T>
void put_word(Words& out, const T& word, const std::vector<Field>& fields) {
  if constexpr (kIsBytes<T>) {
    std::vector<std::uint8_t> whole(sizeof(T)), bytes(4 * ((sizeof(T) + 3) / 4));
    std::memcpy(whole.data(), &word, sizeof(T));
    for (const Field& field : fields) {
      std::memcpy(bytes.data() + field.offset, whole.data() + field.offset, field.bytes());
      field.tidy(bytes.data());
    }
    const std::size_t at = out.size();
    out.resize(at + bytes.size() / 4);
    std::memcpy(out.data() + at, bytes.data(), bytes.size());
  } else {
    Bits<T>::put(out, word);
  }
}

template <typename T>
T get_word(const Words& in, const std::vector<Field>& fields) {
  if constexpr (kIsBytes<T>) {
    T word;
    std::memset(static_cast<void*>(&word), 0, sizeof(T));
    Words tidy = in;
    for (const Field& field : fields) {
      auto* const bytes = reinterpret_cast<std::uint8_t*>(tidy.data());
      field.tidy(bytes);
      std::memcpy(reinterpret_cast<std::uint8_t*>(&word) + field.offset, bytes + field.offset, field.bytes());
    }
    return word;
  } else {
    return Bits<T>::get(in);
  }
}

// ---- arguments of the top ----

using Random = std::mt19937_64;

// A value of the set that the command line gives for an argument: items are first, last, step.
struct Choice {
  std::vector<std::vector<long long>> items;
  long long draw(Random& random) const {
    const auto& item = items[random() % items.size()];
    const auto count = static_cast<std::uint64_t>((item[1] - item[0]) / item[2] + 1);
    return item[0] + static_cast<long long>(random() % count) * item[2];
  }
};

// kUnused: an argument that the hardware does not have, because nothing depends on it.
enum class Role { kScalar, kInput, kOutput, kResult, kInOut, kMemory, kUnused };

// A reference that the hardware only reads is a scalar, too.
inline bool is_given(Role role) { return role == Role::kScalar || role == Role::kInOut; }
inline bool is_returned(Role role) { return role == Role::kResult || role == Role::kInOut; }

struct Argument {
  Role role;
  Choice choice;
  std::size_t elements = 0;     // of the buffer of a pointer
  std::vector<Field> fields{};  // of the structs in it
};

struct Record {
  Words scalars, inputs, outputs, results, buffers;
};

// The words of a case, in the order of the record.
inline void append_case(Words& out, std::uint32_t number, const Record& record) {
  out.push_back(number);
  for (const Words* part : {&record.scalars, &record.inputs, &record.outputs, &record.results, &record.buffers}) {
    out.insert(out.end(), part->begin(), part->end());
  }
}

inline void put_buffer(Record& record, std::size_t bytes, const Words& before, const Words& after) {
  record.buffers.push_back(static_cast<std::uint32_t>(bytes));
  for (const Words* whole : {&before, &after})
    record.buffers.insert(record.buffers.end(), whole->begin(), whole->end());
}

}  // namespace openhls
