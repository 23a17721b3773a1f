// SPDX-License-Identifier: Apache-2.0
#include "process.hpp"

#include <algorithm>
#include <cstring>
#include <exception>
#include <span>
#include <string>
#include <vector>

#include "kv_cache.hpp"
#include "plugin.hpp"

using kvdrive::llama::KvCache;
using kvdrive::llama::Plugin;

namespace {

// The text that `make` returns, as process.hpp says of it. After an exception, which is reported, 0.
template <typename Make>
std::size_t text_of(char* text, std::size_t room, Make make) {
  try {
    const std::string found = make();
    if (room > 0) {
      const std::size_t part = std::min(found.size(), room - 1);
      std::memcpy(text, found.data(), part);
      text[part] = '\0';
    }
    return found.size();
  } catch (const std::exception& error) {
    kvdrive::llama::report(error.what());
    return 0;
  }
}

template <typename Work>
bool done(Work work) {
  try {
    return work();
  } catch (const std::exception& error) {
    kvdrive::llama::report(error.what());
    return false;
  }
}

std::string rows_text(const KvCache& cache) {
  std::string rows;
  for (const auto& [address, tensor] : cache.tensors()) {
    rows += (rows.empty() ? "[" : ", [") + std::to_string(tensor.rows.layer) + ", " + std::to_string(tensor.rows.kind) +
            ", " + std::to_string(tensor.rows.heads) + ", " + std::to_string(tensor.rows.dim) + "]";
  }
  return "[" + rows + "]";
}

}  // namespace

#define KVDRIVE_EXPORTED __attribute__((visibility("default")))

KVDRIVE_EXPORTED std::uint32_t kvdrive_llama_interface() { return 2; }

KVDRIVE_EXPORTED void kvdrive_llama_hear(void (*hear)(const char* sentence)) { kvdrive::llama::report_to(hear); }

KVDRIVE_EXPORTED void kvdrive_llama_close() { Plugin::get().finish(); }

KVDRIVE_EXPORTED std::size_t kvdrive_llama_statistics(char* text, std::size_t room) {
  return text_of(text, room, [] { return Plugin::get().drive_or_null() ? Plugin::get().statistics() : ""; });
}

KVDRIVE_EXPORTED std::int32_t kvdrive_llama_execute(const void* command, const void* data, std::size_t bytes, void* out,
                                                    std::size_t room, std::size_t* returned, std::uint64_t* result) {
  std::int32_t status = -1;
  done([&] {
    kvdrive::abi::Sqe entry;
    std::memcpy(&entry, command, sizeof entry);
    const auto reply = Plugin::get().drive().execute(entry, {static_cast<const std::byte*>(data), bytes}, room);
    *returned = std::min(reply.data.size(), room);
    *result = reply.result;
    if (*returned > 0) std::memcpy(out, reply.data.data(), *returned);
    status = reply.status;
    return true;
  });
  return status;
}

KVDRIVE_EXPORTED std::size_t kvdrive_llama_sessions(std::uint32_t* numbers, std::size_t room) {
  std::size_t count = 0;
  done([&] {
    const std::vector<std::uint32_t> found = Plugin::get().drive().sessions();
    count = found.size();
    std::copy_n(found.begin(), std::min(count, room), numbers);
    return true;
  });
  return count;
}

KVDRIVE_EXPORTED std::size_t kvdrive_llama_failure(char* text, std::size_t room) {
  return text_of(text, room, [] { return Plugin::get().drive().failure(); });
}

KVDRIVE_EXPORTED std::size_t kvdrive_llama_rows(char* text, std::size_t room) {
  return text_of(text, room, [] { return rows_text(Plugin::get().only_cache()); });
}

KVDRIVE_EXPORTED std::uint32_t kvdrive_llama_fork(std::uint32_t sequence, std::uint32_t tokens) {
  std::uint32_t number = 0;
  done([&] {
    KvCache& cache = Plugin::get().only_cache();
    cache.settle(sequence);
    number = Plugin::get().drive().fork(cache.session(sequence), tokens).number;
    return true;
  });
  return number;
}

KVDRIVE_EXPORTED bool kvdrive_llama_release(std::uint32_t session) {
  return done([&] {
    Plugin::get().drive().release({.number = session});
    return true;
  });
}

KVDRIVE_EXPORTED bool kvdrive_llama_shorten(std::uint32_t sequence, std::uint32_t cells) {
  return done([&] {
    if (cells == 0) {
      Plugin::get().forget(sequence);
    } else {
      Plugin::get().only_cache().shorten(sequence, cells);
    }
    return true;
  });
}

KVDRIVE_EXPORTED bool kvdrive_llama_take(std::uint32_t sequence, std::uint32_t session, std::uint32_t tokens) {
  return done([&] {
    Plugin::get().only_cache().take(sequence, {.number = session}, tokens);
    return true;
  });
}

KVDRIVE_EXPORTED bool kvdrive_llama_taken() {
  return done([] { return !Plugin::get().only_cache().taking(); });
}
