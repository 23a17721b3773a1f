// SPDX-License-Identifier: Apache-2.0
#include "storage/journal.hpp"

#include <array>
#include <stdexcept>
#include <string>
#include <utility>

#include "crc32c.hpp"

namespace kvdrive {

struct Journal::Header {
  static constexpr std::array<char, 8> kMagic{'k', 'v', 'd', ' ', 'l', 'o', 'g', '\n'};

  std::array<char, 8> magic = kMagic;
  std::uint64_t generation = 0;
  std::uint64_t sequence = 0;
  std::uint64_t payload_bytes = 0;
  std::uint32_t payload_crc = 0;
  std::uint32_t crc = 0;  // of the fields before

  std::uint32_t expected_crc() const { return crc32c(std::as_bytes(std::span(this, 1)).first(sizeof *this - 4)); }
};

namespace {

constexpr std::uint64_t whole_pages(std::uint64_t bytes) {
  return (bytes + abi::kPageBytes - 1) / abi::kPageBytes * abi::kPageBytes;
}

}  // namespace

RecordWriter Journal::make_transaction(std::function<void(RecordWriter&)> spill) {
  return RecordWriter(sizeof(Header), std::move(spill));
}

void Journal::replay(const std::function<void(RecordReader)>& apply) {
  const std::uint64_t start = superblock_.journal_offset(superblock_.generation);
  AlignedBuffer bytes(abi::kPageBytes);
  for (auto header = header_at(head_); header && header->sequence == sequence_; header = header_at(head_)) {
    const std::uint64_t size = whole_pages(sizeof(Header) + header->payload_bytes);
    bytes.resize(size);
    file_.read(start + head_, bytes.span());
    const auto payload = bytes.span().subspan(sizeof(Header), header->payload_bytes);
    if (crc32c(payload) != header->payload_crc) break;
    apply(RecordReader(payload));
    head_ += size;
    ++sequence_;
  }
  if (sequence_ == 0) throw std::runtime_error("the journal of " + file_.path().string() + " lost its snapshot");
  refuse_gap();
}

// What a transaction at `offset` of the current half says of itself.
std::optional<Journal::Header> Journal::header_at(std::uint64_t offset) const {
  if (offset + abi::kPageBytes > superblock_.journal_half_bytes) return std::nullopt;
  AlignedBuffer page(abi::kPageBytes);
  file_.read(superblock_.journal_offset(superblock_.generation) + offset, page.span());
  Header header;
  std::memcpy(&header, page.data(), sizeof header);
  const bool valid = header.magic == Header::kMagic && header.crc == header.expected_crc() &&
                     header.generation == superblock_.generation &&
                     header.payload_bytes <= superblock_.journal_half_bytes - offset - sizeof header;
  return valid ? std::optional(header) : std::nullopt;
}

// Each transaction is durable before the next one is written: one behind a missing one means that the file was damaged.
void Journal::refuse_gap() const {
  for (std::uint64_t ahead = 0; ahead < kGapBytes; ahead += abi::kPageBytes) {
    const auto header = header_at(head_ + ahead);
    if (header && header->sequence > sequence_) {
      throw std::runtime_error("the journal of " + file_.path().string() + " is damaged: transaction " +
                               std::to_string(sequence_) + " is missing");
    }
  }
}

bool Journal::fits(const RecordWriter& transaction) const {
  return head_ + whole_pages(transaction.size() + sizeof(Header)) <= superblock_.journal_half_bytes;
}

void Journal::append(RecordWriter& transaction) {
  if (undecided_) throw std::runtime_error("the superblock could not be written: open the drive again");
  if (!fits(transaction)) throw std::runtime_error("the metadata outgrew the journal");
  Header header;
  header.generation = superblock_.generation;
  header.sequence = sequence_;
  header.payload_bytes = transaction.size();
  AlignedBuffer& bytes = transaction.buffer();
  header.payload_crc = crc32c(bytes.span().subspan(sizeof header));
  header.crc = header.expected_crc();
  std::memcpy(bytes.data(), &header, sizeof header);
  bytes.resize(whole_pages(bytes.size()));
  file_.write(superblock_.journal_offset(superblock_.generation) + head_, bytes.span());
  head_ += bytes.size();
  bytes_written_ += bytes.size();
  ++sequence_;
}

void Journal::begin_snapshot() {
  old_head_ = head_;
  old_sequence_ = sequence_;
  head_ = sequence_ = 0;
  ++superblock_.generation;
}

void Journal::finish_snapshot() {
  file_.sync();
  undecided_ = true;
  write_superblock(file_, superblock_);
  file_.sync();
  undecided_ = false;
  snapshot_bytes_ = head_;
}

void Journal::discard_past() {
  const std::uint64_t half = superblock_.journal_half_bytes;
  file_.discard(superblock_.journal_offset(superblock_.generation + 1), half);
  file_.discard(superblock_.journal_offset(superblock_.generation) + head_, half - head_);
}

void Journal::abandon_snapshot() {
  head_ = old_head_;
  sequence_ = old_sequence_;
  --superblock_.generation;
}

}  // namespace kvdrive
