// SPDX-License-Identifier: Apache-2.0
// hls::print: software prints a number in the way of printf, hardware has no one to print to. Software builds and the
// front end of openhls share this file.
#pragma once

#include <cstdio>

namespace hls {

template <typename... Values>
inline void print(const char* format, const Values&... values) {
#ifndef __SYNTHESIS__
  std::printf(format, values...);
#endif
}

}  // namespace hls
