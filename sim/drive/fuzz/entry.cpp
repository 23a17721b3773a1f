// SPDX-License-Identifier: Apache-2.0
// The entry point for libFuzzer. One input is a short history of a surface, from its construction on. A fault is an
// exception or a report of a sanitizer. libFuzzer then writes the input to a file, which reproduces the fault alone.
#include <unistd.h>

#include "fuzz/fuzz.hpp"

namespace kvdrive::fuzz {
namespace {

// A folder that is removed when the program ends.
struct Folder {
  std::filesystem::path path = std::filesystem::temp_directory_path() / ("kvdrive-fuzz-" + std::to_string(::getpid()));

  Folder() { std::filesystem::create_directory(path); }
  ~Folder() { std::filesystem::remove_all(path); }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;

  void clear() const {
    for (const auto& entry : std::filesystem::directory_iterator(path)) std::filesystem::remove_all(entry);
  }
};

void run(std::span<const std::uint8_t> script) {
  static const Folder folder;
  static std::unique_ptr<Surface> surface;
  if (!surface || !surface->starts_anew()) {
    surface.reset();
    folder.clear();
    surface = make_surface(folder.path);
  }
  Random random(script);
  // If the script ends before the history does, later choices follow from a seed that the script determines.
  for (auto steps = random.pick({1, 4, 16, 64, 256}); steps > 0; --steps) {
    surface->one(random);
    if (surface->starts_anew()) return;
  }
}

}  // namespace
}  // namespace kvdrive::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  kvdrive::fuzz::run({data, size});
  return 0;
}
