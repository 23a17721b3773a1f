// SPDX-License-Identifier: Apache-2.0
unsigned watchdog(unsigned seed) {  // 65,000 cycles of computing, no words
  unsigned s = seed + 1;
  for (int i = 0; i < 65000; i++) {
#pragma HLS PIPELINE II = 1
    s = (s << 1) ^ (s >> 31) ^ i;
  }
  return s;
}
