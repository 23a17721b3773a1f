// SPDX-License-Identifier: Apache-2.0
// csim of the arithmetic headers: each case names a function and holds its arguments and golden's results.
#include <functional>
#include <map>

#include "common/accumulate.hpp"
#include "common/csim.hpp"
#include "common/dot.hpp"
#include "common/ratio.hpp"
#include "common/single.hpp"

namespace {

using namespace kvdrive;
using csim::Case;
using Check = std::function<void(const Case&)>;
using Words = std::vector<std::uint64_t>;

// A function of one value, array `a` to array `result`.
template <typename Argument, typename Result>
Check unary(std::function<Result(Argument)> function) {
  return [function](const Case& item) {
    const auto a = item.array<Argument>("a");
    std::vector<Result> got(a.size());
    for (std::size_t i = 0; i < a.size(); ++i) got[i] = function(a[i]);
    csim::compare(item.label(), got, item.array<Result>("result"));
  };
}

// A function of two values, arrays `a` and `b` to array `result`.
template <typename First, typename Second, typename Result>
Check binary(std::function<Result(First, Second)> function) {
  return [function](const Case& item) {
    const auto a = item.array<First>("a");
    const auto b = item.array<Second>("b");
    std::vector<Result> got(a.size());
    for (std::size_t i = 0; i < a.size(); ++i) got[i] = function(a[i], b.at(i));
    csim::compare(item.label(), got, item.array<Result>("result"));
  };
}

// 128-bit two's complement in two words.
template <int kWidth>
ap_int<kWidth> from_words(const Words& low, const Words& high, std::size_t i) {
  return (ap_int<kWidth>(high.at(i)) << 64) | ap_int<kWidth>(ap_uint<64>(low.at(i)));
}

// A function of a 128-bit integer, arrays `low` and `high`, and of array `b` where there is one.
template <int kWidth, typename Result>
Check wide(std::function<Result(ap_int<kWidth>, std::uint64_t)> function) {
  return [function](const Case& item) {
    const auto low = item.array<std::uint64_t>("low");
    const auto high = item.array<std::uint64_t>("high");
    const auto b = item.has("b") ? item.array<std::uint64_t>("b") : Words(low.size());
    std::vector<Result> got(low.size());
    for (std::size_t i = 0; i < low.size(); ++i) got[i] = function(from_words<kWidth>(low, high, i), b.at(i));
    csim::compare(item.label(), got, item.array<Result>("result"));
  };
}

// Rows of 32 halves in `a` and `b`.
void check_dots(const Case& item) {
  const auto a = item.beats("a");
  const auto b = item.beats("b");
  std::vector<std::uint32_t> got;
  for (std::size_t i = 0; i < a.size(); ++i) {
    HalfParts left[abi::kLanes];
    HalfParts right[abi::kLanes];
    Term terms[abi::kLanes];
    unpack_lanes(a[i], left);
    unpack_lanes(b.at(i), right);
    for (int l = 0; l < abi::kLanes; ++l) terms[l] = multiply(to_operand(left[l]), right[l]);
    got.push_back(dot_to_single(join_dot(sum_terms(terms))).to_uint());
  }
  csim::compare("dots", got, item.array<std::uint32_t>("result"));
}

void check_all_finite(const Case& item) {
  std::vector<std::uint8_t> got;
  HalfParts parts[abi::kLanes];
  for (const beat_t& beat : item.beats("a")) {
    got.push_back(all_finite(beat));
    csim::compare("unpack_lanes", int{unpack_lanes(beat, parts)}, int{got.back()});
  }
  csim::compare("all_finite", got, item.array<std::uint8_t>("result"));
}

// A running sum of p * v.
void check_accumulation(const Case& item) {
  const auto p = item.array<std::uint32_t>("a");
  const auto v = item.array<std::uint16_t>("b");
  Words got;
  AccSum sum = zero_acc();
  for (std::size_t i = 0; i < p.size(); ++i) {
    add_to(sum, multiply(to_operand(to_probability(p[i])), unpack(v.at(i))));
    const acc_t joined = join_acc(sum);
    got.push_back(ap_uint<64>(joined).to_uint64());
    got.push_back(static_cast<std::uint64_t>(ap_int<64>(joined >> 64).to_int64()));
  }
  csim::compare("accumulation", got, item.array<std::uint64_t>("result"));
}

using U16 = std::uint16_t;
using U32 = std::uint32_t;
using I32 = std::int32_t;

const std::map<std::string, Check> kChecks = {
    {"is_finite", unary<U16, std::uint8_t>([](U16 h) { return is_finite(h) ? 1 : 0; })},
    {"to_fixed", unary<U16, std::int64_t>([](U16 h) { return to_fixed(half_t(h)).to_int64(); })},
    {"all_finite", check_all_finite},
    {"add", binary<U32, U32, U32>([](U32 a, U32 b) { return single_add(a, b).to_uint(); })},
    {"subtract", binary<U32, U32, U32>([](U32 a, U32 b) { return single_add(a, single_negate(b)).to_uint(); })},
    {"mul", binary<U32, U32, U32>([](U32 a, U32 b) { return single_mul(a, b).to_uint(); })},
    {"div", binary<U32, U32, U32>([](U32 a, U32 b) { return single_div(a, b).to_uint(); })},
    {"sqrt", unary<U32, U32>([](U32 a) { return single_sqrt(a).to_uint(); })},
    {"is_finite_single", unary<U32, std::uint8_t>([](U32 a) { return is_finite_single(a) ? 1 : 0; })},
    {"single_to_score", unary<U32, I32>([](U32 a) { return single_to_score(a).to_int(); })},
    {"single_to_half", unary<U32, U16>([](U32 a) { return single_to_half(a).to_uint(); })},
    {"ceil_score", unary<I32, I32>([](I32 x) { return ceil_score(x).to_int(); })},
    {"exp2_mantissa", unary<U32, U32>([](U32 f) { return exp2_mantissa(f).to_uint(); })},
    {"probability", binary<I32, I32, U32>([](I32 x, I32 max) { return to_fixed(probability(x, max)).to_uint(); })},
    {"to_probability", unary<U32, U32>([](U32 p) { return to_fixed(to_probability(p)).to_uint(); })},
    {"dots", check_dots},
    {"accumulation", check_accumulation},
    {"dot_to_single", wide<89, U32>([](const dot_t& s, std::uint64_t) { return dot_to_single(s).to_uint(); })},
    {"ratio_to_half", wide<90, U16>([](const acc_t& a, std::uint64_t z) { return ratio_to_half(a, z).to_uint(); })},
    {"ratio_to_single",
     wide<90, U32>([](const acc_t& a, std::uint64_t z) { return ratio_to_single(a, sum_t(z)).to_uint(); })},
    {"ratio_to_weight", binary<std::uint64_t, std::uint64_t, U32>(
                            [](std::uint64_t a, std::uint64_t b) { return ratio_to_weight(a, b).to_uint(); })},
    {"wide_to_single<-24, 52>",
     wide<52, U32>([](const ap_int<52>& a, std::uint64_t) { return wide_to_single<-24>(a).to_uint(); })},
    {"wide_to_single<0, 65>",
     wide<65, U32>([](const ap_int<65>& a, std::uint64_t) { return wide_to_single<0>(a).to_uint(); })},
    {"wide_to_single<0, 128>",
     wide<128, U32>([](const ap_int<128>& a, std::uint64_t) { return wide_to_single<0>(a).to_uint(); })},
};

void check(const Case& item) { kChecks.at(item.label())(item); }

}  // namespace

int main(int argc, char** argv) { return csim::run(argc, argv, check); }
