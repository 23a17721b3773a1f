// SPDX-License-Identifier: Apache-2.0
// The top of one group size and one width of codes: interfaces only. Included once by each attention_codes*_g<n>.cpp,
// which defines its name CODES_TOP, CODES_GROUP and CODES_BITS.
#ifndef CODES_TOP
#error "define CODES_TOP, CODES_GROUP and CODES_BITS before this file is included"
#endif

#include "attention_codes/attention_codes.hpp"
#include "attention_codes/tops.hpp"

namespace kvdrive {

std::uint32_t CODES_TOP(const beat_t* kv, const beat_t* steps, const beat_t* io, beat_t* out, std::uint64_t job,
                        std::uint64_t memory_beats) {
#pragma HLS INTERFACE mode = m_axi port = kv bundle = gmem0 offset = slave max_read_burst_length = 64
#pragma HLS INTERFACE mode = m_axi port = steps bundle = gmem1 offset = slave max_read_burst_length = 64
#pragma HLS INTERFACE mode = m_axi port = io bundle = gmem2 offset = slave max_read_burst_length = 64
#pragma HLS INTERFACE mode = m_axi port = out bundle = gmem3 offset = slave max_write_burst_length = 16
#pragma HLS INTERFACE mode = s_axilite port = job
#pragma HLS INTERFACE mode = s_axilite port = memory_beats
#pragma HLS INTERFACE mode = s_axilite port = return
  return attention_codes::attention_codes<CODES_GROUP, CODES_BITS>(kv, steps, io, out, job, memory_beats).to_uint();
}

}  // namespace kvdrive
