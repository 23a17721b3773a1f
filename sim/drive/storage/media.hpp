// SPDX-License-Identifier: Apache-2.0
// The contents of the flash: units and their spares in the backing file.
//
// Programs gather in memory and go to the file side by side, in large writes, while the caller goes on; `drain`
// completes them. Reads are as parallel.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <span>
#include <vector>

#include "storage/aligned_buffer.hpp"
#include "storage/backing_file.hpp"
#include "storage/spare.hpp"
#include "storage/superblock.hpp"
#include "storage/transfer_threads.hpp"

namespace kvdrive {

struct UnitRead {
  Unit unit = 0;
  std::byte* out = nullptr;  // kPageBytes
};

class Media {
 public:
  // Programs that gather before they are written.
  static constexpr std::size_t kStagedBytes = 4 << 20;
  // Writes in flight at most, each of up to a megabyte; `drain_some` waits for room.
  static constexpr std::size_t kWritesInFlight = 8;

  Media(BackingFile& file, const Superblock& superblock) : file_(file), superblock_(superblock) {}
  ~Media() { writing_.clear(); }  // while there are threads
  Media(const Media&) = delete;
  Media& operator=(const Media&) = delete;

  // `data` and `spares` of the units_per_program() units from `first` on.
  void program(Unit first, AlignedBuffer data, std::span<const Spare> spares);

  using Arrived = std::function<void(std::size_t)>;

  // Any order; neighbours are read together. `arrived` is called with the number of each read when its contents are
  // there, by any thread. All contents are there when the batch has been waited for.
  TransferThreads::Batch start_read(std::span<const UnitRead> reads, Arrived arrived);
  void read(std::span<const UnitRead> reads) { start_read(reads, nullptr).wait(); }

  Spare spare(Unit unit);

  // To the file; the caller syncs. What could not be written stays.
  void drain();
  void drain_some() {
    if (staged_bytes_ > kStagedBytes) drain_units(kWritesInFlight);
  }

 private:
  static constexpr unsigned kThreads = 3;  // besides the caller

  struct Sector {
    AlignedBuffer bytes;
    bool dirty = false;
  };

  // A run of programs on its way to the file.
  struct Write {
    std::map<Unit, AlignedBuffer> programs;
    TransferThreads::Batch batch;
  };

  void drain_units(std::size_t in_flight);
  void reap(std::size_t in_flight);
  void write_run(const std::map<Unit, AlignedBuffer>& programs);
  const AlignedBuffer* in_memory(Unit program) const;
  std::uint64_t spare_offset(Unit unit) const;
  Sector& sector_at(std::uint64_t offset);

  BackingFile& file_;
  const Superblock superblock_;
  std::map<Unit, AlignedBuffer> staged_;
  std::size_t staged_bytes_ = 0;
  std::list<Write> writing_;
  std::map<std::uint64_t, Sector> sectors_;  // of the spare area, by their offset in the file
  TransferThreads threads_{kThreads};        // goes first, and with it all transfers
};

}  // namespace kvdrive
