// SPDX-License-Identifier: Apache-2.0
#include "storage/journal_page.hpp"

#include <algorithm>
#include <array>

#include "crc32c.hpp"

namespace kvdrive::journal_page {
namespace {

constexpr std::size_t kSector = PowerCut::kSectorBytes;
constexpr std::size_t kUsable = kSector - kStampBytes;

std::uint64_t stamp_of(std::uint64_t salt, std::uint64_t sequence) {
  return salt ^ ((sequence + 1) * 0x9e3779b97f4a7c15ULL);
}

std::uint64_t stamp_in(std::span<const std::byte> page, std::size_t sector) {
  std::uint64_t stamp = 0;
  std::memcpy(&stamp, page.data() + sector * kSector, sizeof stamp);
  return stamp;
}

// Copies between consecutive bytes and the contents of a page. In the page, stamps and the header lie between the
// contents.
template <typename Copy>
void for_each_piece(std::size_t bytes, Copy copy) {
  std::size_t done = 0;
  for (std::size_t sector = 0; sector < kSectors && done < bytes; ++sector) {
    const std::size_t skipped = kStampBytes + (sector == 0 ? sizeof(JournalPageHeader) : 0);
    const std::size_t count = std::min(kSector - skipped, bytes - done);
    copy(sector * kSector + skipped, done, count);
    done += count;
  }
}

std::uint32_t page_crc(std::span<const std::byte> page) {
  std::array<std::byte, abi::kPageBytes> copy;
  std::memcpy(copy.data(), page.data(), copy.size());
  std::memset(copy.data() + kStampBytes + offsetof(JournalPageHeader, crc), 0, sizeof(std::uint32_t));
  return crc32c(copy);
}

// Adds stamps, header and checksum to a page that has its contents.
void finish(std::span<std::byte> page, std::uint64_t salt, JournalPageHeader header) {
  const std::uint64_t stamp = stamp_of(salt, header.sequence);
  for (std::size_t sector = 0; sector < kSectors; ++sector) {
    std::memcpy(page.data() + sector * kSector, &stamp, sizeof stamp);
  }
  header.crc = 0;
  std::memcpy(page.data() + kStampBytes, &header, sizeof header);
  header.crc = crc32c(page);
  std::memcpy(page.data() + kStampBytes, &header, sizeof header);
}

void add(std::span<std::byte> to, std::span<const std::byte> page) {
  for (std::size_t i = 0; i < page.size(); i += sizeof(std::uint64_t)) {
    std::uint64_t a = 0, b = 0;
    std::memcpy(&a, to.data() + i, sizeof a);
    std::memcpy(&b, page.data() + i, sizeof b);
    a ^= b;
    std::memcpy(to.data() + i, &a, sizeof a);
  }
}

template <typename Bytes>
auto page_at(Bytes pages, std::uint64_t number) {
  return pages.subspan(number * abi::kPageBytes, abi::kPageBytes);
}

struct Stripe {
  std::uint64_t first, parity;
};

Stripe stripe_of(std::uint64_t number, std::uint64_t pages) {
  const std::uint64_t first = number / kStripePages * kStripePages;
  return {first, std::min<std::uint64_t>(first + kStripePages, pages) - 1};
}

}  // namespace

AlignedBuffer encode(std::span<const std::byte> payload, std::uint64_t salt, std::uint64_t sequence) {
  const std::uint64_t pages = pages_of(payload.size());
  AlignedBuffer bytes(pages * abi::kPageBytes);
  JournalPageHeader header{.sequence = sequence,
                           .payload_bytes = payload.size(),
                           .pages = static_cast<std::uint32_t>(pages),
                           .payload_crc = crc32c(payload)};
  for (std::uint64_t number = 0; number < pages; ++number) {
    const auto page = page_at(bytes.span(), number);
    const Stripe stripe = stripe_of(number, pages);
    if (number == stripe.parity) {
      for (std::uint64_t other = stripe.first; other < number; ++other) add(page, page_at(bytes.span(), other));
    } else {
      const auto part = payload.first(std::min(payload.size(), kContentBytes));
      for_each_piece(part.size(), [&](std::size_t at, std::size_t from, std::size_t count) {
        std::memcpy(page.data() + at, part.data() + from, count);
      });
      payload = payload.subspan(part.size());
    }
    header.number = static_cast<std::uint32_t>(number);
    finish(page, salt, header);
  }
  return bytes;
}

JournalPageHeader header_of(std::span<const std::byte> page) {
  JournalPageHeader header;
  std::memcpy(&header, page.data() + kStampBytes, sizeof header);
  return header;
}

PageState state_of(std::span<const std::byte> page, std::uint64_t salt, std::uint64_t sequence) {
  const std::uint64_t stamp = stamp_of(salt, sequence);
  for (std::size_t sector = 0; sector < kSectors; ++sector) {
    if (stamp_in(page, sector) != stamp) return PageState::kOlder;
  }
  const JournalPageHeader header = header_of(page);
  const bool sane = header.sequence == sequence && header.pages == pages_of(header.payload_bytes) &&
                    header.number < header.pages && header.crc == page_crc(page);
  return sane ? PageState::kGood : PageState::kDamaged;
}

bool belongs(std::span<const std::byte> page, std::uint64_t salt) {
  const std::uint64_t sequence = header_of(page).sequence;
  return stamp_in(page, 0) == stamp_of(salt, sequence) && state_of(page, salt, sequence) == PageState::kGood;
}

bool touched(std::span<const std::byte> page, std::uint64_t salt, std::uint64_t sequence) {
  const std::uint64_t stamp = stamp_of(salt, sequence);
  for (std::size_t sector = 0; sector < kSectors; ++sector) {
    if (stamp_in(page, sector) == stamp) return true;
  }
  return false;
}

Decoded decode(std::span<std::byte> pages, std::uint64_t salt, const JournalPageHeader& expected) {
  Decoded result;
  std::vector<std::uint32_t> lost;
  for (std::uint32_t number = 0; number < expected.pages; ++number) {
    const auto page = page_at(pages, number);
    const PageState state = state_of(page, salt, expected.sequence);
    const JournalPageHeader header = header_of(page);
    if (state == PageState::kGood && header.number == number && header.joins(expected)) continue;
    lost.push_back(number);
    result.damaged |= state != PageState::kOlder;
  }
  for (std::size_t i = 0; i < lost.size(); ++i) {
    const Stripe stripe = stripe_of(lost[i], expected.pages);
    if (i > 0 && lost[i - 1] >= stripe.first) return result;  // two lost pages in one stripe
    const auto page = page_at(pages, lost[i]);
    std::ranges::fill(page, std::byte{});
    for (std::uint64_t other = stripe.first; other <= stripe.parity; ++other) {
      if (other != lost[i]) add(page, page_at(pages, other));
    }
    JournalPageHeader header = expected;
    header.number = lost[i];
    finish(page, salt, header);
  }
  result.payload.reserve(expected.payload_bytes);
  for (std::uint64_t number = 0; number < expected.pages; ++number) {
    if (number == stripe_of(number, expected.pages).parity) continue;
    const auto page = page_at(pages, number);
    const std::size_t bytes = std::min<std::size_t>(expected.payload_bytes - result.payload.size(), kContentBytes);
    for_each_piece(bytes, [&](std::size_t at, std::size_t, std::size_t count) {
      result.payload.insert(result.payload.end(), page.data() + at, page.data() + at + count);
    });
  }
  result.whole = lost.empty() || crc32c(result.payload) == expected.payload_crc;
  if (result.whole) result.repaired = std::move(lost);
  return result;
}

}  // namespace kvdrive::journal_page
