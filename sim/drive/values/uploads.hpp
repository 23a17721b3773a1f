// SPDX-License-Identifier: Apache-2.0
// Values that arrive in several commands. No key refers to them until their last part is there, and none of them is
// durable before.
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>

#include "values/value_store.hpp"

namespace kvdrive {

struct Upload {
  std::uint16_t number = 0;
  std::uint16_t controller = 0;  // of the host that sends it
  Key key;
  std::uint32_t total = 0;  // bytes of the whole value
  Value value;              // what has arrived
};

class Uploads {
 public:
  explicit Uploads(ValueStore& values) : values_(values) {}

  // Returns a new upload; it replaces the oldest one if there are `most`. Valid until `end` or the next `begin`.
  Upload& begin(std::uint16_t controller, const Key& key, std::uint32_t total, std::size_t most) {
    if (uploads_.size() >= most) discard(uploads_.begin());
    do {
      ++last_;
    } while (last_ == 0 || find(last_) != nullptr);
    return uploads_.emplace_back(Upload{last_, controller, key, total, {}});
  }

  // Returns null if there is no such upload.
  Upload* find(std::uint16_t number) {
    for (Upload& upload : uploads_) {
      if (upload.number == number) return &upload;
    }
    return nullptr;
  }

  // Forgets an upload whose value a key refers to now.
  void end(std::uint16_t number) {
    uploads_.remove_if([number](const Upload& upload) { return upload.number == number; });
  }

  void discard(std::uint16_t number) {
    for (auto upload = uploads_.begin(); upload != uploads_.end(); ++upload) {
      if (upload->number == number) return discard(upload);
    }
  }

  // The host of a controller has gone, or has reset it.
  void abandon(std::uint16_t controller) {
    for (auto upload = uploads_.begin(); upload != uploads_.end();) {
      const auto next = std::next(upload);
      if (upload->controller == controller) discard(upload);
      upload = next;
    }
  }

  void clear() {
    while (!uploads_.empty()) discard(uploads_.begin());
  }

 private:
  void discard(std::list<Upload>::iterator upload) {
    values_.discard(upload->value);
    uploads_.erase(upload);
  }

  ValueStore& values_;
  std::list<Upload> uploads_;  // the oldest first
  std::uint16_t last_ = 0;
};

}  // namespace kvdrive
