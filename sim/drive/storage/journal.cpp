// SPDX-License-Identifier: Apache-2.0
#include "storage/journal.hpp"

#include <algorithm>
#include <system_error>
#include <utility>

namespace kvdrive {

using journal_page::Decoded;
using journal_page::PageState;

void Journal::replay(const std::function<void(RecordReader)>& apply) {
  while (replay_one(apply)) {
  }
  const Remains remains = look_ahead();
  noted_ = std::max(superblock_.durable, noted_transactions(file_, superblock_.salt));
  if (remains.later || remains.damaged || sequence_ < noted_) {
    refuse("transaction " + std::to_string(sequence_) + " cannot be read");
  }
  if (sequence_ == 0) refuse("it lost its snapshot");
  remains_bytes_ = remains.bytes;
}

void Journal::refuse(const std::string& what) {
  half_ended_ = true;
  throw JournalDamaged("the journal of " + file_.path().string() + " is damaged: " + what);
}

// Applies the transaction at the head. Returns false if there is no whole one.
bool Journal::replay_one(const std::function<void(RecordReader)>& apply) {
  const auto header = find_header();
  if (!header) return false;
  AlignedBuffer bytes(std::uint64_t{header->pages} * abi::kPageBytes);
  file_.read(start() + head_, bytes.span());
  Decoded decoded = journal_page::decode(bytes.span(), superblock_.salt, *header);
  if (!decoded.whole) {
    if (decoded.damaged) refuse("transaction " + std::to_string(sequence_) + " lost more than one page");
    return false;
  }
  for (const std::uint32_t number : decoded.repaired) {
    const std::uint64_t at = std::uint64_t{number} * abi::kPageBytes;
    Repair& repair = repairs_.emplace_back(Repair{start() + head_ + at, {}});
    repair.page.append(bytes.span().subspan(at, abi::kPageBytes));
    notices_.push_back("page " + std::to_string(number) + " of transaction " + std::to_string(sequence_) +
                       " of the journal was lost or damaged: computed from the others, nothing is missing");
  }
  apply(RecordReader(decoded.payload));
  head_ += bytes.size();
  ++sequence_;
  if (sequence_ == superblock_.snapshot) snapshot_bytes_ = head_;
  return true;
}

// Finds the header of the transaction at the head. Every page carries it, so one of the first two pages is enough.
std::optional<JournalPageHeader> Journal::find_header() const {
  AlignedBuffer page(abi::kPageBytes);
  for (std::uint32_t number = 0; number < 2; ++number) {
    const std::uint64_t offset = head_ + std::uint64_t{number} * abi::kPageBytes;
    if (offset + abi::kPageBytes > superblock_.journal_half_bytes) break;
    file_.read(start() + offset, page.span());
    if (journal_page::state_of(page.span(), superblock_.salt, sequence_) != PageState::kGood) continue;
    const JournalPageHeader header = journal_page::header_of(page.span());
    if (header.number != number || header.pages > room(head_) / abi::kPageBytes) break;
    return header;
  }
  return std::nullopt;  // the end of the journal, or damage that `look_ahead` finds
}

// Each transaction is durable before the next one is written. So a later transaction behind a missing one proves that
// the file was damaged. A page of the missing one with all its sectors but a wrong checksum proves it too.
Journal::Remains Journal::look_ahead() const {
  constexpr std::uint64_t kPiece = 1 << 20;
  Remains remains;
  std::uint64_t end = std::min(kGapBytes, room(head_));
  AlignedBuffer piece(kPiece);
  for (std::uint64_t at = 0; at < end; at += kPiece) {
    const auto bytes = piece.span().first(std::min(kPiece, end - at));
    if (file_.blank(start() + head_ + at, bytes.size())) continue;
    file_.read(start() + head_ + at, bytes);
    for (std::uint64_t offset = 0; offset < bytes.size(); offset += abi::kPageBytes) {
      const auto page = bytes.subspan(offset, abi::kPageBytes);
      if (journal_page::touched(page, superblock_.salt, sequence_)) {
        remains.bytes = at + offset + abi::kPageBytes;
        const PageState state = journal_page::state_of(page, superblock_.salt, sequence_);
        remains.damaged |= state == PageState::kDamaged;
        if (state != PageState::kGood) continue;
        // A large transaction ends beyond the gap, so the search goes on to its end.
        const JournalPageHeader header = journal_page::header_of(page);
        const std::uint64_t behind = at + offset - std::uint64_t{header.number} * abi::kPageBytes +
                                     (std::uint64_t{header.pages} + journal_page::kStripePages) * abi::kPageBytes;
        end = std::max(end, std::min(behind, room(head_)));
      } else if (journal_page::belongs(page, superblock_.salt)) {
        remains.later |= journal_page::header_of(page).sequence > sequence_;
      }
    }
  }
  return remains;
}

void Journal::write_repairs() {
  for (const Repair& repair : repairs_) file_.write(repair.offset, repair.page.span());
  if (remains_bytes_ > 0) {
    const AlignedBuffer zeros(1 << 20);
    for (std::uint64_t at = 0; at < remains_bytes_; at += zeros.size()) {
      file_.write(start() + head_ + at, zeros.span().first(std::min<std::uint64_t>(zeros.size(), remains_bytes_ - at)));
    }
  }
  if (!repairs_.empty() || remains_bytes_ > 0) file_.sync();
  repairs_.clear();
  remains_bytes_ = 0;
  if (noted_ < sequence_) note_acknowledged();
}

// The transaction is durable already, so a failure costs only that its loss would not be noticed.
void Journal::note_acknowledged() {
  try {
    note_transactions(file_, superblock_.salt, sequence_);
    noted_ = sequence_;
  } catch (const std::system_error&) {  // NOLINT(bugprone-empty-catch): see above
  }
}

bool Journal::fits(const RecordWriter& transaction) const {
  return head_ + journal_page::pages_of(transaction.size()) * abi::kPageBytes <= superblock_.journal_half_bytes;
}

void Journal::append(RecordWriter& transaction) {
  if (undecided_) throw std::runtime_error("the superblock could not be written: open the drive again");
  if (!fits(transaction)) throw std::runtime_error("the metadata outgrew the journal");
  const AlignedBuffer bytes = journal_page::encode(transaction.span(), superblock_.salt, sequence_);
  file_.write(start() + head_, bytes.span());
  head_ += bytes.size();
  bytes_written_ += bytes.size();
  ++sequence_;
}

// After a failure the file's contents are unknown: another transaction in the same place could not be told from this
// one.
void Journal::commit(RecordWriter& transaction) {
  half_ended_ = true;
  append(transaction);
  file_.sync();
  half_ended_ = false;
  note_acknowledged();
}

void Journal::begin_snapshot() {
  old_superblock_ = superblock_;
  old_head_ = head_;
  old_sequence_ = sequence_;
  head_ = sequence_ = 0;
  ++superblock_.generation;
  superblock_.salt = draw_salt();
}

void Journal::finish_snapshot() {
  file_.sync();
  superblock_.snapshot = superblock_.durable = sequence_;
  undecided_ = true;
  write_superblocks(file_, superblock_);
  undecided_ = half_ended_ = false;
  snapshot_bytes_ = head_;
}

void Journal::seal() {
  if (undecided_ || superblock_.durable == sequence_) return;
  superblock_.durable = sequence_;
  write_superblocks(file_, superblock_);
}

void Journal::discard_past() {
  const std::uint64_t half = superblock_.journal_half_bytes;
  file_.discard(superblock_.journal_offset(superblock_.generation + 1), half);
  file_.discard(start() + head_, half - head_);
}

// Discards the new half, because the file system may be full.
void Journal::abandon_snapshot() {
  const std::uint64_t abandoned = start();
  head_ = old_head_;
  sequence_ = old_sequence_;
  superblock_ = old_superblock_;
  if (undecided_) return;
  try {
    file_.discard(abandoned, superblock_.journal_half_bytes);
  } catch (const std::exception&) {  // NOLINT(bugprone-empty-catch): the space stays in use until the next snapshot
  }
}

}  // namespace kvdrive
