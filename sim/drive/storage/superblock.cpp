// SPDX-License-Identifier: Apache-2.0
#include "storage/superblock.hpp"

#include <algorithm>
#include <cstring>
#include <random>
#include <stdexcept>
#include <string>
#include <utility>

#include "crc32c.hpp"
#include "storage/aligned_buffer.hpp"
#include "storage/spare.hpp"

namespace kvdrive {
namespace {

static_assert(std::has_unique_object_representations_v<Superblock>);
static_assert(sizeof(Superblock) <= PowerCut::kSectorBytes);

std::uint32_t superblock_crc(Superblock superblock) {
  superblock.crc = 0;
  return crc32c(std::as_bytes(std::span(&superblock, 1)));
}

std::array<Superblock, 2> read_copies(const BackingFile& file) {
  AlignedBuffer pages(2 * abi::kPageBytes);
  file.peek(pages.span());
  std::array<Superblock, 2> copies;
  for (std::size_t i = 0; i < copies.size(); ++i) {
    std::memcpy(&copies[i], pages.data() + i * abi::kPageBytes, sizeof(Superblock));
  }
  return copies;
}

struct Note {
  std::uint64_t magic = 0x65746f6e20766b0a;
  std::uint64_t salt = 0;
  std::uint64_t count = 0;
  std::uint32_t reserved = 0;
  std::uint32_t crc = 0;

  std::uint32_t expected_crc() const {
    Note copy = *this;
    copy.crc = 0;
    return crc32c(std::as_bytes(std::span(&copy, 1)));
  }
};
static_assert(std::has_unique_object_representations_v<Note>);

constexpr std::uint64_t note_offset(std::uint64_t copy) {
  return (copy + 1) * abi::kPageBytes - PowerCut::kSectorBytes;
}

bool ours(const Superblock& superblock) { return superblock.magic == Superblock{}.magic; }

[[noreturn]] void refuse_drive(const BackingFile& file, const std::string& reason) {
  throw std::runtime_error("cannot use " + file.path().string() + " as a drive: " + reason);
}

// True if the fields are within their limits. Then products of them fit their types, whatever bytes the file held.
bool sane(const Superblock& s) {
  const Geometry& g = s.geometry;
  const auto between = [](std::uint64_t value, std::uint64_t least, std::uint64_t most) {
    return least <= value && value <= most;
  };
  const bool parts = between(g.channels, 1, 64) && between(g.dies_per_channel, 1, 64) && between(g.planes, 1, 16) &&
                     between(g.page_bytes, abi::kPageBytes, 1 << 20) && between(g.pages_per_program, 1, 16) &&
                     between(g.pages_per_block, 1, 1 << 16) && between(g.blocks_per_die, 1, kMostUnits) &&
                     between(s.journal_half_bytes, abi::kPageBytes, std::uint64_t{1} << 48);
  if (!parts || g.page_bytes % abi::kPageBytes != 0 || g.pages_per_block % g.pages_per_program != 0) return false;
  const std::uint64_t band = std::uint64_t{g.units_per_row()} * g.rows_per_band();
  return band <= kMostUnits && g.units() <= kMostUnits && s.journal_half_bytes % abi::kPageBytes == 0 &&
         s.payload <= 1 && s.capacity_units <= g.units() && s.preset.back() == 0;
}

}  // namespace

std::uint64_t Superblock::row_spare_bytes() const {
  return (geometry.units_per_row() * sizeof(Spare) + abi::kPageBytes - 1) / abi::kPageBytes * abi::kPageBytes;
}

FileKind kind_of(const BackingFile& file) {
  if (file.size() == 0) return FileKind::kEmpty;
  return std::ranges::any_of(read_copies(file), ours) ? FileKind::kDrive : FileKind::kOther;
}

FoundSuperblock read_superblock(const BackingFile& file, bool cut_short) {
  const std::array<Superblock, 2> copies = read_copies(file);
  const auto valid = [](const Superblock& copy) {
    return ours(copy) && copy.format_version == Superblock::kFormatVersion && copy.unit_bytes == abi::kPageBytes &&
           copy.crc == superblock_crc(copy) && sane(copy);
  };
  const auto age = [](const Superblock& copy) { return std::pair(copy.generation, copy.durable); };
  FoundSuperblock found;
  const bool first = valid(copies[0]), second = valid(copies[1]);
  if (first && second) {
    found.superblock = age(copies[0]) >= age(copies[1]) ? copies[0] : copies[1];
    found.repair = age(copies[0]) != age(copies[1]);
  } else if (first || second) {
    found = {.superblock = first ? copies[0] : copies[1], .repair = true};
    found.notice = std::string("the ") + (first ? "second" : "first") +
                   " copy of the superblock was damaged: made again from the other one, nothing is missing";
  } else {
    for (const Superblock& copy : copies) {
      if (!ours(copy) || copy.format_version == Superblock::kFormatVersion) continue;
      refuse_drive(file, "it has format " + std::to_string(copy.format_version) + ", this program writes format " +
                             std::to_string(Superblock::kFormatVersion) + "; format it anew or choose another path");
    }
    refuse_drive(file, "both copies of its superblock are damaged; format it anew or choose another path");
  }
  if (file.size() < found.superblock.file_bytes() && !cut_short)
    refuse_drive(file, "it is shorter than its superblock says");
  return found;
}

void write_superblocks(BackingFile& file, Superblock superblock) {
  superblock.crc = superblock_crc(superblock);
  AlignedBuffer page(abi::kPageBytes);
  std::memcpy(page.data(), &superblock, sizeof superblock);
  for (std::uint64_t copy = 0; copy < 2; ++copy) {
    file.write(copy * abi::kPageBytes, page.span());
    file.sync();
  }
}

void note_transactions(BackingFile& file, std::uint64_t salt, std::uint64_t count) {
  Note note{.salt = salt, .count = count};
  note.crc = note.expected_crc();
  std::array<std::byte, PowerCut::kSectorBytes> sector{};
  std::memcpy(sector.data(), &note, sizeof note);
  file.note(note_offset(count & 1), sector);
}

std::uint64_t noted_transactions(const BackingFile& file, std::uint64_t salt) {
  AlignedBuffer pages(2 * abi::kPageBytes);
  file.peek(pages.span());
  std::uint64_t count = 0;
  for (std::uint64_t copy = 0; copy < 2; ++copy) {
    Note note;
    std::memcpy(&note, pages.data() + note_offset(copy), sizeof note);
    if (note.magic == Note{}.magic && note.salt == salt && note.crc == note.expected_crc()) {
      count = std::max(count, note.count);
    }
  }
  return count;
}

std::uint64_t draw_salt() {
  std::random_device device;
  return std::uint64_t{device()} << 32 | device();
}

}  // namespace kvdrive
