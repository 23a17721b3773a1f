// SPDX-License-Identifier: Apache-2.0
// Real and published drives as parameters. sim/drive/nand/README.md names the source of each number.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "nand/geometry.hpp"
#include "nand/timing.hpp"

namespace kvdrive {

struct Preset {
  std::string_view name;
  std::string_view source;
  Geometry geometry;  // blocks_per_die 0: derived from the capacity
  std::uint32_t over_provision_percent = 7;
  Timing timing;
};

std::span<const Preset> presets();

// Throws std::runtime_error with the known names when there is no such preset.
const Preset& find_preset(std::string_view name);

}  // namespace kvdrive
