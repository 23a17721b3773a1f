// SPDX-License-Identifier: Apache-2.0
// The KV cache in the drive: sessions, each with the K and V of its layers and heads, and the commands that change
// them.
//
// A command that is refused changes nothing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <unordered_map>

#include "common/abi.hpp"
#include "page_store.hpp"
#include "stream.hpp"

namespace kvdrive {

class KvStore {
 public:
  explicit KvStore(PageStore& pages) : pages_(pages) {}

  // Appends `data` [heads][tokens][row_bytes]. On success `tokens_in_pages` is the smallest count over the heads.
  abi::NvmeStatus append(const abi::KvAppend& command, std::span<const std::byte> data, std::uint32_t& tokens_in_pages);

  abi::NvmeStatus trim(const abi::SessionTrim& command);

  bool has_session(std::uint32_t session) const { return sessions_.contains(session); }

  // Null when nothing was appended there.
  const Stream* find(std::uint32_t session, std::uint32_t layer, std::uint32_t head, abi::KvKind kind) const;

 private:
  struct Session {
    std::uint32_t next_sequence = 0;
    std::unordered_map<std::uint32_t, Stream> streams;
  };

  abi::NvmeStatus check_append(const abi::KvAppend& command) const;
  bool fits(const abi::KvAppend& command) const;

  PageStore& pages_;
  std::unordered_map<std::uint32_t, Session> sessions_;
};

}  // namespace kvdrive
