// SPDX-License-Identifier: Apache-2.0
// The scores of all indexed tokens, two tokens a cycle (one at d = 256). Three spans are at work: the weights of one
// arrive, the tables of the one before it are written, the codes of the one before that are looked up.
#pragma once

#include "attention/core.hpp"
#include "group_choice/tables.hpp"

namespace kvdrive {
namespace group_choice {

using attention::heads_t;
using attention::MaskMemory;
using attention::ScoreMemory;
using token_sum_t = ap_int<27>;  // |S| < 2^26

// A period handles the weights of four slots: all of a span, or half of one at d = 256.
inline ap_uint<2> periods_of(const Job& job) {
#pragma HLS INLINE
  return job.rows.row_beats == kMaxChunks ? 2 : 1;
}

// The score of a sum with LSB 2^(lsb - 48).
inline score_t score_of(token_sum_t sum, ap_int<8> lsb, single_t scale) {
#pragma HLS INLINE
  const single_t whole = wide_to_single<0>(sum);
  const single_t dot = sum == 0 ? single_t(0) : single_t(whole + (single_t(ap_int<32>(lsb - 48)) << 23));
  return single_to_score(single_mul(dot, scale));
}

// The sums of the two tokens at work from those of the slots, for `chunks` slots a token. A beat holds 8 / chunks
// tokens; `pair` numbers the pairs in it. At d = 256 there is one token.
inline void pick_tokens(const slot_sum_t slots[kSlots], ap_uint<4> chunks, ap_uint<2> pair, token_sum_t tokens[2]) {
#pragma HLS INLINE
  token_sum_t pairs[4];
#pragma HLS ARRAY_PARTITION variable = pairs complete
  token_sum_t single[2] = {0, 0};
#pragma HLS ARRAY_PARTITION variable = single complete
  for (int i = 0; i < 4; ++i) {
#pragma HLS UNROLL
    pairs[i] = token_sum_t(slots[2 * i]) + slots[2 * i + 1];
    if (pair == i) {
      single[0] = slots[2 * i];
      single[1] = slots[2 * i + 1];
    }
  }
  const token_sum_t lower = pairs[0] + pairs[1];
  const token_sum_t upper = pairs[2] + pairs[3];
  tokens[0] = chunks == 1 ? single[0] : chunks == 2 ? (pair[0] ? pairs[2] : pairs[0]) : lower;
  tokens[1] = chunks == 1 ? single[1] : chunks == 2 ? (pair[0] ? pairs[3] : pairs[1]) : upper;
  if (chunks == kMaxChunks) tokens[0] = lower + upper;
}

// What the cycle at work looks up.
struct Place {
  ap_uint<18> token;
  bool used;
  bool second;  // also the token behind
  bool attended;
  bool second_attended;
};

// Scores of `token` and the token behind it, which lie in different banks.
inline void put_neighbours(ScoreMemory& scores, const Place& place, const score_t x[2]) {
#pragma HLS INLINE
  const ap_uint<18> other = place.token + 1;
  for (int bank = 0; bank < attention::kScoreBanks; ++bank) {
#pragma HLS UNROLL
    const bool first = place.used && attention::score_bank(place.token) == bank;
    const bool second = place.second && attention::score_bank(other) == bank;
    if (first || second) scores[bank][place.token >> attention::kScoreBankBits] = first ? x[0] : x[1];
  }
}

template <int G>
void score_spans(Stream<shifts_t>& shifts, Stream<weights_t<G>>& weights, Stream<heads_t<G>>& bases,
                 Stream<beat_t>& codes, Stream<heads_t<G>>& inline_scores, Stream<beat_t>& masks, Job job,
                 ScoreMemory (&scores)[G], MaskMemory& mask_memory, status_t& status, score_t largest[G]) {
  Table tables[G][kSlots][kQuads][kPlanes];
#pragma HLS ARRAY_PARTITION variable = tables complete dim = 1
#pragma HLS ARRAY_PARTITION variable = tables complete dim = 2
#pragma HLS ARRAY_PARTITION variable = tables complete dim = 3
#pragma HLS ARRAY_PARTITION variable = tables complete dim = 4
#pragma HLS BIND_STORAGE variable = tables type = ram_2p impl = lutram
  quad_t arriving[G][kWriters][kQuads];
#pragma HLS ARRAY_PARTITION variable = arriving complete dim = 0
  quad_t written[G][kWriters][kQuads];
#pragma HLS ARRAY_PARTITION variable = written complete dim = 0
  entry_t entries[G][kWriters][kQuads];
#pragma HLS ARRAY_PARTITION variable = entries complete dim = 0
  ap_int<8> lsb[G];
#pragma HLS ARRAY_PARTITION variable = lsb complete
  score_t best[G];
#pragma HLS ARRAY_PARTITION variable = best complete
  ap_int<24> base[G];
#pragma HLS ARRAY_PARTITION variable = base complete
  const shifts_t shift = shifts.read();
  for (int h = 0; h < G; ++h) {
#pragma HLS UNROLL
    lsb[h] = ap_int<8>(ap_uint<6>(shift >> (6 * h))) + job.exponent - 2;
    best[h] = attention::kLowestScore;
    base[h] = 0;
  }
  attention::store_inline_scores<G>(inline_scores, job.rows, scores, best);
  const ap_uint<4> chunks = job.rows.row_beats;
  const ap_uint<4> sources = chunks > kWriters ? ap_uint<4>(kWriters) : chunks;  // writers of different weights
  const ap_uint<2> periods = periods_of(job);
  const ap_uint<3> steps = chunks >= kWriters ? ap_uint<3>(1) : ap_uint<3>(kWriters / chunks);  // cycles of a beat
  const int all = int(job.spans) * periods + periods + 1;
  ap_uint<5> cycle = 0;
  int period = 0;
  ap_uint<1> written_half = 0;
  ap_uint<1> written_buffer = 1;
  ap_uint<1> used_buffer = 1;
  ap_uint<1> used_half = 0;
  ap_uint<18> token = 0;
  beat_t held = 0;
  beat_t mask = 0;
  bool any = false;
score_periods:
  for (int i = 0; i < all * kPeriod; ++i) {
#pragma HLS PIPELINE II = 1
#pragma HLS DEPENDENCE variable = tables type = inter direction = RAW distance = 3 dependent = true
#pragma HLS DEPENDENCE variable = scores type = inter dependent = false
    const bool starts = cycle == 0;
    const bool ends = cycle == kPeriod - 1;
    // Codes: their tables were written in the periods before.
    const bool looks_up = period > periods && cycle < kEntries;
    if (looks_up && starts && used_half == 0) {
      const heads_t<G> word = bases.read();
      for (int h = 0; h < G; ++h) {
#pragma HLS UNROLL
        base[h] = ap_int<24>(lane<32>(word, h));
      }
    }
    if (looks_up && token % abi::kBeatBits == 0) {
      mask = masks.read();
      mask_memory[token / abi::kBeatBits] = mask;
    }
    if (looks_up && (cycle & (steps - 1)) == 0) held = codes.read();
    const bool two = chunks != kMaxChunks;
    const bool attended = bit_at(mask, token % abi::kBeatBits);
    const bool second_attended = two && bit_at(mask, token % abi::kBeatBits + 1);
    const Place place = {token, looks_up, looks_up && two, looks_up && attended, looks_up && second_attended};
    const ap_uint<2> pair = cycle & (steps - 1);
    if (looks_up && (attended || second_attended)) any = true;
    // Entries of the tables of the span whose weights have arrived.
    const ap_uint<4> number = cycle;
    const bool writes = period > 0 && period <= int(job.spans) * periods && cycle < kEntries;
    // Weights of the next span.
    const bool arrives = period < int(job.spans) * periods && cycle < sources * kChunkWords;
    weights_t<G> word = 0;
    if (arrives) word = weights.read();
    for (int h = 0; h < G; ++h) {
#pragma HLS UNROLL
      slot_sum_t slots[kSlots];
#pragma HLS ARRAY_PARTITION variable = slots complete
      for (int slot = 0; slot < kSlots; ++slot) {
#pragma HLS UNROLL
        slots[slot] = look_up(tables[h][slot], lane<64>(held, slot), used_buffer);
      }
      token_sum_t sums[2];
#pragma HLS ARRAY_PARTITION variable = sums complete
      pick_tokens(slots, chunks, pair, sums);
      score_t x[2];
#pragma HLS ARRAY_PARTITION variable = x complete
      for (int t = 0; t < 2; ++t) {
#pragma HLS UNROLL
        x[t] = score_of(token_sum_t(sums[t] + (token_sum_t(base[h]) << 2)), lsb[h], job.rows.scale_log2e);
      }
      put_neighbours(scores[h], place, x);
      const bool behind = place.second_attended && (!place.attended || x[1] > x[0]);
      const score_t larger = behind ? x[1] : x[0];
      if ((place.attended || place.second_attended) && larger > best[h]) best[h] = larger;
      for (int writer = 0; writer < kWriters; ++writer) {
#pragma HLS UNROLL
        for (int quad = 0; quad < kQuads; ++quad) {
#pragma HLS UNROLL
          if (starts) written[h][writer][quad] = arriving[h][writer][quad];
          entries[h][writer][quad] = next_entry(entries[h][writer][quad], written[h][writer][quad], number);
          for (int slot = writer; slot < kSlots; slot += kWriters) {
#pragma HLS UNROLL
            const bool own = chunks != kMaxChunks || written_half == slot / kWriters;
            for (int plane = 0; plane < kPlanes; ++plane) {
#pragma HLS UNROLL
              if (writes && own) {
                tables[h][slot][quad][plane][entry_place(written_buffer, gray(number))] = entries[h][writer][quad];
              }
            }
          }
          const bool here = (writer & (sources - 1)) == cycle / kChunkWords && cycle % kChunkWords == quad / 2;
          if (arrives && here) arriving[h][writer][quad] = lane<64>(word, 2 * h + quad % 2);
        }
      }
    }
    if (looks_up) token += two ? 2 : 1;
    cycle = ends ? ap_uint<5>(0) : ap_uint<5>(cycle + 1);
    if (ends) {
      const bool next_written = written_half == ap_uint<1>(periods - 1);
      const bool next_used = used_half == ap_uint<1>(periods - 1);
      // In the first period nothing is written, before the tables of a whole span are written nothing is looked up.
      if (period > 0) written_half = next_written ? ap_uint<1>(0) : ap_uint<1>(1);
      if (period == 0 || next_written) written_buffer = ~written_buffer;
      if (period > periods) used_half = next_used ? ap_uint<1>(0) : ap_uint<1>(1);
      if (period == periods || (period > periods && next_used)) used_buffer = ~used_buffer;
      ++period;
    }
  }
  status_t found = 0;
  if (!shift[6 * abi::kMaxGroup]) found |= abi::kNonFinite;
  if (!any && job.rows.inline_tokens == 0) found |= abi::kEmpty;
  status = found;
  for (int h = 0; h < G; ++h) {
#pragma HLS UNROLL
    largest[h] = best[h];
  }
}

}  // namespace group_choice
}  // namespace kvdrive
