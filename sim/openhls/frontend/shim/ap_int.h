// SPDX-License-Identifier: Apache-2.0
// ap_int and ap_uint over _BitInt, for the front end of openhls.
//
// Every expression has the type and the value that it has with the vendor's headers, which software builds use: sums,
// differences and products keep all bits; shifts keep the width of the left operand, by a negative amount they go the
// other way; a range in an expression is as wide as what it is taken of; numbers of different signs compare as in C.
#pragma once

#define AP_INLINE __attribute__((always_inline)) inline

// Of ap_fixed.h; the vendor's ap_int.h declares them, too.
enum ap_q_mode { AP_RND, AP_RND_ZERO, AP_RND_MIN_INF, AP_RND_INF, AP_RND_CONV, AP_TRN, AP_TRN_ZERO };
enum ap_o_mode { AP_SAT, AP_SAT_ZERO, AP_SAT_SYM, AP_WRAP, AP_WRAP_SM };
template <int W, int I = W, ap_q_mode Q = AP_TRN, ap_o_mode O = AP_WRAP, int N = 0>
struct ap_fixed;
template <int W, int I = W, ap_q_mode Q = AP_TRN, ap_o_mode O = AP_WRAP, int N = 0>
struct ap_ufixed;
template <int W, int I, bool S, ap_q_mode Q = AP_TRN, ap_o_mode O = AP_WRAP, int N = 0>
struct ap_fixed_base;

template <int W>
struct ap_int;
template <int W>
struct ap_uint;
template <int W, bool S>
struct ap_int_base;
template <int W, bool S>
struct ap_range_ref;
template <int W, bool S>
struct ap_bit_ref;
template <typename A, typename B>
struct ap_concat_ref;

