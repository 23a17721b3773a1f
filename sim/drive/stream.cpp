// SPDX-License-Identifier: Apache-2.0
#include "stream.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

namespace kvdrive {
namespace {

using PageBytes = std::array<std::byte, abi::kPageBytes>;

}  // namespace

std::uint32_t Stream::pages_to_append(std::uint32_t tokens) const {
  return (tokens_ + tokens) / tokens_per_page() - static_cast<std::uint32_t>(pages_.size());
}

void Stream::prepare_append(PageStore& store, std::span<const std::byte> rows, Change& change) const {
  const std::size_t group_bytes = std::size_t{tokens_per_page()} * row_bytes_;
  change.kept_pages = pages_.size();
  change.tokens = tokens_ + static_cast<std::uint32_t>(rows.size() / row_bytes_);
  change.tail = tail_;
  change.tail.insert(change.tail.end(), rows.begin(), rows.end());
  change.added.reserve(change.tail.size() / group_bytes);  // nothing may throw between a write and its note
  std::size_t done = 0;
  for (; change.tail.size() - done >= group_bytes; done += group_bytes) {
    PageBytes page{};
    std::memcpy(page.data(), change.tail.data() + done, group_bytes);
    change.added.push_back(store.write(page));
  }
  change.tail.erase(change.tail.begin(), change.tail.begin() + static_cast<std::ptrdiff_t>(done));
}

bool Stream::prepare_truncate(PageStore& store, std::uint32_t tokens, Change& change) const {
  change.kept_pages = std::min<std::size_t>(tokens / tokens_per_page(), pages_.size());
  change.tokens = tokens;
  const std::size_t tail_bytes =
      tokens * std::size_t{row_bytes_} - change.kept_pages * tokens_per_page() * std::size_t{row_bytes_};
  change.tail = tail_;
  if (change.kept_pages < pages_.size() && tail_bytes > 0) {
    change.tail.resize(abi::kPageBytes);
    if (!store.read(pages_[change.kept_pages], PageBuffer(change.tail))) return false;
  }
  change.tail.resize(tail_bytes);
  return true;
}

void Stream::apply(PageStore& store, Change&& change) {
  for (std::size_t i = change.kept_pages; i < pages_.size(); ++i) store.release(pages_[i]);
  pages_.resize(change.kept_pages);
  pages_.insert(pages_.end(), change.added.begin(), change.added.end());
  tail_ = std::move(change.tail);
  tokens_ = change.tokens;
}

bool Stream::read(PageStore& store, std::uint32_t tokens, std::byte* out) const {
  const std::size_t group_bytes = std::size_t{tokens_per_page()} * row_bytes_;
  std::size_t left = tokens * std::size_t{row_bytes_};
  PageBytes page;
  for (std::size_t i = 0; i < pages_.size() && left > 0; ++i) {
    if (!store.read(pages_[i], page)) return false;
    const std::size_t size = std::min(left, group_bytes);
    std::memcpy(out, page.data(), size);
    out += size;
    left -= size;
  }
  if (left > 0) std::memcpy(out, tail_.data(), left);
  return true;
}

std::uint64_t Stream::tail_bytes(std::uint32_t tokens) const {
  return tokens > tokens_in_pages() ? std::uint64_t{tokens - tokens_in_pages()} * row_bytes_ : 0;
}

}  // namespace kvdrive
