// SPDX-License-Identifier: Apache-2.0
// AXI4-Stream with side channels: all of them, some, only side channels; a struct, ap_fixed
// and bool as data, which travel as their bytes; and an array of such streams.
#include <ap_axi_sdata.h>
#include <ap_fixed.h>
#include <ap_int.h>
#include <hls_stream.h>

struct Sample {
  short left, right;
};
using Full = ap_axis<20, 3, 5, 2>;
using Samples = hls::axis<Sample, 0, 0, 0>;
using Marks = hls::axis_user<13, AXIS_ENABLE_USER | AXIS_ENABLE_LAST>;
using Plain = hls::axis_data<ap_uint<9>, AXIS_ENABLE_DATA | AXIS_ENABLE_LAST>;
using Parts = hls::axis<ap_fixed<12, 4>, 3>;
using Flags = hls::axis_data<bool, AXIS_ENABLE_DATA | AXIS_ENABLE_LAST>;

void channels(hls::stream<Full>& in, hls::stream<Samples>& samples, hls::stream<Marks>& marks, hls::stream<Plain>& out,
              hls::stream<Full>& copy, hls::stream<Parts> parts[2], hls::stream<Flags>& flags, int n) {
  ap_uint<2> seen = 0;
  for (int i = 0; i < n; ++i) {
#pragma HLS PIPELINE II = 1
    Full word = in.read();
    const Samples sample = samples.read();
    Marks mark = marks.read();
    mark.set_user(mark.get_user() + word.user);
    Plain plain;
    plain.data = word.data.range(8, 0) ^ mark.user.range(8, 0);
    plain.last = sample.last & ~word.last;
    out.write(plain);
    word.data = word.data + sample.data.left * 3 - sample.data.right;
    word.keep = sample.keep.range(2, 0);
    word.id = word.dest + seen;
    word.dest = seen;
    seen = word.user.range(1, 0);
    copy.write(word);
    const Parts part = parts[0].read();
    const Parts other = parts[1].read();
    Flags flag;
    flag.data = part.data > other.data;
    flag.last = part.last ^ other.user[1];
    flags.write(flag);
  }
}
