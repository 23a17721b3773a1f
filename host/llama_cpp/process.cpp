// SPDX-License-Identifier: Apache-2.0
#include "process.hpp"

#include <algorithm>
#include <cstring>
#include <string>

#include "plugin.hpp"

using kvdrive::llama::Plugin;

#define KVDRIVE_EXPORTED __attribute__((visibility("default")))

KVDRIVE_EXPORTED std::uint32_t kvdrive_llama_interface() { return 1; }

KVDRIVE_EXPORTED void kvdrive_llama_hear(void (*hear)(const char* sentence)) { kvdrive::llama::report_to(hear); }

KVDRIVE_EXPORTED std::size_t kvdrive_llama_statistics(char* text, std::size_t room) {
  try {
    const std::string found = Plugin::get().statistics();
    if (room > 0) {
      const std::size_t part = std::min(found.size(), room - 1);
      std::memcpy(text, found.data(), part);
      text[part] = '\0';
    }
    return found.size();
  } catch (const std::exception&) {
    return 0;
  }
}
