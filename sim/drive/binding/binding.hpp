// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nanobind/nanobind.h>

#include <memory>
#include <string>

#include "engine/engine.hpp"

namespace kvdrive {

// "hls", "fast" or "rtl"; raises ValueError on anything else.
std::unique_ptr<Engine> make_engine(const std::string& name, int threads);

void bind_engine(nanobind::module_& m);
void bind_drive(nanobind::module_& m);
void bind_nvme(nanobind::module_& m);
void bind_tcp(nanobind::module_& m);

}  // namespace kvdrive
