// SPDX-License-Identifier: Apache-2.0
// The heart of the engine: one set of 32 multipliers per query head, used by two passes one after the other.
//
//   scoring    q.k of every token -> score memory, integer maximum   (beats of K)
//   weighing   p = 2^(x - M) of every token, sum of p, sum of p*v    (beats of V, then of the inline tokens' V)
//
// One beat a cycle in either pass. SPARF_TOKENS has no V and no second pass. Everything that is summed is an exact
// integer, so the order of the terms is free: K may come token by token or, out of the transposer, as 32 tokens of one
// column group after the other.
#pragma once

#include "attention/heads.hpp"
#include "attention/pass.hpp"
#include "attention/record.hpp"
#include "common/dot.hpp"
#include "common/single.hpp"
#include "gemv/accumulators.hpp"

namespace kvdrive {
namespace attention {

// False when q holds an Inf or NaN.
template <int G>
bool unpack_queries(Stream<beat_t>& in, int beats, HalfParts queries[G][abi::kLanes][kMaxChunks]) {
#pragma HLS INLINE
  bool finite = true;
unpack_heads:
  for (int head = 0; head < G; ++head) {
  unpack_head:
    for (int b = 0; b < beats; ++b) {
#pragma HLS PIPELINE II = 1
      HalfParts parts[abi::kLanes];
#pragma HLS ARRAY_PARTITION variable = parts complete
      finite &= unpack_lanes(in.read(), parts);
      for (int h = 0; h < G; ++h) {
#pragma HLS UNROLL
        for (int l = 0; l < abi::kLanes; ++l) {
#pragma HLS UNROLL
          if (h == head) queries[h][l][b] = parts[l];
        }
      }
    }
  }
  return finite;
}

// Scores of the inline tokens, behind those of the dense tokens.
template <int G, bool kSparf>
void store_inline_scores(Stream<heads_t<G>>& inline_scores, const Job<kSparf>& job, ScoreMemory (&scores)[G],
                         score_t best[G]) {
#pragma HLS INLINE
store_inline_scores:
  for (int t = 0; t < job.inline_tokens; ++t) {
#pragma HLS PIPELINE II = 1
    const heads_t<G> word = inline_scores.read();
    for (int h = 0; h < G; ++h) {
#pragma HLS UNROLL
      const score_t x = lane<32>(word, h);
      put_scores(scores[h], job.tokens + t, {true, false, x, 0});
      if (x > best[h]) best[h] = x;
    }
  }
}

// The products of one beat with the query or with one probability.
inline void multiply_beat(bool scoring, const HalfParts query[abi::kLanes][kMaxChunks], int chunk, Probability p,
                          const HalfParts parts[abi::kLanes], Term terms[abi::kLanes]) {
#pragma HLS INLINE
  for (int l = 0; l < abi::kLanes; ++l) {
#pragma HLS UNROLL
    const Operand factor = scoring ? to_operand(query[l][chunk]) : to_operand(p);
    terms[l] = multiply(factor, parts[l]);
  }
}

// Adds a beat of p*v to one slot of the accumulators.
inline void accumulate(const Term terms[abi::kLanes], int slot, AccSum sums[abi::kLanes][kAccSlots]) {
#pragma HLS INLINE
  for (int l = 0; l < abi::kLanes; ++l) {
#pragma HLS UNROLL
    sums[l][slot] = add(sums[l][slot], terms[l]);
  }
}

inline score_t to_score(DotSum dot, single_t scale) {
#pragma HLS INLINE
  return single_to_score(single_mul(dot_to_single(join_dot(dot)), scale));
}

// What the beat at work is a part of.
struct Place {
  ap_uint<18> token;
  ap_uint<5> inner;
  ap_uint<4> chunk;
  ap_uint<3> slot;
  bool first;     // of its token
  bool last;      // of a token that exists
  bool attended;  // meaningful for tokens that exist
  bool second;    // the beat also holds the token 32 behind
  bool second_attended;
};

// What a pass finds out besides sums.
struct Findings {
  bool any;     // a dense token takes part
  bool finite;  // no token that takes part holds an Inf or NaN
};

// One beat in one head.
inline void run_head(const Pass& pass, const Place& place, const HalfParts parts[abi::kLanes], single_t scale,
                     max_t top, const HalfParts query[abi::kLanes][kMaxChunks], ScoreMemory& scores, DotSum& row,
                     DotSum block[abi::kLanes], AccSum sums[abi::kLanes][kAccSlots], score_t& best, sum_t& total) {
#pragma HLS INLINE
  const bool in_blocks = pass.block_tokens != 1;
  Probability p = no_probability();
  if (!pass.scoring && place.attended) p = probability(get_score(scores, place.token), top);
  Term terms[abi::kLanes];
#pragma HLS ARRAY_PARTITION variable = terms complete
  multiply_beat(pass.scoring, query, place.chunk, p, parts, terms);
  if (pass.scoring) {
    const DotSum before = place.first ? zero_dot() : in_blocks ? block[place.inner] : row;
    const DotSum lower = sum_half(terms, 0);
    const DotSum upper = sum_half(terms, kHalfLanes);
    row = add(before, add(lower, upper));
    if (in_blocks) block[place.inner] = row;
    const score_t x = to_score(pass.paired ? lower : row, scale);
    const score_t x2 = to_score(upper, scale);
    put_scores(scores, place.token, {place.last, place.second, x, x2});
    // One comparison with `best`, which the next beat needs.
    const bool counts = place.last && place.attended;
    const bool counts2 = place.second && place.second_attended;
    const score_t larger = counts2 && (!counts || x2 > x) ? x2 : x;
    if ((counts || counts2) && larger > best) best = larger;
  } else {
    if (place.last) total += to_fixed(p);
    accumulate(terms, place.slot, sums);
  }
}

// One pass over all beats. It either writes scores and masks or reads them.
template <int G, bool kSparf>
void run_pass(const Pass& pass, const Job<kSparf>& job, const single_t scale[G], Stream<beat_t>& beats,
              Stream<beat_t>& masks, const HalfParts queries[G][abi::kLanes][kMaxChunks], ScoreMemory (&scores)[G],
              MaskMemory& mask_memory, AccSum sums[G][abi::kLanes][kAccSlots], score_t best[G], sum_t total[G],
              Findings& findings) {
#pragma HLS INLINE off
  max_t top[G];
#pragma HLS ARRAY_PARTITION variable = top complete
  for (int h = 0; h < G; ++h) {
#pragma HLS UNROLL
    top[h] = ceil_score(best[h]);
  }
  // The sum of the token at work, or in blocks one for each token of the block.
  DotSum row[G];
#pragma HLS ARRAY_PARTITION variable = row complete
  DotSum block[G][abi::kLanes];
#pragma HLS ARRAY_PARTITION variable = block complete dim = 1
  ap_uint<abi::kLanes> infinite = 0;  // the same, whether it holds an Inf or NaN
  const int last_slot = acc_slots(job.row_beats) - 1;
  Position at = {0, 0, 0};
  ap_uint<3> slot = 0;
  beat_t mask = 0;
pass_beats:
  for (int i = 0; i < pass.beats; ++i) {
#pragma HLS PIPELINE II = 1
#pragma HLS DEPENDENCE variable = scores type = inter dependent = false
#pragma HLS DEPENDENCE variable = mask_memory type = inter dependent = false
#pragma HLS DEPENDENCE variable = sums type = inter direction = RAW distance = 5 dependent = true
#pragma HLS DEPENDENCE variable = block type = inter direction = RAW distance = 32 dependent = true
    const beat_t beat = beats.read();
    const ap_uint<18> token = at.base + at.inner;
    const bool first = at.chunk == 0;
    if (first && token % abi::kBeatBits == 0 && token < job.tokens) {
      mask = pass.scoring ? masks.read() : mask_memory[token / abi::kBeatBits];
      if (pass.scoring) mask_memory[token / abi::kBeatBits] = mask;
    }
    const bool last = at.chunk == pass.chunks - 1 && token < pass.tokens;
    const bool attended = token >= job.tokens || bit_at(mask, token % abi::kBeatBits);
    const ap_uint<18> other = token + abi::kLanes;
    const bool second = pass.paired && other < pass.tokens;
    const bool second_attended = bit_at(mask, other % abi::kBeatBits);
    const Place place = {token, at.inner, at.chunk, slot, first, last, attended, second, second_attended};
    HalfParts parts[abi::kLanes];
#pragma HLS ARRAY_PARTITION variable = parts complete
    unpack_lanes(beat, parts);
    const bool lower_infinite = !all_finite(beat, 0, kHalfLanes);
    const bool upper_infinite = !all_finite(beat, kHalfLanes, kHalfLanes);
    infinite[at.inner] = lower_infinite || (!pass.paired && upper_infinite) || (!first && infinite[at.inner]);
    const bool used = last && attended;
    const bool second_used = second && second_attended;
    if ((used && infinite[at.inner]) || (second_used && upper_infinite)) findings.finite = false;
    if (pass.scoring && (used || second_used)) findings.any = true;
    for (int h = 0; h < G; ++h) {
#pragma HLS UNROLL
      run_head(pass, place, parts, scale[h], top[h], queries[h], scores[h], row[h], block[h], sums[h], best[h],
               total[h]);
    }
    slot = slot == last_slot ? ap_uint<3>(0) : ap_uint<3>(slot + 1);
    at = advance(at, pass);
  }
}

// Status, maxima and sums: one word of flags, then one word per head.
template <int G>
void send_totals(status_t status, const score_t best[G], const sum_t total[G], Stream<ap_uint<64>>& totals) {
#pragma HLS INLINE
  totals.write(status);
totals:
  for (int h = 0; h < G; ++h) {
#pragma HLS PIPELINE II = 1
    totals.write(pack_total(ceil_score(pick<G>(best, h)), pick<G>(total, h)));
  }
}

// Slots of one dimension.
inline int joins_of(int row_beats) {
#pragma HLS INLINE
  constexpr int kJoins[kMaxChunks] = {8, 4, 2, 2, 1, 1, 1, 1};
  return kJoins[row_beats - 1];
}

// Sends the sums of p*v in the order of their dimensions, each of `joins` slots. The slots of two lanes are joined, one
// of each in a cycle, while the two lanes before them leave; a dimension a cycle where it has two slots or one.
template <int G, bool kSparf>
void drain_sums(const Job<kSparf>& job, ap_uint<4> joins, const AccSum sums[G][abi::kLanes][kAccSlots],
                Stream<accs_t<G>>& out) {
#pragma HLS INLINE
  constexpr int kUnits = 2;
  constexpr int kPairs = abi::kLanes / kUnits;
  acc_t joined[G][kUnits];
#pragma HLS ARRAY_PARTITION variable = joined complete dim = 0
  acc_t second[G];
#pragma HLS ARRAY_PARTITION variable = second complete
  const ap_uint<4> turns = joins < kUnits ? ap_uint<4>(kUnits) : joins;
  ap_uint<4> turn = 0;
  ap_uint<4> pair = 0;
  ap_uint<4> beat = 0;
  ap_uint<4> slot = 0;
  bool leaves = false;
drain:
  for (int i = 0; i < kPairs * job.row_beats * turns + kUnits; ++i) {
#pragma HLS PIPELINE II = 1
    accs_t<G> word = 0;
    for (int h = 0; h < G; ++h) {
#pragma HLS UNROLL
      set_acc<G>(word, h, turn == 0 ? joined[h][0] : second[h]);
      if (turn == 0) second[h] = joined[h][1];
      for (int u = 0; u < kUnits; ++u) {
#pragma HLS UNROLL
        AccSum held[kPairs];
#pragma HLS ARRAY_PARTITION variable = held complete
        for (int p = 0; p < kPairs; ++p) {
#pragma HLS UNROLL
          held[p] = sums[h][kUnits * p + u][ap_uint<3>(slot)];
        }
        const acc_t sum = join_acc(pick_lane<kPairs>(held, pair));
        if (turn < joins) joined[h][u] = turn == 0 ? sum : acc_t(joined[h][u] + sum);
      }
    }
    if (leaves && turn < kUnits) out.write(word);
    const bool pair_ends = turn == turns - 1;
    const bool beat_ends = pair_ends && pair == kPairs - 1;
    if (pair_ends) leaves = true;
    if (beat_ends) ++beat;
    slot = pair_ends ? beat : ap_uint<4>(slot + job.row_beats);
    if (pair_ends) ++pair;
    turn = pair_ends ? ap_uint<4>(0) : ap_uint<4>(turn + 1);
  }
}

// The stage: inline scores, scoring pass, weighing pass, results.
template <int G, bool kSparf>
void core(Stream<beat_t>& beats, Stream<beat_t>& query_beats, Stream<heads_t<G>>& inline_scores, Stream<beat_t>& masks,
          Job<kSparf> job, Record record, ScoreMemory (&scores)[G], MaskMemory& mask_memory,
          Stream<ap_uint<64>>& totals, Stream<accs_t<G>>& out) {
  HalfParts queries[G][abi::kLanes][kMaxChunks];
#pragma HLS ARRAY_PARTITION variable = queries complete dim = 1
#pragma HLS ARRAY_PARTITION variable = queries complete dim = 2
  AccSum sums[G][abi::kLanes][kAccSlots];
#pragma HLS ARRAY_PARTITION variable = sums complete dim = 1
#pragma HLS ARRAY_PARTITION variable = sums complete dim = 2
#pragma HLS BIND_STORAGE variable = sums type = ram_2p impl = lutram
  single_t scale[G];
#pragma HLS ARRAY_PARTITION variable = scale complete
  score_t best[G];
#pragma HLS ARRAY_PARTITION variable = best complete
  sum_t total[G];
#pragma HLS ARRAY_PARTITION variable = total complete
  for (int h = 0; h < G; ++h) {
#pragma HLS UNROLL
    scale[h] = chooses_tokens(job) ? scale_of(record, h) : job.scale_log2e;
    best[h] = kLowestScore;
    total[h] = 0;
  }
  Findings findings = {false, true};
  clear_accumulators<G>(sums);
  const bool clean = unpack_queries<G>(query_beats, score_beats(job), queries);
  store_inline_scores<G>(inline_scores, job, scores, best);
passes:
  for (int number = 0; number < 2; ++number) {
    const Pass pass = number == 0 ? scoring_pass(job) : weighing_pass(job);
    run_pass<G>(pass, job, scale, beats, masks, queries, scores, mask_memory, sums, best, total, findings);
  }
  status_t status = 0;
  if (!clean || !findings.finite) status |= abi::kNonFinite;
  if (!findings.any && job.inline_tokens == 0) status |= abi::kEmpty;
  send_totals<G>(status, best, total, totals);
  if (!chooses_tokens(job)) drain_sums<G>(job, joins_of(job.row_beats), sums, out);
}

}  // namespace attention
}  // namespace kvdrive
