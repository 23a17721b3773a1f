// SPDX-License-Identifier: Apache-2.0
// The multipliers of the engine that reads codes: 64 for each query head, used by three passes one after the other.
//
//   scoring    q.k of every token -> score memory, integer maximum   (codes of K)
//   weighing   p = 2^(x - M) of every token, sum of p, sum of p*v    (codes of V)
//   tail       the same for the tail                                 (its V, binary16)
//
// A beat of codes is two parts of 32 numbers. Each part has its own multipliers and accumulators, as if it belonged to
// a head of half the dimension. A score adds the products of a part as small integers and shifts their sum once, by
// the part's step. A sum of p*v shifts each product, as for binary16 numbers.
#pragma once

#include "attention/core.hpp"
#include "attention_codes/job.hpp"

namespace kvdrive {
namespace attention_codes {

using attention::accs_t;
using attention::Findings;
using attention::get_score;
using attention::heads_t;
using attention::MaskMemory;
using attention::put_scores;
using attention::ScoreMemory;

// A part's step is 2^exponent, LSB 2^-24. Its largest values do not fit the shift of HalfParts: they move the codes.
constexpr int kLargestExponent = 33;
constexpr int kLargestShift = 29;
constexpr int kCodeShift = kLargestExponent - kLargestShift;
constexpr int kNoCode = -128;

enum class PassKind : int { kScoring = 0, kWeighing = 1, kTail = 2 };

struct CodePass {
  PassKind kind;
  ap_uint<22> beats;
  ap_uint<18> first;  // token
  ap_uint<4> chunks;  // beats of codes of a token
  ap_uint<2> rounds;  // 1, or for the tail kParts: its beats hold one part each
};

inline CodePass pass_of(const ExactJob& job, int number) {
#pragma HLS INLINE
  const ap_uint<4> chunks = job.row_beats / kParts;
  if (number == 2) return {PassKind::kTail, job.tail_v_beats, job.tokens, chunks, kParts};
  return {number == 0 ? PassKind::kScoring : PassKind::kWeighing, job.k_beats, 0, chunks, 1};
}

// Unpacks one part of a beat of codes as the multipliers take it. False if a code or the step is not one of a valid
// row.
inline bool unpack_part(const beat_t& beat, int part, ap_uint<8> exponent, bool scoring,
                        HalfParts numbers[abi::kLanes]) {
#pragma HLS INLINE
  const bool large = exponent > kLargestShift;
  const ap_uint<5> shift = large ? ap_uint<5>(exponent - kCodeShift) : ap_uint<5>(exponent);
  bool valid = exponent <= kLargestExponent;
  for (int l = 0; l < abi::kLanes; ++l) {
#pragma HLS UNROLL
    const ap_int<8> code = lane<8>(beat, part * abi::kLanes + l);
    const ap_int<12> moved = ap_int<12>(code) << kCodeShift;
    valid &= code != kNoCode;
    numbers[l].mantissa = !scoring && large ? moved : ap_int<12>(code);
    numbers[l].shift = scoring ? ap_uint<5>(0) : shift;
  }
  return valid;
}

// The sum of a part's products with a query, times 2^exponent. A product is below 2^47, a valid result below 2^85.
inline DotSum part_dot(const Term terms[abi::kLanes], ap_uint<6> exponent) {
#pragma HLS INLINE
  ap_int<53> lower[kHalfLanes];
#pragma HLS ARRAY_PARTITION variable = lower complete
  ap_int<53> upper[kHalfLanes];
#pragma HLS ARRAY_PARTITION variable = upper complete
  for (int l = 0; l < kHalfLanes; ++l) {
#pragma HLS UNROLL
    lower[l] = terms[l].value;
    upper[l] = terms[kHalfLanes + l].value;
  }
  const ap_int<54> sum = ap_int<54>(sum_lanes<53>(lower)) + sum_lanes<53>(upper);
  const ap_int<89> shifted = ap_int<89>(sum) << exponent;
  return {ap_int<62>(ap_uint<32>(shifted)), ap_int<57>(shifted >> 32)};
}

struct Place {
  ap_uint<18> token;
  ap_uint<4> chunk;
  ap_uint<3> slot;
  bool first;  // of its token
  bool last;
  bool attended;
};

// One beat in one head.
inline void run_head(bool scoring, const Place& place, const HalfParts numbers[kParts][abi::kLanes],
                     const ap_uint<6> exponents[kParts], single_t scale, max_t top,
                     const HalfParts (*query)[abi::kLanes][kMaxChunks], ScoreMemory& scores, DotSum& row,
                     AccSum (*sums)[abi::kLanes][kAccSlots], score_t& best, sum_t& total) {
#pragma HLS INLINE
  Probability p = no_probability();
  if (!scoring && place.attended) p = probability(get_score(scores, place.token), top);
  DotSum dot = zero_dot();
  for (int u = 0; u < kParts; ++u) {
#pragma HLS UNROLL
    Term terms[abi::kLanes];
#pragma HLS ARRAY_PARTITION variable = terms complete
    attention::multiply_beat(scoring, query[u], place.chunk, p, numbers[u], terms);
    if (scoring) {
      add_to(dot, part_dot(terms, exponents[u]));
    } else {
      attention::accumulate(terms, place.slot, sums[u]);
    }
  }
  if (scoring) {
    row = add(place.first ? zero_dot() : row, dot);
    const score_t x = attention::to_score(row, scale);
    put_scores(scores, place.token, {place.last, false, x, 0});
    if (place.last && place.attended && x > best) best = x;
  } else if (place.last) {
    total += to_fixed(p);
  }
}

// One pass over all beats. It either writes scores and masks or reads them. queries and sums: part u of head h is at
// h * kParts + u.
template <int G>
void run_pass(const CodePass& pass, const ExactJob& job, Stream<beat_t>& beats, Stream<beat_t>& steps,
              Stream<beat_t>& masks, const HalfParts queries[G * kParts][abi::kLanes][kMaxChunks],
              ScoreMemory (&scores)[G], MaskMemory& mask_memory, AccSum sums[G * kParts][abi::kLanes][kAccSlots],
              score_t best[G], sum_t total[G], Findings& findings) {
#pragma HLS INLINE off
  max_t top[G];
#pragma HLS ARRAY_PARTITION variable = top complete
  for (int h = 0; h < G; ++h) {
#pragma HLS UNROLL
    top[h] = ceil_score(best[h]);
  }
  const bool scoring = pass.kind == PassKind::kScoring;
  const bool tail = pass.kind == PassKind::kTail;
  DotSum row[G];  // of the token at work
#pragma HLS ARRAY_PARTITION variable = row complete
  bool token_valid = true;
  const int last_slot = acc_slots(pass.chunks) - 1;
  ap_uint<18> token = pass.first;
  ap_uint<4> chunk = 0;
  ap_uint<2> part = 0;  // of the tail's beat
  ap_uint<3> slot = 0;
  ap_uint<5> word = 0;  // step bytes of the beat that were used
  beat_t step_bytes = 0;
  beat_t mask = 0;
pass_beats:
  for (int i = 0; i < pass.beats; ++i) {
#pragma HLS PIPELINE II = 1
#pragma HLS DEPENDENCE variable = scores type = inter dependent = false
#pragma HLS DEPENDENCE variable = mask_memory type = inter dependent = false
#pragma HLS DEPENDENCE variable = sums type = inter direction = RAW distance = 5 dependent = true
    const beat_t beat = beats.read();
    if (!tail && word == 0) step_bytes = steps.read();
    const bool first = chunk == 0 && part == 0;
    const bool chunk_ends = chunk == pass.chunks - 1;
    const bool last = chunk_ends && part == pass.rounds - 1;
    if (!tail && first && token % abi::kBeatBits == 0) {
      mask = scoring ? masks.read() : mask_memory[token / abi::kBeatBits];
      if (scoring) mask_memory[token / abi::kBeatBits] = mask;
    }
    const bool attended = tail || bit_at(mask, token % abi::kBeatBits);
    HalfParts halves[abi::kLanes];
#pragma HLS ARRAY_PARTITION variable = halves complete
    bool valid = unpack_lanes(beat, halves) || !tail;
    HalfParts numbers[kParts][abi::kLanes];
#pragma HLS ARRAY_PARTITION variable = numbers complete dim = 0
    ap_uint<6> exponents[kParts];
#pragma HLS ARRAY_PARTITION variable = exponents complete
    for (int u = 0; u < kParts; ++u) {
#pragma HLS UNROLL
      const ap_uint<8> exponent = lane<8>(step_bytes, u);
      exponents[u] = exponent;
      valid &= unpack_part(beat, u, exponent, scoring, numbers[u]) || tail;
      for (int l = 0; l < abi::kLanes; ++l) {
#pragma HLS UNROLL
        if (tail) numbers[u][l].mantissa = u == part ? halves[l].mantissa : ap_int<12>(0);
        if (tail) numbers[u][l].shift = halves[l].shift;
      }
    }
    token_valid = (first || token_valid) && valid;
    if (last && attended && !token_valid) findings.finite = false;
    if (scoring && last && attended) findings.any = true;
    const Place place = {token, chunk, slot, first, last, attended};
    for (int h = 0; h < G; ++h) {
#pragma HLS UNROLL
      run_head(scoring, place, numbers, exponents, job.scale_log2e, top[h], &queries[h * kParts], scores[h], row[h],
               &sums[h * kParts], best[h], total[h]);
    }
    step_bytes >>= 8 * kParts;
    ++word;
    slot = slot == last_slot ? ap_uint<3>(0) : ap_uint<3>(slot + 1);
    if (chunk_ends) part = last ? ap_uint<2>(0) : ap_uint<2>(part + 1);
    chunk = chunk_ends ? ap_uint<4>(0) : ap_uint<4>(chunk + 1);
    if (last) ++token;
  }
}

// The stage: tail scores, the passes, results. Each part of a head has a word of totals and a place in `out`.
template <int G>
void core(Stream<beat_t>& beats, Stream<beat_t>& query_beats, Stream<heads_t<G>>& tail, Stream<beat_t>& masks,
          Stream<beat_t>& steps, ExactJob job, ScoreMemory (&scores)[G], MaskMemory& mask_memory,
          Stream<ap_uint<64>>& totals, Stream<accs_t<G * kParts>>& out) {
  HalfParts queries[G * kParts][abi::kLanes][kMaxChunks];
#pragma HLS ARRAY_PARTITION variable = queries complete dim = 1
#pragma HLS ARRAY_PARTITION variable = queries complete dim = 2
  AccSum sums[G * kParts][abi::kLanes][kAccSlots];
#pragma HLS ARRAY_PARTITION variable = sums complete dim = 1
#pragma HLS ARRAY_PARTITION variable = sums complete dim = 2
#pragma HLS BIND_STORAGE variable = sums type = ram_2p impl = lutram
  score_t best[G];
#pragma HLS ARRAY_PARTITION variable = best complete
  sum_t total[G];
#pragma HLS ARRAY_PARTITION variable = total complete
  for (int h = 0; h < G; ++h) {
#pragma HLS UNROLL
    best[h] = attention::kLowestScore;
    total[h] = 0;
  }
  Findings findings = {false, true};
  clear_accumulators<G * kParts>(sums);
  const ExactJob part_job = of_parts(job);
  const bool clean = attention::unpack_queries<G * kParts>(query_beats, part_job.row_beats, queries);
  attention::store_tail<G>(tail, job, scores, best);
passes:
  for (int number = 0; number < 3; ++number) {
    run_pass<G>(pass_of(job, number), job, beats, steps, masks, queries, scores, mask_memory, sums, best, total,
                findings);
  }
  status_t status = 0;
  if (!clean || !findings.finite) status |= abi::kNonFinite;
  if (!findings.any && job.tail_tokens == 0) status |= abi::kEmpty;
  score_t part_best[G * kParts];
#pragma HLS ARRAY_PARTITION variable = part_best complete
  sum_t part_total[G * kParts];
#pragma HLS ARRAY_PARTITION variable = part_total complete
  for (int i = 0; i < G * kParts; ++i) {
#pragma HLS UNROLL
    part_best[i] = best[i / kParts];
    part_total[i] = total[i / kParts];
  }
  attention::send_totals<G * kParts>(status, part_best, part_total, totals);
  attention::drain_sums<G * kParts>(part_job, sums, out);
}

}  // namespace attention_codes
}  // namespace kvdrive