namespace openhls {

template <bool Condition, typename T = void>
struct enable_if {};
template <typename T>
struct enable_if<true, T> {
  using type = T;
};

constexpr int larger(int a, int b) { return a > b ? a : b; }
constexpr int smaller(int a, int b) { return a < b ? a : b; }

// _BitInt has no signed type of one bit; two hold the same values.
template <int W, bool S>
struct storage {
  using type = unsigned _BitInt(W);
};
template <int W>
struct storage<W, true> {
  using type = signed _BitInt(W < 2 ? 2 : W);
};
template <int W, bool S>
using bits = typename storage<W, S>::type;

// Functions here pass numbers by reference, results too: the calling convention cuts numbers of more than 64 bits into
// pieces, and these would stay pieces.
template <int W, bool S, typename T>
AP_INLINE constexpr void put(bits<W, S>& target, const T& value) {
  if constexpr (W == 1 && S) {
    target = (value & 1) != 0 ? -1 : 0;
  } else {
    target = static_cast<bits<W, S>>(value);
  }
}

// What a prefix behind the sign says: 0x, 0b, 0o or 0d; 0 without one.
template <int N>
AP_INLINE constexpr int radix_of(const char (&text)[N], int sign) {
  if (N < sign + 3 || text[sign] != '0') return 0;
  const char letter = text[sign + 1];
  if (letter == 'x' || letter == 'X') return 16;
  if (letter == 'b' || letter == 'B') return 2;
  if (letter == 'o' || letter == 'O') return 8;
  return letter == 'd' || letter == 'D' ? 10 : 0;
}
AP_INLINE constexpr int digit_of(char letter) {
  return letter >= 'a' ? letter - 'a' + 10 : letter >= 'A' ? letter - 'A' + 10 : letter - '0';
}

template <int W, bool S>
struct named {
  using type = ap_uint<W>;
};
template <int W>
struct named<W, true> {
  using type = ap_int<W>;
};

template <bool S>
struct c_type {
  using type = unsigned long long;
};
template <>
struct c_type<true> {
  using type = long long;
};

// What a type is in an expression. Numbers (kNumber) choose these operators; kJoins marks what can be their other
// operand; kKnown is everything that can be assigned. A range is unsigned, but the vendor's operators name their result
// by the sign of the number it belongs to (kNamedSigned).
template <typename T, bool Enum = __is_enum(T) && !__is_scoped_enum(T)>
struct operand {
  static constexpr bool kKnown = false, kJoins = false, kNumber = false;
};
// What an unscoped enumeration is promoted to.
template <typename T>
struct operand<T, true> : operand<decltype(+T())> {};
template <typename T>
struct operand<volatile T, false> : operand<T> {};
enum class Kind { kC, kNumber, kReference };
// kFixed: the length of what is concatenated follows from its type; that of a range is known when it is made.
template <int W, bool S, Kind kind, bool Named = S>
struct known {
  static constexpr bool kFixed = true;
  static constexpr bool kKnown = true, kJoins = true, kNumber = kind == Kind::kNumber, kC = kind == Kind::kC;
  static constexpr bool kSigned = S, kNamedSigned = Named;
  static constexpr int kWidth = W;
};
template <>
struct operand<bool> : known<1, false, Kind::kC> {};
template <>
struct operand<char> : known<8, true, Kind::kC> {};
template <>
struct operand<signed char> : known<8, true, Kind::kC> {};
template <>
struct operand<unsigned char> : known<8, false, Kind::kC> {};
template <>
struct operand<short> : known<16, true, Kind::kC> {};
template <>
struct operand<unsigned short> : known<16, false, Kind::kC> {};
template <>
struct operand<int> : known<32, true, Kind::kC> {};
template <>
struct operand<unsigned> : known<32, false, Kind::kC> {};
template <>
struct operand<long> : known<64, true, Kind::kC> {};
template <>
struct operand<unsigned long> : known<64, false, Kind::kC> {};
template <>
struct operand<long long> : known<64, true, Kind::kC> {};
template <>
struct operand<unsigned long long> : known<64, false, Kind::kC> {};
template <int W, bool S>
struct operand<ap_bit_ref<W, S>> : known<1, false, Kind::kReference> {};
template <int W, bool S>
struct operand<ap_range_ref<W, S>> : known<W, false, Kind::kReference, S> {
  static constexpr bool kFixed = false;
};
template <int W, bool S>
struct operand<ap_int_base<W, S>> : known<W, S, Kind::kNumber> {};
template <int W>
struct operand<ap_int<W>> : known<W, true, Kind::kNumber> {};
template <int W>
struct operand<ap_uint<W>> : known<W, false, Kind::kNumber> {};
template <typename A, typename B>
struct operand<ap_concat_ref<A, B>> : known<operand<A>::kWidth + operand<B>::kWidth, false, Kind::kReference> {
  static constexpr bool kJoins = false, kFixed = operand<A>::kFixed && operand<B>::kFixed;
};

// The bits that an operand has in a concatenation.
template <typename T>
AP_INLINE int length_of(const T& value) {
  if constexpr (operand<T>::kFixed)
    return operand<T>::kWidth;
  else
    return value.length();
}

template <typename T>
using value_of = ap_int_base<operand<T>::kWidth, operand<T>::kSigned>;

template <typename T>
using if_known = typename enable_if<operand<T>::kKnown>::type;
template <typename T>
using if_number = typename enable_if<operand<T>::kNumber>::type;
// Numbers, ranges, bits and concatenations of them can be concatenated.
template <typename A, typename B>
using if_concat =
    typename enable_if<operand<A>::kKnown && operand<B>::kKnown && !operand<A>::kC && !operand<B>::kC>::type;
template <typename A, typename B>
using if_operands =
    typename enable_if<operand<A>::kJoins && operand<B>::kJoins && (operand<A>::kNumber || operand<B>::kNumber)>::type;

// Types of results; `Common` is what quotients and rests are computed in.
template <int A, bool SA, int B, bool SB>
struct types {
  static constexpr int kCommon = larger(A + (SB && !SA), B + (SA && !SB));
  using mul = typename named<A + B, SA || SB>::type;
  using add = typename named<kCommon + 1, SA || SB>::type;
  using sub = typename named<kCommon + 1, true>::type;
  using logic = typename named<kCommon, SA || SB>::type;
  using div = typename named<A + SB, SA || SB>::type;
  using mod = typename named<smaller(A, B + (!SB && SA)), SA>::type;
  static constexpr int kWide = larger(A, B) + (SA || SB);
  static constexpr bool kWideSigned = A > B ? SA : B > A ? SB : SA || SB;
  using quotient_bits = bits<kWide, kWideSigned>;
  using rest_bits = bits<kWide, kWideSigned && SA>;
};
template <typename A, typename B>
using computed = types<operand<A>::kWidth, operand<A>::kSigned, operand<B>::kWidth, operand<B>::kSigned>;

// What the operators say they return: with a C integer on the left, the type for exchanged operands.
template <typename A, typename B, bool Exchanged = operand<A>::kC>
struct declared : types<operand<A>::kWidth, operand<A>::kNamedSigned, operand<B>::kWidth, operand<B>::kNamedSigned> {};
template <typename A, typename B>
struct declared<A, B, true>
    : types<operand<B>::kWidth, operand<B>::kNamedSigned, operand<A>::kWidth, operand<A>::kSigned> {};

// Comparisons of different signs follow the rule of C: unsigned if the unsigned operand is at least as wide, unless
// both have less than 32 bits.
template <int A, bool SA, int B, bool SB>
struct comparison {
  static constexpr bool kSigned = SA == SB ? SA : (A < 32 && B < 32) || (SA ? B < A : A < B);
  using order_bits = bits<larger(A, B) + (SA || SB), kSigned>;
  using pattern_bits = bits<larger(larger(A, B), 32), false>;
  // Numbers of one width and of different signs are compared with the 64 bits that the vendor's headers keep them in.
  using equal_bits = bits<larger(larger(A, B), A == B && SA != SB ? 64 : 32), false>;
};
template <typename A, typename B>
using compared = comparison<operand<A>::kWidth, operand<A>::kSigned, operand<B>::kWidth, operand<B>::kSigned>;

template <int W, bool S>
AP_INLINE void shift_left(bits<W, S>& target, const bits<W, S>& value, unsigned amount) {
  if (amount < W) {
    put<W, S>(target, static_cast<bits<W, false>>(value) << amount);
  } else {
    target = 0;
  }
}

template <int W, bool S>
AP_INLINE void shift_right(bits<W, S>& target, const bits<W, S>& value, unsigned amount) {
  if constexpr (S) {
    target = value >> (amount < W ? amount : W - 1);
  } else if (amount < W) {
    target = value >> amount;
  } else {
    target = 0;
  }
}

}  // namespace openhls

