// SPDX-License-Identifier: Apache-2.0
// hls::stream_of_blocks: a stream whose words are arrays. A writer fills a block and hands it on at the end of its
// lock, a reader has a block as long as its lock lasts. Software builds and the front end of openhls share this file.
#pragma once

#include <hls_stream.h>

#include <cstddef>
#include <type_traits>

namespace hls {

namespace details {
template <typename Block>
struct block {
  Block values;
};
}  // namespace details

template <typename Block, int Depth = 2>
class stream_of_blocks {
 public:
  stream_of_blocks() = default;
  explicit stream_of_blocks(const char*) {}
  bool empty() { return blocks.empty(); }
  bool full() { return blocks.full(); }
  hls::stream<details::block<Block>, Depth> blocks;
};

template <typename Block>
class write_lock {
 public:
  using Element = typename std::remove_extent<Block>::type;
  template <int Depth>
  explicit write_lock(stream_of_blocks<Block, Depth>& to) : to_(to.blocks) {}
  ~write_lock() { to_.write(block_); }
  write_lock(const write_lock&) = delete;
  write_lock& operator=(const write_lock&) = delete;
  Element& operator[](std::size_t i) { return block_.values[i]; }
  operator Block&() { return block_.values; }

 private:
  hls::stream<details::block<Block>>& to_;
  details::block<Block> block_;
};

template <typename Block>
class read_lock {
 public:
  using Element = typename std::remove_extent<Block>::type;
  template <int Depth>
  explicit read_lock(stream_of_blocks<Block, Depth>& from) : block_(from.blocks.read()) {}
  read_lock(const read_lock&) = delete;
  read_lock& operator=(const read_lock&) = delete;
  Element& operator[](std::size_t i) { return block_.values[i]; }
  const Element& operator[](std::size_t i) const { return block_.values[i]; }
  operator Block&() { return block_.values; }

 private:
  details::block<Block> block_;
};

}  // namespace hls
