// SPDX-License-Identifier: Apache-2.0
#include "engine/own_folder.hpp"

#include <dlfcn.h>

namespace kvdrive {

std::filesystem::path own_folder() {
  Dl_info info{};
  if (dladdr(reinterpret_cast<void*>(&own_folder), &info) == 0 || info.dli_fname == nullptr) return {};
  return std::filesystem::path(info.dli_fname).parent_path();
}

}  // namespace kvdrive
