// SPDX-License-Identifier: Apache-2.0
// Pages of the journal: how a transaction lies in the file so that one lost page can be computed from the others.
//
// Every page says which transaction it belongs to and has a checksum. After each 63 pages of contents, and after the
// last one, follows a page with their parity. Every sector begins with a stamp made from the salt of the journal's half
// and the number of the transaction: a sector with another stamp is older than the transaction, so a page that a power
// cut left half written differs from a page that was damaged later.
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
  std::uint64_t sequence = 0;  // of the transaction
  std::uint64_t payload_bytes = 0;
  std::uint32_t number = 0;  // of the page, 0 to pages - 1
  std::uint32_t pages = 0;   // with parity
  std::uint32_t payload_crc = 0;
  std::uint32_t crc = 0;  // of the page, this field 0

  // True if both pages can belong to the same writing of the same transaction.
  bool joins(const JournalPageHeader& other) const {
    return sequence == other.sequence && payload_bytes == other.payload_bytes && pages == other.pages &&
           payload_crc == other.payload_crc;
  }
};

namespace journal_page {

constexpr std::size_t kStampBytes = 8;
constexpr std::size_t kSectors = abi::kPageBytes / PowerCut::kSectorBytes;
constexpr std::size_t kContentBytes = abi::kPageBytes - kSectors * kStampBytes - sizeof(JournalPageHeader);
constexpr std::uint32_t kStripePages = 64;  // contents and parity

// Pages of a transaction, parity included.
constexpr std::uint64_t pages_of(std::uint64_t payload_bytes) {
  const std::uint64_t contents = payload_bytes == 0 ? 1 : (payload_bytes + kContentBytes - 1) / kContentBytes;
  return contents + (contents + kStripePages - 2) / (kStripePages - 1);
}

// The file's bytes of a transaction.
AlignedBuffer encode(std::span<const std::byte> payload, std::uint64_t salt, std::uint64_t sequence);

// How a page compares with what a page of transaction `sequence` must be.
enum class PageState : std::uint8_t {
  kOlder,    // a sector at least was never written for this transaction
  kDamaged,  // all sectors were, but the checksum is wrong
  kGood,
};
PageState state_of(std::span<const std::byte> page, std::uint64_t salt, std::uint64_t sequence);

JournalPageHeader header_of(std::span<const std::byte> page);

// True if the page is a good one of this half, of any transaction.
bool belongs(std::span<const std::byte> page, std::uint64_t salt);

// True if a sector of the page was written for transaction `sequence`.
bool touched(std::span<const std::byte> page, std::uint64_t salt, std::uint64_t sequence);

struct Decoded {
  bool whole = false;
  bool damaged = false;                   // not whole, and a power cut alone does not explain it
  std::vector<std::uint32_t> repaired{};  // pages that were computed from the others; `pages` holds them now
  std::vector<std::byte> payload{};
};

// `pages`: the pages of the transaction that `expected` describes. Lost ones are replaced where parity allows it.
Decoded decode(std::span<std::byte> pages, std::uint64_t salt, const JournalPageHeader& expected);

}  // namespace journal_page
}  // namespace kvdrive
