// SPDX-License-Identifier: Apache-2.0
// Numbers that are written as texts, in tables and in expressions; a helper that throws and is never called.
#include <ap_int.h>
#include <hls_print.h>
#include <hls_stream.h>

#include <sstream>
#include <stdexcept>

static const ap_int<5> kTable[6] = {"0x7", "-0x8", "0b101", "-3", "0o17", "0d9"};

void check(int n) {
  if (n < 0) {
    std::stringstream text;
    text << "n is " << n;
    throw std::runtime_error(text.str());
  }
}

void texts(hls::stream<int>& in, hls::stream<int>& out, int n) {
  for (int i = 0; i < n; ++i) {
    const int word = in.read();
    ap_uint<100> wide("FEDCBA98765432100123456", 16);
    ap_int<12> small = "-2000";
    ap_uint<7> cut("0x1ff");
    wide += ap_uint<100>("1000000000000000000000", 10);
    hls::print("%d\n", 0);
    out.write(word * kTable[unsigned(word) % 6] + int(small) + int(cut) + int(wide.range(95, 70)));
  }
}
