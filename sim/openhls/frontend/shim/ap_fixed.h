// SPDX-License-Identifier: Apache-2.0
// ap_fixed and ap_ufixed over ap_int, for the front end of openhls: the types and values of the vendor's headers.
//
// A number of W bits, I of them before the point, is an integer times 2^(I - W). Sums, differences and products keep
// all bits; what is assigned is rounded and kept in range as the type of the target says.
#pragma once

#include <ap_int.h>


namespace openhls {

// A number as a fixed-point one; kKnown: it can be an operand, kFixed: it chooses the operators of this file.
template <int W, int I, bool S, bool Fixed>
struct point {
  static constexpr bool kKnown = true, kFixed = Fixed, kSigned = S;
  static constexpr int kWidth = W, kInteger = I, kFraction = W - I;
  using type = ap_fixed_base<W, I, S>;
};
template <typename T, bool Number = operand<T>::kKnown>
struct fixed_operand {
  static constexpr bool kKnown = false, kFixed = false;
};
template <typename T>
struct fixed_operand<T, true> : point<operand<T>::kWidth, operand<T>::kWidth, operand<T>::kSigned, false> {};
template <int W, int I, bool S, ap_q_mode Q, ap_o_mode O, int N>
struct fixed_operand<ap_fixed_base<W, I, S, Q, O, N>, false> : point<W, I, S, true> {};
template <int W, int I, ap_q_mode Q, ap_o_mode O, int N>
struct fixed_operand<ap_fixed<W, I, Q, O, N>, false> : point<W, I, true, true> {};
template <int W, int I, ap_q_mode Q, ap_o_mode O, int N>
struct fixed_operand<ap_ufixed<W, I, Q, O, N>, false> : point<W, I, false, true> {};

template <typename T>
using if_fixed = typename enable_if<fixed_operand<T>::kKnown>::type;
template <typename A, typename B>
using if_fixed_operands = typename enable_if<fixed_operand<A>::kKnown && fixed_operand<B>::kKnown &&
                                             (fixed_operand<A>::kFixed || fixed_operand<B>::kFixed)>::type;

template <int W, int I, bool S>
struct named_fixed {
  using type = ap_ufixed<W, I>;
};
template <int W, int I>
struct named_fixed<W, I, true> {
  using type = ap_fixed<W, I>;
};

// Types of results.
template <typename A, typename B>
struct fixed_types {
  using L = fixed_operand<A>;
  using R = fixed_operand<B>;
  static constexpr bool kSigned = L::kSigned || R::kSigned;
  static constexpr int kFraction = larger(L::kFraction, R::kFraction);
  static constexpr int kInteger =
      larger(L::kInteger + (R::kSigned && !L::kSigned), R::kInteger + (L::kSigned && !R::kSigned));
  using mul = typename named_fixed<L::kWidth + R::kWidth, L::kInteger + R::kInteger, kSigned>::type;
  using add = typename named_fixed<kInteger + 1 + kFraction, kInteger + 1, kSigned>::type;
  using sub = typename named_fixed<kInteger + 1 + kFraction, kInteger + 1, true>::type;
};

// The integer of a number with `Fraction` bits behind the point, at least as many as it has, in `Common`.
template <typename Common, int Fraction, typename T>
AP_INLINE void align(Common& aligned, const T& value) {
  const typename fixed_operand<T>::type same = value;
  constexpr int kMore = Fraction - fixed_operand<T>::kFraction;
  aligned = static_cast<Common>(static_cast<Common>(same.raw.V) << kMore);
}

}  // namespace openhls

template <int W, int I, bool S, ap_q_mode Q, ap_o_mode O, int N>
struct ap_fixed_base {
  static_assert(N == 0 && O != AP_WRAP_SM, "openhls: AP_WRAP with saturated bits and AP_WRAP_SM do not exist here");
  static constexpr int width = W, iwidth = I;
  static constexpr ap_q_mode qmode = Q;
  static constexpr ap_o_mode omode = O;
  static constexpr int kFraction = W - I;
  using One = ap_fixed_base<(kFraction > 0 ? kFraction + 1 : 1), 1, false>;  // its type in ++ and --

  ap_int_base<W, S> raw;