template <int W, bool S>
struct ap_int_base {
  static_assert(W > 0, "an ap_int has one bit at least");
  static constexpr int width = W;
  static constexpr bool sign_flag = S;
  using Bits = openhls::bits<W, S>;
  using Self = typename openhls::named<W, S>::type;
  using Wide = unsigned _BitInt(W);
  using CType = typename openhls::c_type<S>::type;

  Bits V;

  ap_int_base() = default;
  // Not trivial: copies are then loads and stores of numbers, which clang keeps out of memory, not copies of bytes.
  AP_INLINE constexpr ap_int_base(const ap_int_base& other) : V(other.V) {}
  AP_INLINE ap_int_base& operator=(const ap_int_base& other) {
    V = other.V;
    return *this;
  }
  // Constant expressions: a table of constants becomes a ROM.
  template <typename T, typename = openhls::if_known<T>>
  AP_INLINE constexpr ap_int_base(const T& value) {
    *this = value;
  }
  // A number as a text: "0x1f", "-12"; a prefix says the radix if it is 0.
  template <int N>
  AP_INLINE constexpr ap_int_base(const char (&text)[N], signed char radix = 0) : V(0) {
    const bool negative = text[0] == '-';
    const int sign = text[0] == '-' || text[0] == '+' ? 1 : 0;
    const int prefix = openhls::radix_of(text, sign);
    const int base = radix != 0 ? radix : prefix != 0 ? prefix : 10;
    Wide number = 0;
    for (int i = 0; i < N - 1; ++i) {
#pragma HLS UNROLL
      if (i < sign + (prefix != 0 ? 2 : 0)) continue;
      const int digit = openhls::digit_of(text[i]);
      if (digit < 0 || digit >= base) __builtin_trap();  // which is refused
      number = static_cast<Wide>(static_cast<Wide>(number * static_cast<Wide>(base)) + static_cast<Wide>(digit));
    }
    openhls::put<W, S>(V, negative ? static_cast<Wide>(-number) : number);
  }
  ap_int_base(float) = delete;
  ap_int_base(double) = delete;

