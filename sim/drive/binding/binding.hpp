// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nanobind/nanobind.h>

#include <memory>
#include <string>

#include "engine/engine.hpp"

namespace kvdrive {

// `name` is "hls", "fast" or "rtl". Raises ValueError for any other name.
std::unique_ptr<Engine> make_engine(const std::string& name, int threads);

void bind_engine(nanobind::module_& m);
void bind_disk(nanobind::module_& m);
void bind_drive(nanobind::module_& m);
void bind_formats(nanobind::module_& m);
void bind_nvme(nanobind::module_& m);
void bind_tcp(nanobind::module_& m);
void bind_openmp(nanobind::module_& m);
void bind_passthrough(nanobind::module_& m);
void bind_weights(nanobind::module_& m);

}  // namespace kvdrive