  ap_fixed_base() = default;
  template <typename T, typename = openhls::if_fixed<T>>
  AP_INLINE ap_fixed_base(const T& value) {
    *this = value;
  }
  AP_INLINE ap_fixed_base(double value) { assign_double(value); }
  AP_INLINE ap_fixed_base(float value) { assign_double(value); }

  template <typename T, typename = openhls::if_fixed<T>>
  AP_INLINE ap_fixed_base& operator=(const T& value) {
    using From = openhls::fixed_operand<T>;
    if constexpr (From::kFixed) {
      assign<From::kWidth, From::kInteger, From::kSigned>(value.raw);
    } else {
      const openhls::value_of<T> number = value;
      assign<From::kWidth, From::kInteger, From::kSigned>(number);
    }
    return *this;
  }

  AP_INLINE ap_range_ref<W, S> range(int high, int low) const { return raw.range(high, low); }
  AP_INLINE ap_range_ref<W, S> range() const { return raw.range(); }
  AP_INLINE ap_range_ref<W, S> operator()(int high, int low) const { return raw.range(high, low); }
  AP_INLINE ap_bit_ref<W, S> operator[](int index) { return raw[index]; }
  AP_INLINE bool operator[](int index) const { return raw[index]; }
  AP_INLINE int length() const { return W; }
  AP_INLINE bool is_zero() const { return raw.V == 0; }
  AP_INLINE bool is_neg() const { return S && raw.V < 0; }

  // Like C's conversion of floating point: towards zero.
  AP_INLINE ap_int_base<(I > 1 ? I : 1), S> to_ap_int_base() const {
    ap_fixed_base<(I > 1 ? I : 1), (I > 1 ? I : 1), S, AP_TRN_ZERO, AP_WRAP> whole = *this;
    return whole.raw;
  }
  AP_INLINE int to_int() const { return to_ap_int_base().to_int(); }
  AP_INLINE unsigned to_uint() const { return to_ap_int_base().to_uint(); }
  AP_INLINE long long to_int64() const { return to_ap_int_base().to_int64(); }
  AP_INLINE unsigned long long to_uint64() const { return to_ap_int_base().to_uint64(); }
  AP_INLINE explicit operator bool() const { return raw.V != 0; }
  AP_INLINE explicit operator int() const { return to_int(); }
  AP_INLINE explicit operator unsigned() const { return to_uint(); }
  AP_INLINE explicit operator long() const { return to_int64(); }
  AP_INLINE explicit operator unsigned long() const { return to_uint64(); }
  AP_INLINE explicit operator short() const { return static_cast<short>(to_int()); }
  AP_INLINE explicit operator char() const { return static_cast<char>(to_int()); }
  template <int W2>
  AP_INLINE operator ap_int<W2>() const {
    return to_ap_int_base();
  }
  template <int W2>
  AP_INLINE operator ap_uint<W2>() const {
    return to_ap_int_base();
  }

  AP_INLINE ap_fixed_base operator+() const { return *this; }
  AP_INLINE ap_fixed<W + 1, I + 1> operator-() const {
    ap_fixed<W + 1, I + 1> negated;
    negated.raw.V = -static_cast<openhls::bits<W + 1, true>>(raw.V);
    return negated;
  }
  AP_INLINE bool operator!() const { return raw.V == 0; }
  AP_INLINE ap_fixed_base operator<<(int amount) const {
    ap_fixed_base shifted;
    if (amount >= 0) {
      openhls::shift_left<W, S>(shifted.raw.V, raw.V, static_cast<unsigned>(amount));
    } else {
      openhls::shift_right<W, S>(shifted.raw.V, raw.V, 0u - static_cast<unsigned>(amount));
    }
    return shifted;
  }
  AP_INLINE ap_fixed_base operator>>(int amount) const { return *this << -amount; }
  AP_INLINE ap_fixed_base& operator<<=(int amount) { return *this = *this << amount; }
  AP_INLINE ap_fixed_base& operator>>=(int amount) { return *this = *this >> amount; }
  AP_INLINE ap_fixed_base& operator++() { return *this += One(1); }
  AP_INLINE ap_fixed_base& operator--() { return *this -= One(1); }
  AP_INLINE ap_fixed_base operator++(int) {
    const ap_fixed_base before = *this;
    ++*this;
    return before;
  }
  AP_INLINE ap_fixed_base operator--(int) {
    const ap_fixed_base before = *this;
    --*this;
    return before;
  }

