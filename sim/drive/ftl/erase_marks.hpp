// SPDX-License-Identifier: Apache-2.0
// The set of bands that are marked for erase. It is durable, so a volume that was closed during an erase continues it
// later.
#pragma once

#include <cstdint>
#include <set>
#include <stdexcept>

#include "storage/records.hpp"

namespace kvdrive {

class EraseMarks {
 public:
  // Starts an erase. Until `finish`, a volume that is closed continues the erase when it is opened again.
  void begin() { active_ = changed_ = true; }
  void add(std::uint32_t band) { bands_.insert(band); }
  void remove(std::uint32_t band) {
    if (bands_.erase(band) > 0) changed_ = true;
  }
  void finish() {
    bands_.clear();
    active_ = false;
    changed_ = true;
  }

  bool active() const { return active_; }
  bool contains(std::uint32_t band) const { return bands_.contains(band); }
  const std::set<std::uint32_t>& bands() const { return bands_; }

  void save(RecordWriter& writer, bool everything) const {
    if (everything ? !active_ : !changed_) return;
    writer.put(RecordType::kEraseMarks);
    writer.put(active_ ? 1U : 0U);
    writer.put(static_cast<std::uint32_t>(bands_.size()));
    for (const std::uint32_t band : bands_) writer.put(band);
    writer.end_record();
  }
  void committed() { changed_ = false; }
  // Throws std::runtime_error if the record names a band beyond `band_count`.
  void load(RecordReader& reader, std::uint32_t band_count) {
    active_ = reader.get<std::uint32_t>() != 0;
    bands_.clear();
    for (const std::uint32_t band : reader.get_all<std::uint32_t>(reader.get<std::uint32_t>())) {
      if (band >= band_count) throw std::runtime_error("a record of bands to be erased is damaged");
      bands_.insert(band);
    }
  }

 private:
  std::set<std::uint32_t> bands_;
  bool active_ = false;
  bool changed_ = false;  // since the last commit
};

}  // namespace kvdrive
