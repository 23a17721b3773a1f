// SPDX-License-Identifier: Apache-2.0
// Sanitizing: every block that ever held something is erased, not only when it is needed again.
#include "ftl/ftl.hpp"

namespace kvdrive {

void Ftl::erase_all() {
  first_number_ = (first_number_ + static_cast<Unit>(queue_.size())) & kNumberMask;
  queue_.clear();
  data_ = {};
  bands_.close_open();
  bands_.sweep();
  commit_();  // they are free now
  for (std::uint32_t band = 0; band < geometry_.blocks_per_die; ++band) {
    if (bands_.at(band).state == BandTable::State::kFree && !bands_.at(band).erased) erase(band);
  }
  commit_();
}

}  // namespace kvdrive
