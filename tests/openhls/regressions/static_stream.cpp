// SPDX-License-Identifier: Apache-2.0
#include <hls_stream.h>
void static_stream(hls::stream<int>& in, hls::stream<int>& out) {
  static hls::stream<int> queue;
  for (int i = 0; i < 4; i++) queue.write(in.read());
  for (int i = 0; i < 4; i++) out.write(queue.read() + 1);
}
