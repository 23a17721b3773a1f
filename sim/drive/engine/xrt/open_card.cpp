// SPDX-License-Identifier: Apache-2.0
#include <dlfcn.h>

#include <stdexcept>

#include "engine/own_folder.hpp"
#include "engine/xrt/card.hpp"

namespace kvdrive {
namespace {

constexpr const char* kLibrary = "libkvdrive_xrt.so";

}  // namespace

std::unique_ptr<Card> open_card(const CardPlace& place, const ImageText& text) {
  const std::filesystem::path path = own_folder() / kLibrary;
  void* const library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);  // stays loaded: the runtime has threads
  if (library == nullptr) {
    throw std::runtime_error("engine xrt is not here (" + std::string(dlerror()) +
                             "): install XRT (scripts/system_packages.sh xrt), then build kvdrive again");
  }
  using Open = Card* (*)(const CardPlace&, const ImageText&);
  const auto open = reinterpret_cast<Open>(dlsym(library, "kvdrive_open_card"));
  if (open == nullptr) throw std::runtime_error(path.string() + " is of another version: build kvdrive again");
  return std::unique_ptr<Card>(open(place, text));
}

}  // namespace kvdrive
