// SPDX-License-Identifier: Apache-2.0
#include <hls_stream.h>
void drained_queue(hls::stream<int>& in, hls::stream<int>& out) {
  hls::stream<int> q;
  for (int i = 0; i < 12; i++) {
    int x = in.read();
    if (x & 1) q.write(x);
  }
  while (!q.empty()) out.write(q.read());
  out.write(-1);
}
