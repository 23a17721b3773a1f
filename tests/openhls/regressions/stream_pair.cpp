// SPDX-License-Identifier: Apache-2.0
#include <hls_stream.h>
void stream_pair(hls::stream<int>& in, hls::stream<int>& out) {
  hls::stream<int> q;
  for (int i = 0; i < 4; i++) {
    int a = in.read();
    q.write(a);
    q.write(a * 3);
    int b = q.read();
    int c = q.read();
    out.write(b - c);
  }
}
