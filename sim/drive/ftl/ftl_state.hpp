// SPDX-License-Identifier: Apache-2.0
// The state that the parts of the translation layer share: the map from logical groups to physical units, the bands,
// and the write queue.
#pragma once

#include <cstdint>
#include <functional>
#include <utility>

#include "ftl/band_table.hpp"
#include "ftl/erase_marks.hpp"
#include "ftl/flash_schedule.hpp"
#include "ftl/group_map.hpp"
#include "ftl/kept_pages.hpp"
#include "ftl/write_order.hpp"
#include "ftl/write_queue.hpp"
#include "nand/device.hpp"
#include "storage/faults.hpp"
#include "storage/media.hpp"

namespace kvdrive {

// Write amplification is kPageBytes * units_programmed / bytes written by the drive's user.
struct FtlCounters {
  std::uint64_t groups_written = 0;   // written by the drive's user
  std::uint64_t groups_moved = 0;     // moved by garbage collection and wear levelling
  std::uint64_t groups_levelled = 0;  // moved by wear levelling; also counted in groups_moved
  std::uint64_t units_programmed = 0;
  std::uint64_t groups_read = 0;    // read for the engine and the host
  std::uint64_t groups_reread = 0;  // read by the firmware itself
  std::uint64_t pages_sensed = 0;   // sensed flash pages; a page may hold several groups
  std::uint64_t queued_reads = 0;   // reads of groups that were in the write queue
  std::uint64_t program_failures = 0;
  std::uint64_t erase_failures = 0;
  std::uint64_t lost_groups = 0;  // reads that found damaged contents
};

struct FtlState {
  FtlState(const Superblock& superblock, Media& flash_media, NandDevice& flash_device, Faults& injected,
           std::function<void()> make_durable)
      : geometry(superblock.geometry),
        media(flash_media),
        device(flash_device),
        faults(injected),
        commit(std::move(make_durable)),
        schedule(device, geometry.dies()),
        bands(geometry),
        queue(media) {}

  // Frees units that no list references any more.
  void free_units(Unit first, std::uint32_t count) {
    live -= count;
    if (WriteQueue::holds(first)) {
      queue.invalidate(first, count);
    } else {
      vacate(first, count);
    }
  }

  // Gives up flash units whose groups were dropped or moved.
  void vacate(Unit first, std::uint32_t count) {
    hot.forget(first, count);
    index.forget(first, count);
    bands.remove_live(first, count);
  }

  const Geometry geometry;
  Media& media;
  NandDevice& device;
  Faults& faults;
  const std::function<void()> commit;  // makes the present state durable
  FlashSchedule schedule;
  BandTable bands;
  GroupMap map;
  WriteQueue queue;
  EraseMarks marks;
  WriteOrder order;
  FtlCounters counters;
  KeptPages hot, index;    // pages of K and V, and of the 2-bit index, that attention keeps in drive memory
  std::uint64_t live = 0;  // number of units that a list references
  Ns now = 0;              // device time at which new operations start
};

}  // namespace kvdrive