  // `number` times 2^(I2 - W2): quantised, then kept in range.
  template <int W2, int I2, bool S2>
  AP_INLINE void assign(const ap_int_base<W2, S2>& number) {
    constexpr int kFraction2 = W2 - I2;
    constexpr int kUp = kFraction > kFraction2 ? kFraction - kFraction2 : 0;
    constexpr int kDown = kFraction2 > kFraction ? kFraction2 - kFraction : 0;
    constexpr int kWork = openhls::larger(openhls::larger(W2 + kUp, kDown + 1), W) + 3;
    using Work = openhls::bits<kWork, true>;
    Work given = static_cast<Work>(number.V);
    Work value = static_cast<Work>(given << kUp);
    if constexpr (kDown > 0) {
      value = static_cast<Work>(given >> kDown);
      const bool half = ((given >> (kDown - 1)) & 1) != 0;
      const bool rest = (given & static_cast<Work>((Work(1) << (kDown - 1)) - 1)) != 0;
      const bool negative = given < 0;
      bool up = false;
      if (Q == AP_RND) up = half;
      if (Q == AP_RND_ZERO) up = half && (rest || negative);
      if (Q == AP_RND_MIN_INF) up = half && rest;
      if (Q == AP_RND_INF) up = half && (rest || !negative);
      if (Q == AP_RND_CONV) up = half && (rest || (value & 1) != 0);
      if (Q == AP_TRN_ZERO) up = negative && (half || rest);
      value = static_cast<Work>(value + static_cast<Work>(up));
    }
    if constexpr (O != AP_WRAP) {
      Work most = static_cast<Work>((Work(1) << (S ? W - 1 : W)) - 1);
      Work least = static_cast<Work>(S ? -most - (O == AP_SAT_SYM ? 0 : 1) : Work(0));
      const bool above = value > most, below = value < least;
      if (O == AP_SAT_ZERO && (above || below)) value = 0;
      if (O != AP_SAT_ZERO && above) value = most;
      if (O != AP_SAT_ZERO && below) value = least;
    }
    openhls::put<W, S>(raw.V, value);
  }

 private:
  // Constants only: hardware has no double. 64 bits on either side of the point, the last of them for all below it.
  AP_INLINE void assign_double(double value) {
    const auto pattern = __builtin_bit_cast(unsigned long, value);
    const int exponent = static_cast<int>(pattern >> 52 & 2047) - 1075;
    using Wide = signed _BitInt(192);  // no padding: clang 19 fails on constants of padded types
    Wide mantissa = static_cast<Wide>((pattern & ((1ul << 52) - 1)) | 1ul << 52);
    const int up = exponent + 64;
    Wide number = 0;
    if (up >= 0 && up < 76) number = static_cast<Wide>(mantissa << up);
    if (up < 0 && up > -60) {
      number = static_cast<Wide>(mantissa >> -up);
      if (static_cast<Wide>(number << -up) != mantissa) number = static_cast<Wide>(number | 1);
    }
    ap_int_base<192, true> all;
    all.V = pattern >> 63 != 0 ? static_cast<Wide>(-number) : number;
    assign<192, 128, true>(all);
  }
};

#define OPENHLS_FIXED(Name, S)                             \
  template <int W, int I, ap_q_mode Q, ap_o_mode O, int N> \
  struct Name : ap_fixed_base<W, I, S, Q, O, N> {          \
    using Base = ap_fixed_base<W, I, S, Q, O, N>;          \
    Name() = default;                                      \
    template <typename T, typename = openhls::if_fixed<T>> \
    AP_INLINE Name(const T& value) : Base(value) {}        \
    AP_INLINE Name(double value) : Base(value) {}          \
    AP_INLINE Name(float value) : Base(value) {}           \
    template <typename T, typename = openhls::if_fixed<T>> \
    AP_INLINE Name& operator=(const T& value) {            \
      Base::operator=(value);                              \
      return *this;                                        \
    }                                                      \
  };
