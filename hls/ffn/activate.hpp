// SPDX-License-Identifier: Apache-2.0
// The activation of a neuron, times its up projection, rounded to binary16 (docs/arithmetic.md, Feed-forward neurons).
#pragma once

#include "common/exp2.hpp"
#include "common/ratio.hpp"
#include "common/single.hpp"
#include "common/stream.hpp"
#include "ffn/plan.hpp"

namespace kvdrive {
namespace ffn {

constexpr unsigned kLog2E = 0x3fb8aa3b;  // binary32

inline single_t half_to_single(half_t h) {
#pragma HLS INLINE
  return wide_to_single<-24>(to_fixed(h));
}

inline single_t relu(single_t gate) {
#pragma HLS INLINE
  return gate[31] ? single_t(0) : gate;
}

// fl32(gate / (1 + e^-gate)), the power of e as in softmax.
inline single_t silu(single_t gate) {
#pragma HLS INLINE
  using sigmoid_sum_t = ap_uint<33>;
  constexpr unsigned kOne = 1U << abi::kPFractionBits;
  const bool negative = gate[31];
  const single_t magnitude = gate & single_t(0x7fffffff);
  const score_t exponent = single_to_score(single_mul(magnitude, single_t(kLog2E)));
  const prob_t p = to_fixed(probability(score_t(-exponent), max_t(0)));
  const prob_t numerator = negative ? p : prob_t(kOne);
  const sigmoid_sum_t sum = sigmoid_sum_t(p) + kOne;
  // `ratio_to_single` scales by 2^-24.
  const ap_int<58> shifted = ap_int<58>(numerator) << 24;
  return single_mul(gate, ratio_to_single(shifted, sum));
}

// h of all neurons. `given` brings 32 activations a beat.
inline void activate_neurons(Stream<beat_t>& given, Plan plan, Stream<single_t>& gates, Stream<single_t>& ups,
                             Stream<half_t>& hidden, bool& finite) {
  const bool from_host = plan.activation == Activation::kGiven;
  bool clean = true;
  beat_t word = 0;
activate_neurons:
  for (int neuron = 0; neuron < plan.neurons; ++neuron) {
#pragma HLS PIPELINE II = 1
    if (from_host && neuron % abi::kLanes == 0) word = given.read();
    const half_t own = half_t(word);
    word >>= 16;
    single_t gate = 0;
    single_t up = 0;
    if (!from_host) gate = gates.read();
    if (plan.matrices > 1) up = ups.read();
    const single_t activation = from_host                              ? half_to_single(own)
                                : plan.activation == Activation::kRelu ? relu(gate)
                                                                       : silu(gate);
    const half_t product = single_to_half(single_mul(activation, up));
    const half_t h = plan.matrices > 1 ? product : own;
    const bool own_clean = !from_host || is_finite(own);
    clean = clean && own_clean && is_finite(h);
    hidden.write(h);
  }
  finite = clean;
}

}  // namespace ffn
}  // namespace kvdrive
