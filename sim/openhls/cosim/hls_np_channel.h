// SPDX-License-Identifier: Apache-2.0
// Channels with one writer and several readers, and the other way round, for the reference run with g++.
#pragma once

#include <hls_task.h>

#include <memory>

namespace openhls {

// Moves words beside the calls of the top, for as long as it exists.
class Mover {
 public:
  explicit Mover(std::function<bool()> step) {
    Beside::steps().push_back(
        [alive = std::weak_ptr<bool>(alive_), step = std::move(step)] { return !alive.expired() && step(); });
  }
  Mover(const Mover&) = delete;
  Mover& operator=(const Mover&) = delete;

 private:
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

}  // namespace openhls

namespace hls {

namespace split {
template <typename T, int kPorts, int kDepth = 2, int kOutDepth = 2>
class round_robin {
 public:
  hls::stream<T> in;
  hls::stream<T> out[kPorts];

 private:
  int port_ = 0;
  openhls::Mover mover_{[this] {
    if (in.size() == 0) return false;
    out[port_].write(in.read());
    port_ = (port_ + 1) % kPorts;
    return true;
  }};
};
}  // namespace split

namespace merge {
template <typename T, int kPorts, int kDepth = 2, int kInDepth = 2>
class round_robin {
 public:
  hls::stream<T> in[kPorts];
  hls::stream<T> out;

 private:
  int port_ = 0;
  openhls::Mover mover_{[this] {
    if (in[port_].size() == 0) return false;
    out.write(in[port_].read());
    port_ = (port_ + 1) % kPorts;
    return true;
  }};
};
}  // namespace merge

}  // namespace hls
