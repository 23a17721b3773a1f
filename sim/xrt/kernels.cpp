// SPDX-License-Identifier: Apache-2.0
// The kernels with memory ports under C names, in a shared library that the device process calls.
#include "argtopk/argtopk.hpp"
#include "attention/tops.hpp"

extern "C" {

#define ATTENTION(name)                                                                                             \
  std::uint32_t name(const kvdrive::beat_t* kv, const kvdrive::beat_t* io, kvdrive::beat_t* out, std::uint64_t job, \
                     std::uint64_t memory_beats) {                                                                  \
    return kvdrive::name(kv, io, out, job, memory_beats);                                                           \
  }

ATTENTION(attention_g1)
ATTENTION(attention_g2)
ATTENTION(attention_g4)
ATTENTION(attention_g5)
ATTENTION(attention_g8)
ATTENTION(attention_exact_g1)
ATTENTION(attention_exact_g4)
ATTENTION(attention_exact_g5)

int argtopk(const kvdrive::beat_t* keys, kvdrive::beat_t* indices, kvdrive::beat_t* bitmap, int n, int k,
            int key_type) {
  return kvdrive::argtopk(keys, indices, bitmap, n, k, key_type);
}

}  // extern "C"
