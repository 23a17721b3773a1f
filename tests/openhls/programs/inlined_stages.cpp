// SPDX-License-Identifier: Apache-2.0
// Functions with INLINE in a dataflow region: the functions that they call are its stages.
#include <hls_stream.h>

using Words = hls::stream<int>;

template <int Times>
static void scale(Words& in, Words& out, unsigned n) {
  for (unsigned i = 0; i < n; ++i) out.write(in.read() * Times);
}
static void split(Words& in, Words& a, Words& b, unsigned n) {
  for (unsigned i = 0; i < n; ++i) {
    const int word = in.read();
    a.write(word);
    b.write(word + 1);
  }
}
static void join(Words& a, Words& b, Words& out, unsigned n) {
  for (unsigned i = 0; i < n; ++i) out.write(a.read() - b.read());
}

// Without stages of their own, this would wait for ever: each of the two branches has room for a few words.
template <int A, int B>
static void layer(Words& in, Words& out, unsigned n) {
#pragma HLS INLINE
  unsigned const count = n * 3;
  Words a, b, scaled;
  split(in, a, b, count);
  scale<A>(a, scaled, count);
  join(scaled, b, out, count);
}
static void two_layers(Words& in, Words& out, unsigned n) {
#pragma HLS INLINE
  Words between;
  layer<3, 5>(in, between, n);
  layer<7, 9>(between, out, n);
}

void inlined_stages(Words& in, Words& out, unsigned n) {
#pragma HLS DATAFLOW
  two_layers(in, out, n);
}
