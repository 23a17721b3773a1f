#include "kernel.hpp"

#include <hls_stream.h>

static void load(const int* in, hls::stream<int>& numbers, int n) {
  for (int i = 0; i < n; ++i) {
#pragma HLS PIPELINE II = 1
    numbers.write(in[i]);
  }
}

static void scale(hls::stream<int>& numbers, hls::stream<int>& products, int n, int factor) {
  for (int i = 0; i < n; ++i) {
#pragma HLS PIPELINE II = 1
    products.write(numbers.read() * factor);
  }
}

static void store(hls::stream<int>& products, int* out, int n) {
  for (int i = 0; i < n; ++i) {
#pragma HLS PIPELINE II = 1
    out[i] = products.read();
  }
}

// Three stages that run at the same time; streams connect them.
extern "C" void kernel(const int* in, int* out, int n, int factor) {
#pragma HLS INTERFACE m_axi port = in bundle = gmem0
#pragma HLS INTERFACE m_axi port = out bundle = gmem1
#pragma HLS DATAFLOW
  hls::stream<int> numbers, products;
  load(in, numbers, n);
  scale(numbers, products, n, factor);
  store(products, out, n);
}
