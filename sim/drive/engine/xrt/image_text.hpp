// SPDX-License-Identifier: Apache-2.0
// The text beside an FPGA image, X.xclbin.toml: lines of `name = "text"` or `name = number`, which `make link` writes
// (host/kvdrive/xrt/image.py).
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace kvdrive {

struct ComputeUnit {
  std::string kernel;
  std::string name;
};

struct ImageText {
  std::string platform;  // full name of the platform that the image was built for
  std::string sha256;    // of the image
  std::uint32_t abi_version = 0;
  std::int32_t bank = 0;  // index of the memory bank of all memory ports
  std::vector<ComputeUnit> units;
};

// Reads the text of an image. Throws std::runtime_error with a sentence that says what to do: no text, an image that
// changed since, or an image of another ABI version.
ImageText read_image_text(const std::filesystem::path& image);

}  // namespace kvdrive