  template <typename T, typename = openhls::if_known<T>>
  AP_INLINE constexpr ap_int_base& operator=(const T& value) {
    if constexpr (openhls::operand<T>::kNumber) {
      const openhls::value_of<T>& same = value;
      openhls::put<W, S>(V, same.V);
    } else {
      assign(value);
    }
    return *this;
  }

  AP_INLINE operator CType() const { return static_cast<CType>(V); }
  AP_INLINE bool to_bool() const { return V != 0; }
  AP_INLINE char to_char() const { return static_cast<char>(V); }
  AP_INLINE int to_int() const { return static_cast<int>(V); }
  AP_INLINE unsigned to_uint() const { return static_cast<unsigned>(V); }
  AP_INLINE long to_long() const { return static_cast<long>(V); }
  AP_INLINE unsigned long to_ulong() const { return static_cast<unsigned long>(V); }
  AP_INLINE long long to_int64() const { return static_cast<long long>(V); }
  AP_INLINE unsigned long long to_uint64() const { return static_cast<unsigned long long>(V); }
  AP_INLINE int length() const { return W; }
  AP_INLINE bool iszero() const { return V == 0; }
  AP_INLINE bool is_zero() const { return V == 0; }
  AP_INLINE bool sign() const { return S && V < 0; }

  AP_INLINE void set_raw(const Wide& value) { openhls::put<W, S>(V, value); }
  AP_INLINE bool get_bit(int index) const { return ((static_cast<Wide>(V) >> index) & 1) != 0; }
  AP_INLINE void set_bit(int index, bool value) {
    Wide mask = Wide(1) << index;  // not const: clang 19 fails on constants of padded types
    set_raw(value ? (static_cast<Wide>(V) | mask) : (static_cast<Wide>(V) & Wide(~mask)));
  }
  AP_INLINE bool test(int index) const { return get_bit(index); }
  AP_INLINE void set(int index) { set_bit(index, true); }
  AP_INLINE void set(int index, bool value) { set_bit(index, value); }
  AP_INLINE void clear(int index) { set_bit(index, false); }
  AP_INLINE void invert(int index) { set_raw(static_cast<Wide>(V) ^ Wide(Wide(1) << index)); }

  AP_INLINE ap_bit_ref<W, S> operator[](int index) { return {*this, index}; }
  AP_INLINE bool operator[](int index) const { return get_bit(index); }
  template <typename T, typename = openhls::if_number<T>>
  AP_INLINE ap_bit_ref<W, S> operator[](const T& index) {
    return {*this, openhls::value_of<T>(index).to_int()};
  }
  template <typename T, typename = openhls::if_number<T>>
  AP_INLINE bool operator[](const T& index) const {
    return get_bit(openhls::value_of<T>(index).to_int());
  }
  AP_INLINE ap_bit_ref<W, S> bit(int index) { return {*this, index}; }
  AP_INLINE bool bit(int index) const { return get_bit(index); }

  AP_INLINE ap_range_ref<W, S> range(int high, int low) const { return {const_cast<ap_int_base&>(*this), high, low}; }
  AP_INLINE ap_range_ref<W, S> range() const { return range(W - 1, 0); }
  AP_INLINE ap_range_ref<W, S> operator()(int high, int low) const { return range(high, low); }
  template <typename T>
  AP_INLINE auto concat(const T& low) const;

