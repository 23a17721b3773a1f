// SPDX-License-Identifier: Apache-2.0
#include "page_store.hpp"

#include "crc32c.hpp"

namespace kvdrive {

Page PageStore::write(PageView data) {
  const bool reuse = !free_.empty();
  const Page page{reuse ? free_.back() : unused_, crc32c(data)};
  file_.write(page.number, data);
  if (reuse) {
    free_.pop_back();
  } else {
    ++unused_;
  }
  ++pages_written_;
  return page;
}

bool PageStore::read(Page page, PageBuffer out) {
  file_.read(page.number, out);
  ++pages_read_;
  return crc32c(out) == page.crc;
}

}  // namespace kvdrive