OPENHLS_FIXED(ap_fixed, true)
OPENHLS_FIXED(ap_ufixed, false)
#undef OPENHLS_FIXED

#define OPENHLS_FIXED_SUM(Sym, Result)                                                         \
  template <typename A, typename B, typename = openhls::if_fixed_operands<A, B>>               \
  AP_INLINE typename openhls::fixed_types<A, B>::Result operator Sym(const A& a, const B& b) { \
    using Types = openhls::fixed_types<A, B>;                                                  \
    typename Types::Result value;                                                              \
    using Common = openhls::bits<Types::Result::width + 1, true>;                              \
    Common left, right;                                                                        \
    openhls::align<Common, Types::kFraction>(left, a);                                         \
    openhls::align<Common, Types::kFraction>(right, b);                                        \
    value.raw.set_raw(static_cast<Common>(left Sym right));                                    \
    return value;                                                                              \
  }
OPENHLS_FIXED_SUM(+, add)
OPENHLS_FIXED_SUM(-, sub)
#undef OPENHLS_FIXED_SUM

template <typename A, typename B, typename = openhls::if_fixed_operands<A, B>>
AP_INLINE typename openhls::fixed_types<A, B>::mul operator*(const A& a, const B& b) {
  using Value = typename openhls::fixed_types<A, B>::mul;
  const typename openhls::fixed_operand<A>::type left = a;
  const typename openhls::fixed_operand<B>::type right = b;
  using Wide = openhls::bits<Value::width + 1, true>;
  Value value;
  value.raw.set_raw(static_cast<Wide>(static_cast<Wide>(left.raw.V) * static_cast<Wide>(right.raw.V)));
  return value;
}

#define OPENHLS_FIXED_COMPARE(Sym)                                                        \
  template <typename A, typename B, typename = openhls::if_fixed_operands<A, B>, int = 0> \
  AP_INLINE bool operator Sym(const A& a, const B& b) {                                   \
    using Types = openhls::fixed_types<A, B>;                                             \
    using Common = openhls::bits<Types::kInteger + Types::kFraction + 2, true>;           \
    Common left, right;                                                                   \
    openhls::align<Common, Types::kFraction>(left, a);                                    \
    openhls::align<Common, Types::kFraction>(right, b);                                   \
    return left Sym right;                                                                \
  }
OPENHLS_FIXED_COMPARE(==)
OPENHLS_FIXED_COMPARE(!=)
OPENHLS_FIXED_COMPARE(<)
OPENHLS_FIXED_COMPARE(<=)
OPENHLS_FIXED_COMPARE(>)
OPENHLS_FIXED_COMPARE(>=)
#undef OPENHLS_FIXED_COMPARE

#define OPENHLS_FIXED_ASSIGN(Sym)                                                                               \
  template <int W, int I, bool S, ap_q_mode Q, ap_o_mode O, int N, typename B, typename = openhls::if_fixed<B>> \
  AP_INLINE ap_fixed_base<W, I, S, Q, O, N>& operator Sym##=(ap_fixed_base<W, I, S, Q, O, N>& a, const B & b) { \
    return a = a Sym b;                                                                                         \
  }
OPENHLS_FIXED_ASSIGN(+)
OPENHLS_FIXED_ASSIGN(-)
OPENHLS_FIXED_ASSIGN(*)
#undef OPENHLS_FIXED_ASSIGN

namespace openhls {
template <typename T>
struct word;
template <typename T, int W>
struct fixed_word {
  static constexpr int kWidth = W;
  using bits = unsigned _BitInt(W);
  AP_INLINE static void pack(bits& packed, const T& value) { packed = static_cast<bits>(value.raw.V); }
  AP_INLINE static void unpack(T& value, const bits& packed) { value.raw.set_raw(packed); }
};
template <int W, int I, ap_q_mode Q, ap_o_mode O, int N>
struct word<ap_fixed<W, I, Q, O, N>> : fixed_word<ap_fixed<W, I, Q, O, N>, W> {};
template <int W, int I, ap_q_mode Q, ap_o_mode O, int N>
struct word<ap_ufixed<W, I, Q, O, N>> : fixed_word<ap_ufixed<W, I, Q, O, N>, W> {};
}  // namespace openhls
