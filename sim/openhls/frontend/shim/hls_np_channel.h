// SPDX-License-Identifier: Apache-2.0
// Channels with one writer and several readers, and the other way round, for the front end of openhls, which makes a
// stage of `openhls_run` of each (frontend/tasks.py). A channel that is `kept` has its words from one run of its region
// to the next.
#pragma once

#include <hls_task.h>

namespace openhls {

template <bool kKept, typename T, int kPorts>
__attribute__((noinline)) void run_split(hls::stream<T>& in, hls::stream<T> (&out)[kPorts]) {
  for (int port = 0;; port = port == kPorts - 1 ? 0 : port + 1) out[port].write(in.read());
}

template <bool kKept, typename T, int kPorts>
__attribute__((noinline)) void run_merge(hls::stream<T> (&in)[kPorts], hls::stream<T>& out) {
  for (int port = 0;; port = port == kPorts - 1 ? 0 : port + 1) out.write(in[port].read());
}

template <int kDepth, int kPort = 0, typename T, int kPorts>
AP_INLINE constexpr void set_port_depths(hls::stream<T> (&ports)[kPorts]) {
  ports[kPort].openhls_depth(kDepth);
  if constexpr (kPort + 1 < kPorts) set_port_depths<kDepth, kPort + 1>(ports);
}

// A stream has two words where nobody says otherwise.
template <int kDepth, int kPortDepth, typename T, int kPorts>
AP_INLINE constexpr void set_depths(hls::stream<T>& one, hls::stream<T> (&ports)[kPorts]) {
  static_assert(kDepth > 0 && kPortDepth > 0, "openhls: a stream has a depth of one word at least");
  if constexpr (kDepth != 2) one.openhls_depth(kDepth);
  if constexpr (kPortDepth != 2) set_port_depths<kPortDepth>(ports);
}

}  // namespace openhls

namespace hls {

namespace split {
template <typename T, int kPorts, int kDepth = 2, int kOutDepth = 2>
class round_robin {
 public:
  AP_INLINE constexpr round_robin() { openhls::set_depths<kDepth, kOutDepth>(in, out); }

  hls::stream<T> in;
  hls::stream<T> out[kPorts];

  template <bool kKept>
  AP_INLINE void openhls_run() {
    openhls::run_split<kKept, T, kPorts>(in, out);
  }
};
}  // namespace split

namespace merge {
template <typename T, int kPorts, int kDepth = 2, int kInDepth = 2>
class round_robin {
 public:
  AP_INLINE constexpr round_robin() { openhls::set_depths<kDepth, kInDepth>(out, in); }

  hls::stream<T> out;  // before the array: what lies behind a stream of an array counts as its next one
  hls::stream<T> in[kPorts];

  template <bool kKept>
  AP_INLINE void openhls_run() {
    openhls::run_merge<kKept, T, kPorts>(in, out);
  }
};
}  // namespace merge

}  // namespace hls
