// SPDX-License-Identifier: Apache-2.0
// argtopk's insertion array over keys that were made on chip: the choice among few keys.
#pragma once

#include "argtopk/pass.hpp"
#include "attention/keys.hpp"
#include "common/dataflow.hpp"

namespace kvdrive {
namespace attention {

inline void send_keys(GroupMemory& keys, int n, Stream<group_t>& groups) {
replay:
  for (int i = 0; i < groups_of(n); ++i) {
#pragma HLS PIPELINE II = 1
    groups.write(keys[i]);
  }
}

// The cut of the k largest of n keys, where `inserts` says so.
inline void insert_keys(int n, int k, GroupMemory& keys, Cut& cut) {
#pragma HLS DATAFLOW
  DATAFLOW_FIFO(4, groups, group_t);
  DATAFLOW_BEGIN
  DATAFLOW_STAGE(send_keys, keys, n, groups);
  DATAFLOW_STAGE(select_by_insertion, groups, n, k, cut);
  DATAFLOW_END
}

}  // namespace attention
}  // namespace kvdrive
