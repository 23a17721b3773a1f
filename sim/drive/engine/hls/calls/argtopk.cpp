// SPDX-License-Identifier: Apache-2.0
#include "argtopk/argtopk.hpp"

#include "engine/hls/calls/beats.hpp"
#include "engine/hls/calls/calls.hpp"

namespace kvdrive::hls {

void call_argtopk(const void* keys, std::uint32_t n, std::uint32_t k, abi::KeyType type, ArgtopkResult& result) {
  const std::size_t key_bytes = type == abi::kMagnitude16 ? 2 : 4;
  const bool readable = n <= abi::kMaxTokens;  // the kernel refuses larger n without reading
  const std::vector<beat_t> key_beats = to_beats(keys, readable ? n * key_bytes : 0);
  std::vector<beat_t> index_beats(abi::kMaxTopK / kIndicesPerBeat);
  std::vector<beat_t> bitmap_beats(readable ? bitmap_words(static_cast<int>(n)) : 0);
  result.status =
      static_cast<std::uint32_t>(kvdrive::argtopk(key_beats.data(), index_beats.data(), bitmap_beats.data(),
                                                  static_cast<int>(n), static_cast<int>(k), static_cast<int>(type)));
  if (result.status != 0) return;
  result.indices.resize(k);
  from_beats(index_beats.data(), result.indices.data(), k * sizeof(std::uint32_t));
  result.bitmap.resize(bitmap_beats.size() * abi::kBeatBytes);
  from_beats(bitmap_beats.data(), result.bitmap.data(), result.bitmap.size());
}

}  // namespace kvdrive::hls
