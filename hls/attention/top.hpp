// SPDX-License-Identifier: Apache-2.0
// The top of one group size: interfaces only. Included once by each attention_g<n>.cpp and attention_exact_g<n>.cpp,
// which define ATTENTION_GROUP, and ATTENTION_EXACT for the engine without SparF.
#ifndef ATTENTION_GROUP
#error "define ATTENTION_GROUP before this file is included"
#endif

#include "attention/attention.hpp"
#include "attention/exact.hpp"
#include "attention/tops.hpp"

#ifdef ATTENTION_EXACT
#define ATTENTION_TOP_OF(group) attention_exact_g##group
#define ATTENTION_ENGINE exact_attention
#else
#define ATTENTION_TOP_OF(group) attention_g##group
#define ATTENTION_ENGINE attention
#endif
#define ATTENTION_TOP(group) ATTENTION_TOP_OF(group)

namespace kvdrive {

std::uint32_t ATTENTION_TOP(ATTENTION_GROUP)(const beat_t* kv, const beat_t* io, beat_t* out, std::uint64_t job,
                                             std::uint64_t memory_beats) {
#pragma HLS INTERFACE mode = m_axi port = kv bundle = gmem0 offset = slave max_read_burst_length = 64
#pragma HLS INTERFACE mode = m_axi port = io bundle = gmem1 offset = slave max_read_burst_length = 64
#pragma HLS INTERFACE mode = m_axi port = out bundle = gmem2 offset = slave max_write_burst_length = 16
#pragma HLS INTERFACE mode = s_axilite port = job
#pragma HLS INTERFACE mode = s_axilite port = memory_beats
#pragma HLS INTERFACE mode = s_axilite port = return
  return attention::ATTENTION_ENGINE<ATTENTION_GROUP>(kv, io, out, job, memory_beats).to_uint();
}

}  // namespace kvdrive