  AP_INLINE int countLeadingZeros() const {
    int zeros = W;
    for (int i = 0; i < W; ++i) {
#pragma HLS UNROLL
      if (get_bit(i)) zeros = W - 1 - i;
    }
    return zeros;
  }
  AP_INLINE ap_int_base& reverse() {
    const ap_int_base before = *this;
    for (int i = 0; i < W; ++i) {
#pragma HLS UNROLL
      set_bit(i, before.get_bit(W - 1 - i));
    }
    return *this;
  }
  // By 0 to W - 1 places.
  AP_INLINE ap_int_base& lrotate(int places) {
    Wide bits = static_cast<Wide>(V), left, right;
    openhls::shift_left<W, false>(left, bits, static_cast<unsigned>(places));
    openhls::shift_right<W, false>(right, bits, static_cast<unsigned>(W - places));
    set_raw(left | right);
    return *this;
  }
  AP_INLINE ap_int_base& rrotate(int places) {
    Wide bits = static_cast<Wide>(V), left, right;
    openhls::shift_left<W, false>(left, bits, static_cast<unsigned>(W - places));
    openhls::shift_right<W, false>(right, bits, static_cast<unsigned>(places));
    set_raw(left | right);
    return *this;
  }
  AP_INLINE bool and_reduce() const { return static_cast<Wide>(V) == Wide(~Wide(0)); }
  AP_INLINE bool or_reduce() const { return V != 0; }
  // The vendor's headers count the sign extension of a negative ap_int in xor_reduce.
  AP_INLINE bool xor_reduce() const {
    static_assert(!S, "openhls: software builds get xor_reduce of an ap_int wrong; write ap_uint<W>(x).xor_reduce()");
    Wide folded = static_cast<Wide>(V);
    for (int half = 1; half < W; half *= 2) {
#pragma HLS UNROLL
      folded ^= folded >> half;
    }
    return (folded & 1) != 0;
  }
  AP_INLINE bool nand_reduce() const {
    static_assert(W <= 64, "openhls: software builds get nand_reduce of a wide number wrong; write !x.and_reduce()");
    return !and_reduce();
  }
  AP_INLINE bool nor_reduce() const { return !or_reduce(); }
  AP_INLINE bool xnor_reduce() const { return !xor_reduce(); }

  AP_INLINE bool operator!() const { return V == 0; }
  AP_INLINE Self operator~() const {
    Self inverted;
    inverted.set_raw(~static_cast<Wide>(V));
    return inverted;
  }
  AP_INLINE Self operator+() const { return *this; }
  AP_INLINE auto operator-() const;
  AP_INLINE ap_int_base& operator++() {
    set_raw(static_cast<Wide>(V) + Wide(1));
    return *this;
  }
  AP_INLINE ap_int_base& operator--() {
    set_raw(static_cast<Wide>(V) - Wide(1));
    return *this;
  }
  AP_INLINE Self operator++(int) {
    const Self before = *this;
    ++*this;
    return before;
  }
  AP_INLINE Self operator--(int) {
    const Self before = *this;
    --*this;
    return before;
  }

 private:
  template <typename T>
  AP_INLINE constexpr void assign(const T& value) {
    openhls::put<W, S>(V, value);
  }
  template <int W2, bool S2>
  AP_INLINE void assign(const ap_bit_ref<W2, S2>& value) {
    openhls::put<W, S>(V, bool(value));
  }
  template <int W2, bool S2>
  AP_INLINE void assign(const ap_range_ref<W2, S2>& value) {
    openhls::put<W, S>(V, value.get().V);
  }
  template <typename A, typename B>
  AP_INLINE void assign(const ap_concat_ref<A, B>& value) {
    openhls::put<W, S>(V, value.get().V);
  }
};

template <int W>
struct ap_uint : ap_int_base<W, false> {
  template <int N>
  AP_INLINE constexpr ap_uint(const char (&text)[N], signed char radix = 0) : Base(text, radix) {}
  using Base = ap_int_base<W, false>;
  ap_uint() = default;
  template <typename T, typename = openhls::if_known<T>>
  AP_INLINE constexpr ap_uint(const T& value) : Base(value) {}
  ap_uint(float) = delete;
  ap_uint(double) = delete;
  template <typename T, typename = openhls::if_known<T>>
  AP_INLINE ap_uint& operator=(const T& value) {
    Base::operator=(value);
    return *this;
  }
};

template <int W>
struct ap_int : ap_int_base<W, true> {
  template <int N>
  AP_INLINE constexpr ap_int(const char (&text)[N], signed char radix = 0) : Base(text, radix) {}
  using Base = ap_int_base<W, true>;
  ap_int() = default;
  template <typename T, typename = openhls::if_known<T>>
  AP_INLINE constexpr ap_int(const T& value) : Base(value) {}
  ap_int(float) = delete;
  ap_int(double) = delete;
  template <typename T, typename = openhls::if_known<T>>
  AP_INLINE ap_int& operator=(const T& value) {
    Base::operator=(value);
    return *this;
  }
};

