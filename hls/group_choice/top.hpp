// SPDX-License-Identifier: Apache-2.0
// The top of one group size: interfaces only. Included once by each group_choice_g<n>.cpp, which defines CHOICE_GROUP.
#ifndef CHOICE_GROUP
#error "define CHOICE_GROUP before this file is included"
#endif

#include "group_choice/group_choice.hpp"
#include "group_choice/tops.hpp"

#define CHOICE_TOP_OF(group) group_choice_g##group
#define CHOICE_TOP(group) CHOICE_TOP_OF(group)

namespace kvdrive {

std::uint32_t CHOICE_TOP(CHOICE_GROUP)(const beat_t* index, const beat_t* io, beat_t* out, std::uint64_t job,
                                       std::uint64_t memory_beats) {
#pragma HLS INTERFACE mode = m_axi port = index bundle = gmem0 offset = slave max_read_burst_length = 64
#pragma HLS INTERFACE mode = m_axi port = io bundle = gmem1 offset = slave max_read_burst_length = 64
#pragma HLS INTERFACE mode = m_axi port = out bundle = gmem2 offset = slave max_write_burst_length = 16
#pragma HLS INTERFACE mode = s_axilite port = job
#pragma HLS INTERFACE mode = s_axilite port = memory_beats
#pragma HLS INTERFACE mode = s_axilite port = return
  return group_choice::group_choice<CHOICE_GROUP>(index, io, out, job, memory_beats).to_uint();
}

}  // namespace kvdrive
