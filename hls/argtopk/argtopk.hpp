// SPDX-License-Identifier: Apache-2.0
// argtopk: which are the k largest of n keys; among equal keys the lowest index wins.
//
// Keys: binary32, 16 to a beat, or binary16 magnitudes, 32 to a beat (KeyType). Results: k ascending indices, 16 to a
// beat, zero padded, and a bitmap of ceil(n / 512) words. 1 <= n <= MAX_TOKENS, 1 <= k <= min(n, MAX_TOP_K).
// Returns a status word: with BAD_LENGTH or BAD_K nothing is written; with NON_FINITE the bitmap is zero and no index
// is written. Cycles: about n + n/16 for k <= INSERTION_K, else 256 + up to 4 (n/16 + 256) + n/16, for
// magnitudes up to 2.
#pragma once

#include "argtopk/emit.hpp"
#include "argtopk/insertion.hpp"
#include "argtopk/radix.hpp"

namespace kvdrive {

// C linkage: v++ finds a kernel by its linker name.
extern "C" int argtopk(const beat_t* keys, beat_t* indices, beat_t* bitmap, int n, int k, int key_type);

}  // namespace kvdrive
