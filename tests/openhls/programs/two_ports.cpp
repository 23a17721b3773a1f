// SPDX-License-Identifier: Apache-2.0
// Memories that a loop accesses twice in a cycle: two reads, two writes, or both.
#include <ap_int.h>
#include <hls_stream.h>

void two_ports(hls::stream<ap_int<24>>& in, hls::stream<ap_int<32>>& out, int n) {
  ap_int<24> a[32];
  ap_int<24> banks[64];
#pragma HLS ARRAY_PARTITION variable = banks cyclic factor = 2
  for (int i = 0; i < 16; ++i) {
#pragma HLS PIPELINE II = 1
    const ap_int<24> word = in.read();
    a[2 * i] = word;
    a[2 * i + 1] = word ^ n;
  }
  for (int i = 0; i < n; ++i) {
#pragma HLS PIPELINE II = 1
    out.write(a[i] * 3 - a[(i * 7) & 31]);
  }
  for (int i = 0; i < n; ++i) {
#pragma HLS PIPELINE II = 1
    out.write(a[i] * a[i ^ 5] + a[31 - i]);
  }
  // A read and a write in an iteration, of elements that may be the same.
  for (int i = 0; i < n; ++i) {
#pragma HLS PIPELINE II = 1
    a[(i * 5) & 31] = a[i] + i;
  }
  for (int i = 0; i < 16; ++i) {
#pragma HLS PIPELINE II = 1
    banks[4 * i] = i;
    banks[4 * i + 1] = i * n;
    banks[4 * i + 2] = n - i;
    banks[4 * i + 3] = 3;
  }
  // The bank varies; a late word of the stream holds the iterations behind it.
  for (int i = 0; i < n; ++i) {
#pragma HLS PIPELINE II = 1
    const int at = (i * 3 + n) & 63;
    const ap_int<24> sum = banks[at] + banks[63 - at] * a[at & 31];
    if (sum & 1) {
      out.write(sum);
    } else {
      out.write(sum + in.read());
    }
  }
  // Branches that exclude each other.
  for (int i = 0; i < n; ++i) {
#pragma HLS PIPELINE II = 1
    if (i & 1) {
      a[i] = a[31 - i] ^ 1;
      a[31 - i] = i;
    } else {
      a[(i + 9) & 31] = n;
    }
  }
  // What one branch stores is there later than what the other one does.
  for (int i = 0; i < n; ++i) {
#pragma HLS PIPELINE II = 1
    if (i & 1) {
      banks[i] = i * n * 7 - banks[i + 32];
    } else {
      banks[i] = i;
    }
  }
  for (int i = 0; i < 32; ++i) {
#pragma HLS PIPELINE II = 1
    out.write(a[i] + banks[2 * i]);
  }
}
