// SPDX-License-Identifier: Apache-2.0
// The multipliers of the engine that reads codes, one for each number of a beat and query head: 64 for codes of 8 bits,
// 128 for codes of 4 bits. Three passes use them one after the other.
//
//   scoring    q.k of every token -> score memory, integer maximum   (codes of K)
//   weighing   p = 2^(x - M) of every token, sum of p, sum of p*v    (codes of V)
//   inline       the same for inline tokens                                 (its V, binary16)
//
// A beat of codes is two or four parts of 32 numbers. Each part has its own multipliers and accumulators, as if it
// belonged to a head of its own. A score adds the products of a part as small integers and shifts their sum once, by
// the part's step. A sum of p*v shifts each product, as for binary16 numbers.
//
// Of a beat that holds two rows, the parts of one row a cycle go to the lower half; the upper half gets zeros.
#pragma once

#include "attention/core.hpp"
#include "attention_codes/numbers.hpp"

namespace kvdrive {
namespace attention_codes {

using attention::accs_t;
using attention::Findings;
using attention::get_score;
using attention::heads_t;
using attention::MaskMemory;
using attention::put_scores;
using attention::ScoreMemory;

enum class PassKind : int { kScoring = 0, kWeighing = 1, kInline = 2 };

struct CodePass {
  PassKind kind;
  ap_uint<22> turns;  // cycles: the beats, or twice as many if two rows share one
  ap_uint<18> first;  // token
  ap_uint<4> chunks;  // turns of a token
  ap_uint<3> rounds;  // 1, or for inline tokens the parts of a token: its beats hold one part each
};

template <int kBits>
CodePass pass_of(const ExactJob& job, int number) {
#pragma HLS INLINE
  const ap_uint<4> chunks = of_parts<kBits>(job).row_beats;
  const ap_uint<22> turns = half_beats<kBits>(job) ? ap_uint<22>(job.tokens) : job.k_beats;
  if (number == 2) return {PassKind::kInline, job.inline_v_beats, job.tokens, chunks, token_parts<kBits>(job)};
  return {number == 0 ? PassKind::kScoring : PassKind::kWeighing, turns, 0, chunks, 1};
}

// Slots of the accumulators that a dimension owns in turn: so many that five beats or more lie between two additions to
// the same sum, as the pipeline needs, and no more, because they are joined at the end.
inline int joins_of(int chunks) {
#pragma HLS INLINE
  constexpr int kJoins[] = {5, 3, 2, 2};
  return kJoins[chunks - 1];
}

// Slots in use: those of all beats of a token.
inline int slots_of(int chunks) {
#pragma HLS INLINE
  constexpr int kSlots[] = {5, 6, 6, 8};
  return kSlots[chunks - 1];
}

struct Place {
  ap_uint<18> token;
  ap_uint<4> chunk;
  ap_uint<3> slot;
  bool first;  // of its token
  bool last;
  bool attended;
};

// False when q holds an Inf or NaN. The query of a part that no row uses keeps what it held: its numbers are zero.
template <int G, int kBits>
bool unpack_queries(Stream<beat_t>& in, const ExactJob& job,
                    HalfParts queries[G * Format<kBits>::kParts][abi::kLanes][kMaxChunks]) {
#pragma HLS INLINE
  constexpr int kParts = Format<kBits>::kParts;
  const int parts = token_parts<kBits>(job), beats = of_parts<kBits>(job).row_beats;
  bool finite = true;
unpack_heads:
  for (int head = 0; head < G * kParts; ++head) {
  unpack_head:
    for (int b = 0; b < (head % kParts < parts ? beats : 0); ++b) {
#pragma HLS PIPELINE II = 1
      HalfParts numbers[abi::kLanes];
#pragma HLS ARRAY_PARTITION variable = numbers complete
      finite &= unpack_lanes(in.read(), numbers);
      for (int h = 0; h < G * kParts; ++h) {
#pragma HLS UNROLL
        for (int l = 0; l < abi::kLanes; ++l) {
#pragma HLS UNROLL
          if (h == head) queries[h][l][b] = numbers[l];
        }
      }
    }
  }
  return finite;
}

// One beat in one head.
template <int kBits>
void run_head(bool scoring, const Place& place, const HalfParts (&numbers)[Format<kBits>::kParts][abi::kLanes],
              const ap_uint<6> (&exponents)[Format<kBits>::kParts], single_t scale, max_t top,
              const HalfParts (*query)[abi::kLanes][kMaxChunks], ScoreMemory& scores, DotSum& row,
              AccSum (*sums)[abi::kLanes][kAccSlots], score_t& best, sum_t& total) {
#pragma HLS INLINE
  Probability p = no_probability();
  if (!scoring && place.attended) p = probability(get_score(scores, place.token), top);
  DotSum dot = zero_dot();
  for (int u = 0; u < Format<kBits>::kParts; ++u) {
#pragma HLS UNROLL
    Term terms[abi::kLanes];
#pragma HLS ARRAY_PARTITION variable = terms complete
    attention::multiply_beat(scoring, query[u], place.chunk, p, numbers[u], terms);
    if (scoring) {
      add_to(dot, part_dot<kBits>(terms, exponents[u]));
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

// One pass over all tokens. It either writes scores and masks or reads them. queries and sums: part u of head h is at
// h * kParts + u.
template <int G, int kBits>
void run_pass(const CodePass& pass, const ExactJob& job, Stream<beat_t>& beats, Stream<beat_t>& steps,
              Stream<beat_t>& masks, const HalfParts queries[G * Format<kBits>::kParts][abi::kLanes][kMaxChunks],
              ScoreMemory (&scores)[G], MaskMemory& mask_memory,
              AccSum sums[G * Format<kBits>::kParts][abi::kLanes][kAccSlots], score_t best[G], sum_t total[G],
              Findings& findings) {
#pragma HLS INLINE off
  constexpr int kParts = Format<kBits>::kParts;
  max_t top[G];
#pragma HLS ARRAY_PARTITION variable = top complete
  for (int h = 0; h < G; ++h) {
#pragma HLS UNROLL
    top[h] = ceil_score(best[h]);
  }
  const bool scoring = pass.kind == PassKind::kScoring;
  const bool is_inline = pass.kind == PassKind::kInline;
  const bool half = !is_inline && half_beats<kBits>(job);
  const int last_word = half ? 2 * Format<kBits>::kWordBeats - 1 : Format<kBits>::kWordBeats - 1;
  DotSum row[G];  // of the token at work
#pragma HLS ARRAY_PARTITION variable = row complete
  bool token_valid = true;
  const int last_slot = slots_of(pass.chunks) - 1;
  ap_uint<18> token = pass.first;
  ap_uint<4> chunk = 0;
  ap_uint<2> part = 0;  // of the inline tokens' beat
  ap_uint<3> slot = 0;
  ap_uint<5> word = 0;  // turns whose step bytes were used
  beat_t beat = 0;
  beat_t step_bytes = 0;
  beat_t mask = 0;
pass_beats:
  for (int i = 0; i < pass.turns; ++i) {
#pragma HLS PIPELINE II = 1
#pragma HLS DEPENDENCE variable = scores type = inter dependent = false
#pragma HLS DEPENDENCE variable = mask_memory type = inter dependent = false
#pragma HLS DEPENDENCE variable = sums type = inter direction = RAW distance = 5 dependent = true
    if (half && token % 2 == 1) {
      beat >>= abi::kBeatBits / 2;
    } else {
      beat = beats.read();
    }
    if (!is_inline && word == 0) step_bytes = steps.read();
    const bool first = chunk == 0 && part == 0;
    const bool chunk_ends = chunk == pass.chunks - 1;
    const bool last = chunk_ends && part == pass.rounds - 1;
    if (!is_inline && first && token % abi::kBeatBits == 0) {
      mask = scoring ? masks.read() : mask_memory[token / abi::kBeatBits];
      if (scoring) mask_memory[token / abi::kBeatBits] = mask;
    }
    const bool attended = is_inline || bit_at(mask, token % abi::kBeatBits);
    HalfParts halves[abi::kLanes];
#pragma HLS ARRAY_PARTITION variable = halves complete
    bool valid = unpack_lanes(beat, halves) || !is_inline;
    HalfParts numbers[kParts][abi::kLanes];
#pragma HLS ARRAY_PARTITION variable = numbers complete dim = 0
    ap_uint<6> exponents[kParts];
#pragma HLS ARRAY_PARTITION variable = exponents complete
    for (int u = 0; u < kParts; ++u) {
#pragma HLS UNROLL
      const Step step = step_of<kBits>(step_bytes, u);
      const bool unused = half && u >= kParts / 2;
      exponents[u] = step.exponent;
      valid &= unpack_part<kBits>(beat, u, step, scoring, numbers[u]) || is_inline || unused;
      for (int l = 0; l < abi::kLanes; ++l) {
#pragma HLS UNROLL
        if (is_inline) numbers[u][l].mantissa = u == part ? halves[l].mantissa : ap_int<12>(0);
        if (is_inline) numbers[u][l].shift = halves[l].shift;
        if (unused) numbers[u][l].mantissa = 0;
      }
    }
    token_valid = (first || token_valid) && valid;
    if (last && attended && !token_valid) findings.finite = false;
    if (scoring && last && attended) findings.any = true;
    const Place place = {token, chunk, slot, first, last, attended};
    for (int h = 0; h < G; ++h) {
#pragma HLS UNROLL
      run_head<kBits>(scoring, place, numbers, exponents, job.scale_log2e, top[h], &queries[h * kParts], scores[h],
                      row[h], &sums[h * kParts], best[h], total[h]);
    }
    constexpr int kStepBits = 8 * Format<kBits>::kStepBytes;
    step_bytes = half ? beat_t(step_bytes >> kStepBits / 2) : beat_t(step_bytes >> kStepBits);
    word = word == last_word ? ap_uint<5>(0) : ap_uint<5>(word + 1);
    slot = slot == last_slot ? ap_uint<3>(0) : ap_uint<3>(slot + 1);
    if (chunk_ends) part = last ? ap_uint<2>(0) : ap_uint<2>(part + 1);
    chunk = chunk_ends ? ap_uint<4>(0) : ap_uint<4>(chunk + 1);
    if (last) ++token;
  }
}

// The stage: inline scores, the passes, results. Each part of a head has a word of totals and a place in `out`.
template <int G, int kBits>
void core(Stream<beat_t>& beats, Stream<beat_t>& query_beats, Stream<heads_t<G>>& inline_scores, Stream<beat_t>& masks,
          Stream<beat_t>& steps, ExactJob job, ScoreMemory (&scores)[G], MaskMemory& mask_memory,
          Stream<ap_uint<64>>& totals, Stream<accs_t<G * Format<kBits>::kParts>>& out) {
  constexpr int kParts = Format<kBits>::kParts;
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
  const ExactJob part_job = of_parts<kBits>(job);
  const bool clean = unpack_queries<G, kBits>(query_beats, job, queries);
  attention::store_inline_scores<G>(inline_scores, job, scores, best);
passes:
  for (int number = 0; number < 3; ++number) {
    run_pass<G, kBits>(pass_of<kBits>(job, number), job, beats, steps, masks, queries, scores, mask_memory, sums, best,
                       total, findings);
  }
  status_t status = 0;
  if (!clean || !findings.finite) status |= abi::kNonFinite;
  if (!findings.any && job.inline_tokens == 0) status |= abi::kEmpty;
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
  attention::drain_sums<G * kParts>(part_job, joins_of(part_job.row_beats), sums, out);
}

}  // namespace attention_codes
}  // namespace kvdrive
