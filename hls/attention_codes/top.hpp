// SPDX-License-Identifier: Apache-2.0
// The top of one group size: interfaces only. Included once by each attention_codes_g<n>.cpp, which defines
// CODES_GROUP.
#ifndef CODES_GROUP
#error "define CODES_GROUP before this file is included"
#endif

#include "attention_codes/attention_codes.hpp"
#include "attention_codes/tops.hpp"

#define CODES_TOP_OF(group) attention_codes_g##group
#define CODES_TOP(group) CODES_TOP_OF(group)

namespace kvdrive {

std::uint32_t CODES_TOP(CODES_GROUP)(const beat_t* kv, const beat_t* steps, const beat_t* io, beat_t* out,
                                     std::uint64_t job, std::uint64_t memory_beats) {
#pragma HLS INTERFACE mode = m_axi port = kv bundle = gmem0 offset = slave max_read_burst_length = 64
#pragma HLS INTERFACE mode = m_axi port = steps bundle = gmem1 offset = slave max_read_burst_length = 64
#pragma HLS INTERFACE mode = m_axi port = io bundle = gmem2 offset = slave max_read_burst_length = 64
#pragma HLS INTERFACE mode = m_axi port = out bundle = gmem3 offset = slave max_write_burst_length = 16
#pragma HLS INTERFACE mode = s_axilite port = job
#pragma HLS INTERFACE mode = s_axilite port = memory_beats
#pragma HLS INTERFACE mode = s_axilite port = return
  return attention_codes::attention_codes<CODES_GROUP>(kv, steps, io, out, job, memory_beats).to_uint();
}

}  // namespace kvdrive
