// SPDX-License-Identifier: Apache-2.0
// The first pages of a backing file: they identify the file, and give the size of its flash and the start of the
// journal.
//
// There are two equal copies, written one after the other with a sync between them. One copy is enough. If a power cut
// came between them, the newer copy counts, and opening the drive rewrites the other one.
//
// The last sector of each of these pages counts the transactions that were acknowledged since. It is written behind
// each transaction, in turn to one page and the other, and no write waits for it. So if a whole transaction vanishes
// from the journal later, the count says that it is missing. A power cut may take the latest count; then fewer are
// known.
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

#include "nand/geometry.hpp"
#include "storage/backing_file.hpp"

namespace kvdrive {

struct Superblock {
  static constexpr std::uint32_t kFormatVersion = 6;

  std::array<char, 8> magic{'k', 'v', 'd', 'r', 'i', 'v', 'e', '\n'};
  std::uint32_t format_version = kFormatVersion;
  std::uint32_t unit_bytes = abi::kPageBytes;
  std::uint64_t generation = 0;  // generation of the journal; its lowest bit is the half in use
  std::uint64_t salt = 0;        // salt of that half; each start of a half draws a new one
  std::uint64_t snapshot = 0;    // number of transactions in the half's snapshot
  std::uint64_t durable = 0;     // transactions that were durable at the time of writing; there may be more now
  std::uint64_t capacity_units = 0;
  std::uint64_t journal_half_bytes = 0;
  Geometry geometry;
  std::uint32_t payload = 1;  // 0: the file stores no contents of groups, for studies of time
  std::uint32_t reserved = 0;
  std::array<char, 32> preset{};
  std::uint32_t crc = 0;

  static constexpr std::uint64_t kJournalOffset = 2 * abi::kPageBytes;
  std::uint64_t journal_offset(std::uint64_t of_generation) const {
    return kJournalOffset + (of_generation & 1) * journal_half_bytes;
  }
  std::uint64_t spare_offset() const { return kJournalOffset + 2 * journal_half_bytes; }
  // Bytes of a row's spares, padded so that each row starts a page.
  std::uint64_t row_spare_bytes() const;
  std::uint64_t spare_bytes() const { return row_spare_bytes() * geometry.rows_per_band() * geometry.blocks_per_die; }
  std::uint64_t unit_offset() const { return spare_offset() + spare_bytes(); }
  std::uint64_t file_bytes() const { return unit_offset() + geometry.units() * abi::kPageBytes; }

  std::string_view preset_name() const { return preset.data(); }
};

// What kind of content a file has.
enum class FileKind : std::uint8_t { kEmpty, kDrive, kOther };

// Returns kDrive for every version of the format.
FileKind kind_of(const BackingFile& file);

struct FoundSuperblock {
  Superblock superblock;
  bool repair = false;   // the other copy is damaged or older
  std::string notice{};  // the damage of the other copy, if a power cut does not explain it
};

// Throws std::runtime_error with a sentence for the user when the file holds no drive of this format. `cut_short`:
// accept a file that is shorter than it should be.
FoundSuperblock read_superblock(const BackingFile& file, bool cut_short = false);

// Writes both copies; they are durable on return.
void write_superblocks(BackingFile& file, Superblock superblock);

// Counts the transactions of the half with this salt that are durable, or were said to be. Throws std::system_error.
void note_transactions(BackingFile& file, std::uint64_t salt, std::uint64_t count);
// The largest such count; 0 if there is none for this salt, as in files of earlier versions.
std::uint64_t noted_transactions(const BackingFile& file, std::uint64_t salt);

// Returns a number that no half of a journal has had before.
std::uint64_t draw_salt();

}  // namespace kvdrive