// Bits `low` to `high` of a number; both ends included.
template <int W, bool S>
struct ap_range_ref {
  ap_int_base<W, S>& whole;
  int high;
  int low;

  using Wide = unsigned _BitInt(W);
  AP_INLINE ap_range_ref(ap_int_base<W, S>& whole, int high, int low) : whole(whole), high(high), low(low) {}
  ap_range_ref(const ap_range_ref&) = default;

  AP_INLINE ap_int_base<W, false> get() const {
    ap_int_base<W, false> value;
    value.V = (static_cast<Wide>(whole.V) >> low) & (Wide(~Wide(0)) >> (W - 1 - (high - low)));
    return value;
  }
  AP_INLINE operator ap_int_base<W, false>() const { return get(); }
  AP_INLINE operator unsigned long long() const { return get(); }
  template <typename T, typename = openhls::if_known<T>>
  AP_INLINE ap_range_ref& operator=(const T& value) {
    ap_int_base<W, false> given = value;
    Wide mask = Wide(~Wide(0)) >> (W - 1 - (high - low));
    whole.set_raw((static_cast<Wide>(whole.V) & Wide(~Wide(mask << low))) | Wide((given.V & mask) << low));
    return *this;
  }
  AP_INLINE ap_range_ref& operator=(const ap_range_ref& other) { return *this = other.get(); }
  template <int W2, int I2, bool S2, ap_q_mode Q2, ap_o_mode O2, int N2>
  AP_INLINE ap_range_ref& operator=(const ap_fixed_base<W2, I2, S2, Q2, O2, N2>& value) {
    return *this = value.to_ap_int_base();
  }
  AP_INLINE int length() const { return high - low + 1; }
  AP_INLINE int to_int() const { return get().to_int(); }
  AP_INLINE unsigned to_uint() const { return get().to_uint(); }
  AP_INLINE long to_long() const { return get().to_long(); }
  AP_INLINE unsigned long to_ulong() const { return get().to_ulong(); }
  AP_INLINE long long to_int64() const { return get().to_int64(); }
  AP_INLINE unsigned long long to_uint64() const { return get().to_uint64(); }
  AP_INLINE bool and_reduce() const { return get().V == Wide(~Wide(0)) >> (W - 1 - (high - low)); }
  AP_INLINE bool or_reduce() const { return get().V != 0; }
  AP_INLINE bool xor_reduce() const { return get().xor_reduce(); }
};

template <int W, bool S>
struct ap_bit_ref {
  ap_int_base<W, S>& whole;
  int index;

  AP_INLINE ap_bit_ref(ap_int_base<W, S>& whole, int index) : whole(whole), index(index) {}
  ap_bit_ref(const ap_bit_ref&) = default;

  AP_INLINE operator bool() const { return whole.get_bit(index); }
  AP_INLINE bool to_bool() const { return whole.get_bit(index); }
  AP_INLINE bool operator~() const { return !whole.get_bit(index); }
  template <typename T, typename = openhls::if_known<T>>
  AP_INLINE ap_bit_ref& operator=(const T& value) {
    whole.set_bit(index, value != 0);
    return *this;
  }
  AP_INLINE ap_bit_ref& operator=(const ap_bit_ref& other) {
    whole.set_bit(index, bool(other));
    return *this;
  }
};

// (a, b): a above b.
template <typename A, typename B>
struct ap_concat_ref {
  static constexpr int kWidth = openhls::operand<A>::kWidth + openhls::operand<B>::kWidth;
  A& above;
  B& below;

  AP_INLINE ap_int_base<kWidth, false> get() const {
    constexpr int kBelow = openhls::operand<B>::kWidth;
    using Wide = unsigned _BitInt(kWidth);
    ap_int_base<kWidth, false> value;
    openhls::value_of<A> top = above;
    openhls::value_of<B> bottom = below;
    using Bottom = unsigned _BitInt(kBelow);
    if constexpr (openhls::operand<B>::kFixed) {
      value.V = Wide(Wide(top.V) << kBelow) | Wide(static_cast<Bottom>(bottom.V));
    } else {
      using Top = unsigned _BitInt(openhls::operand<A>::kWidth);
      value.V = Wide(Wide(static_cast<Top>(top.V)) << openhls::length_of(below)) | Wide(static_cast<Bottom>(bottom.V));
    }
    return value;
  }
  AP_INLINE operator ap_int_base<kWidth, false>() const { return get(); }
  AP_INLINE operator unsigned long long() const { return get(); }
  template <typename T, typename = openhls::if_known<T>>
  AP_INLINE ap_concat_ref& operator=(const T& value) {
    const ap_int_base<kWidth, false> all = value;
    above = ap_int_base<kWidth, false>(all >> openhls::length_of(below));
    below = all;
    return *this;
  }
  AP_INLINE int length() const { return openhls::length_of(above) + openhls::length_of(below); }
};

