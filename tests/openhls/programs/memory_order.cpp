// SPDX-License-Identifier: Apache-2.0
// Accesses that must stay in order, and those that no burst fits: element by element.
#include <ap_int.h>
#include <hls_stream.h>

using Words = hls::stream<ap_uint<32> >;

int memory_order(ap_uint<32>* p, const short* table, Words& in, Words& out, int n, int mode, ap_uint<8> around) {
#pragma HLS INTERFACE m_axi port = p
#pragma HLS INTERFACE m_axi port = table
fill:
  for (int i = 0; i < n; ++i) {
#pragma HLS PIPELINE II = 1
    p[i] = in.read();
  }
see_what_was_written:
  for (int i = n - 1; i >= 0; --i) {
#pragma HLS PIPELINE II = 1
    out.write(p[i]);
  }
  p[3] = p[2] + p[n];
  p[4] = p[3] ^ 1;
  out.write(p[4]);
prefix:
  for (int i = 1; i < n; ++i) p[i] = p[i] + p[i - 1];
same_place:
  for (int i = 0; i < n; ++i) p[i * mode] = p[i * mode] + 1;
gather:
  for (int i = 0; i < n; ++i) out.write(p[table[i] & 31]);
scatter:
  for (int i = 0; i < n; ++i) {
    const int at = table[i + 1] & 31;
    if (at & 1) p[at] += i;
  }
wraps:
  ap_uint<8> at = around;
  for (int i = 0; i < n; ++i) {
    out.write(p[at]);
    ++at;
  }
wraps_to_an_end:
  for (ap_uint<8> i = around; i != 5; ++i) out.write(p[i]);
search:
  for (int i = 0; i < n; ++i) {
    if (p[i].range(2, 0) == 3) return i;
  }
leave:
  int last = 0;
  for (int i = 0; i < n; ++i) {
    last = table[i];
    if (last < mode) break;
    out.write(p[i]);
  }
chain:
  int place = 0;
  while (n > 2 && p[place] != 0 && place < 40) place += 1 + (table[place] & 7);
  return last ^ place;
}
