// SPDX-License-Identifier: Apache-2.0
#include <hls_stream.h>
// A local stream outside of DATAFLOW: a queue in software.
void local_stream(hls::stream<int>& in, hls::stream<int>& out) {
  hls::stream<int> queue;
  for (int i = 0; i < 4; i++) queue.write(in.read());
  for (int i = 0; i < 4; i++) out.write(queue.read() + 1);
}