template <typename A, typename B, typename = openhls::if_concat<A, B>>
AP_INLINE ap_concat_ref<A, B> operator,(const A& above, const B& below) {
  return {const_cast<A&>(above), const_cast<B&>(below)};
}

template <int W, bool S>
template <typename T>
AP_INLINE auto ap_int_base<W, S>::concat(const T& low) const {
  return ap_concat_ref<ap_int_base, T>{const_cast<ap_int_base&>(*this), const_cast<T&>(low)};
}

// ---- operators ----

#define OPENHLS_WIDE(Sym, Result)                                                                       \
  template <typename A, typename B, typename = openhls::if_operands<A, B>>                              \
  AP_INLINE typename openhls::declared<A, B>::Result operator Sym(const A& a, const B& b) {             \
    using Value = typename openhls::computed<A, B>::Result;                                             \
    const openhls::value_of<A> left = a;                                                                \
    const openhls::value_of<B> right = b;                                                               \
    Value value;                                                                                        \
    value.V = static_cast<typename Value::Bits>(left.V) Sym static_cast<typename Value::Bits>(right.V); \
    return value;                                                                                       \
  }
OPENHLS_WIDE(*, mul)
OPENHLS_WIDE(+, add)
OPENHLS_WIDE(-, sub)
OPENHLS_WIDE(&, logic)
OPENHLS_WIDE(|, logic)
OPENHLS_WIDE(^, logic)
#undef OPENHLS_WIDE

#define OPENHLS_DIVIDE(Sym, Result, Common)                                                                     \
  template <typename A, typename B, typename = openhls::if_operands<A, B>>                                      \
  AP_INLINE typename openhls::declared<A, B>::Result operator Sym(const A& a, const B& b) {                     \
    using Value = typename openhls::computed<A, B>::Result;                                                     \
    using Common = typename openhls::computed<A, B>::Common;                                                    \
    const openhls::value_of<A> left = a;                                                                        \
    const openhls::value_of<B> right = b;                                                                       \
    Value value;                                                                                                \
    openhls::put<Value::width, Value::sign_flag>(value.V,                                                       \
                                                 static_cast<Common>(left.V) Sym static_cast<Common>(right.V)); \
    return value;                                                                                               \
  }
OPENHLS_DIVIDE(/, div, quotient_bits)
OPENHLS_DIVIDE(%, mod, rest_bits)
#undef OPENHLS_DIVIDE

// A constant that is not negative has the same bits in any width.
#define OPENHLS_EQUAL(Sym)                                                                                     \
  template <typename A, typename = openhls::if_operands<A, int>>                                               \
  AP_INLINE bool operator Sym(const A& a, const int& b) __attribute__((enable_if(b >= 0, "not a constant"))) { \
    using Common = typename openhls::compared<A, int>::pattern_bits;                                           \
    const openhls::value_of<A> left = a;                                                                       \
    const openhls::value_of<int> right = b;                                                                    \
    return static_cast<Common>(left.V) Sym static_cast<Common>(right.V);                                       \
  }
OPENHLS_EQUAL(==)
OPENHLS_EQUAL(!=)
#undef OPENHLS_EQUAL

#define OPENHLS_COMPARE(Sym, Common)                                       \
  template <typename A, typename B, typename = openhls::if_operands<A, B>> \
  AP_INLINE bool operator Sym(const A& a, const B& b) {                    \
    using Common = typename openhls::compared<A, B>::Common;               \
    const openhls::value_of<A> left = a;                                   \
    const openhls::value_of<B> right = b;                                  \
    return static_cast<Common>(left.V) Sym static_cast<Common>(right.V);   \
  }
