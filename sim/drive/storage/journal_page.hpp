// SPDX-License-Identifier: Apache-2.0
// The pages of the journal. A transaction lies in the file such that one lost page can be computed from the others.
//
// Every page names its transaction and has a checksum. A parity page follows each 63 pages of contents, and the last
// page. Every sector begins with a stamp, which is made from the salt of the journal's half and the number of the
// transaction. A sector with another stamp is older than the transaction. So a page that a power cut left half written
// differs from a page that was damaged later.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "common/abi.hpp"
#include "storage/aligned_buffer.hpp"
#include "storage/power_cut.hpp"

namespace kvdrive {

struct JournalPageHeader {
  std::uint64_t sequence = 0;  // number of the transaction
  std::uint64_t payload_bytes = 0;
  std::uint32_t number = 0;  // number of the page, 0 to pages - 1
  std::uint32_t pages = 0;   // pages of the transaction, parity included
  std::uint32_t payload_crc = 0;
  std::uint32_t crc = 0;  // checksum of the page with this field set to 0

  // True if both pages can come from the same write of the same transaction.
  bool joins(const JournalPageHeader& other) const {
    return sequence == other.sequence && payload_bytes == other.payload_bytes && pages == other.pages &&
           payload_crc == other.payload_crc;
  }
};

namespace journal_page {

constexpr std::size_t kStampBytes = 8;
constexpr std::size_t kSectors = abi::kPageBytes / PowerCut::kSectorBytes;
constexpr std::size_t kContentBytes = abi::kPageBytes - kSectors * kStampBytes - sizeof(JournalPageHeader);
constexpr std::uint32_t kStripePages = 64;  // pages of contents and their parity page

// The number of pages of a transaction, parity included.
constexpr std::uint64_t pages_of(std::uint64_t payload_bytes) {
  const std::uint64_t contents = payload_bytes == 0 ? 1 : (payload_bytes + kContentBytes - 1) / kContentBytes;
  return contents + (contents + kStripePages - 2) / (kStripePages - 1);
}

// Returns the pages of a transaction as they are written to the file.
AlignedBuffer encode(std::span<const std::byte> payload, std::uint64_t salt, std::uint64_t sequence);

// The state of a page, compared with a page of transaction `sequence`.
enum class PageState : std::uint8_t {
  kOlder,    // at least one sector was not written for this transaction
  kDamaged,  // all sectors were written, but the checksum is wrong
  kGood,
};
PageState state_of(std::span<const std::byte> page, std::uint64_t salt, std::uint64_t sequence);

JournalPageHeader header_of(std::span<const std::byte> page);

// True if the page is whole and belongs to this half, in any transaction.
bool belongs(std::span<const std::byte> page, std::uint64_t salt);

// True if at least one sector of the page was written for transaction `sequence`.
bool touched(std::span<const std::byte> page, std::uint64_t salt, std::uint64_t sequence);

struct Decoded {
  bool whole = false;
  bool damaged = false;                   // a page is not whole, and a power cut alone does not explain that
  std::vector<std::uint32_t> repaired{};  // pages that were computed from others; `pages` has their contents now
  std::vector<std::byte> payload{};
};

// Decodes `pages`, the pages of the transaction that `expected` describes. Lost pages are replaced if parity allows it.
Decoded decode(std::span<std::byte> pages, std::uint64_t salt, const JournalPageHeader& expected);

}  // namespace journal_page
}  // namespace kvdrive
