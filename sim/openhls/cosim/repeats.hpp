// SPDX-License-Identifier: Apache-2.0
// Whether a model whose inputs stay as they are comes back to a state that it had: then it goes round for ever.
#pragma once

#include <cstddef>
#include <cstring>
#include <vector>

namespace openhls {

// Compares each state with one of an earlier cycle, which moves on after 1, 2, 4, ... cycles (Brent): a circle of any
// length is found after a few rounds.
class Repeats {
 public:
  void forget() { kept_.clear(); }
  bool look(const void* state, std::size_t bytes) {
    const auto* now = static_cast<const char*>(state);
    if (kept_.empty()) {
      left_ = limit_ = 1;
    } else if (std::memcmp(kept_.data(), now, bytes) == 0) {
      return true;
    } else if (--left_ > 0) {
      return false;
    } else {
      left_ = limit_ *= 2;
    }
    kept_.assign(now, now + bytes);
    return false;
  }

 private:
  std::vector<char> kept_;
  std::size_t limit_ = 1, left_ = 1;
};

}  // namespace openhls