OPENHLS_COMPARE(==, equal_bits)
OPENHLS_COMPARE(!=, equal_bits)
OPENHLS_COMPARE(<, order_bits)
OPENHLS_COMPARE(<=, order_bits)
OPENHLS_COMPARE(>, order_bits)
OPENHLS_COMPARE(>=, order_bits)
#undef OPENHLS_COMPARE

// A C integer on the left keeps C's shift, so the left operand is a number, or a range beside a number.
#define OPENHLS_SHIFT(Sym, Forward, Backward)                                                             \
  template <typename A, typename B, typename = openhls::if_operands<A, B>,                                \
            typename = typename openhls::enable_if<!openhls::operand<A>::kC>::type>                       \
  AP_INLINE typename openhls::named<openhls::operand<A>::kWidth, openhls::operand<A>::kNamedSigned>::type \
  operator Sym(const A& a, const B& b) {                                                                  \
    using Left = openhls::value_of<A>;                                                                    \
    const Left left = a;                                                                                  \
    const openhls::value_of<B> amount = b;                                                                \
    Left value;                                                                                           \
    if (openhls::operand<B>::kSigned && amount.V < 0) {                                                   \
      openhls::Backward<Left::width, Left::sign_flag>(value.V, left.V, 0u - amount.to_uint());            \
    } else {                                                                                              \
      openhls::Forward<Left::width, Left::sign_flag>(value.V, left.V, amount.to_uint());                  \
    }                                                                                                     \
    return value;                                                                                         \
  }
OPENHLS_SHIFT(<<, shift_left, shift_right)
OPENHLS_SHIFT(>>, shift_right, shift_left)
#undef OPENHLS_SHIFT

// The vendor's operators cut a concatenation to 64 bits here; it has to be a number first.
#define OPENHLS_NO_CONCAT(Sym)                                                    \
  template <typename A, typename B, typename C>                                   \
  void operator Sym(const ap_concat_ref<A, B>&, const C&) = delete;               \
  template <typename A, typename B, typename C, typename = openhls::if_number<C>> \
  void operator Sym(const C&, const ap_concat_ref<A, B>&) = delete;
OPENHLS_NO_CONCAT(*)
OPENHLS_NO_CONCAT(+)
OPENHLS_NO_CONCAT(-)
OPENHLS_NO_CONCAT(/)
OPENHLS_NO_CONCAT(%)
OPENHLS_NO_CONCAT(&)
OPENHLS_NO_CONCAT(|)
OPENHLS_NO_CONCAT(^)
OPENHLS_NO_CONCAT(<<)
OPENHLS_NO_CONCAT(>>)
OPENHLS_NO_CONCAT(==)
OPENHLS_NO_CONCAT(!=)
OPENHLS_NO_CONCAT(<)
OPENHLS_NO_CONCAT(<=)
OPENHLS_NO_CONCAT(>)
OPENHLS_NO_CONCAT(>=)
#undef OPENHLS_NO_CONCAT

#define OPENHLS_ASSIGN(Sym)                                                            \
  template <int W, bool S, typename B, typename = openhls::if_known<B>>                \
  AP_INLINE ap_int_base<W, S>& operator Sym##=(ap_int_base<W, S>& a, const B & b) {    \
    return a = a Sym b;                                                                \
  }                                                                                    \
  template <int W, bool S, typename B, typename = openhls::if_known<B>>                \
  AP_INLINE ap_range_ref<W, S>& operator Sym##=(ap_range_ref<W, S>&& a, const B & b) { \
    return a = a.get() Sym b;                                                          \
  }
OPENHLS_ASSIGN(+)
OPENHLS_ASSIGN(-)
OPENHLS_ASSIGN(*)
OPENHLS_ASSIGN(/)
OPENHLS_ASSIGN(%)
OPENHLS_ASSIGN(&)
OPENHLS_ASSIGN(|)
OPENHLS_ASSIGN(^)
OPENHLS_ASSIGN(<<)
OPENHLS_ASSIGN(>>)
#undef OPENHLS_ASSIGN

template <int W, bool S>
AP_INLINE auto ap_int_base<W, S>::operator-() const {
  return ap_int_base<1, false>(0) - *this;
}

#include <ap_fixed.h>  // as at the end of the vendor's ap_int.h
