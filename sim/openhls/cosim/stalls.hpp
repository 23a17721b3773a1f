// SPDX-License-Identifier: Apache-2.0
// When a channel is open: always, now and then, or in bursts; chosen anew for each case.
#pragma once

#include <random>

namespace openhls {

enum class Stalls { kNone, kRandom };

class Gate {
 public:
  void choose(std::mt19937& random, Stalls stalls) {
    mode_ = stalls == Stalls::kNone ? 0 : random() % 5;
    left_ = 0;
  }
  // From now on it is always open.
  void stay_open() { mode_ = 0; }
  bool open(std::mt19937& random) {
    switch (mode_) {
      case 0:
        return true;
      case 1:
        return random() % 8 != 0;
      case 2:
        return random() % 2 != 0;
      case 3:
        return random() % 8 == 0;
      default:
        break;
    }
    if (left_-- == 0) {
      closed_ = !closed_;
      left_ = random() % 40;
    }
    return !closed_;
  }

 private:
  unsigned mode_ = 0;
  unsigned left_ = 0;
  bool closed_ = true;
};

}  // namespace openhls
