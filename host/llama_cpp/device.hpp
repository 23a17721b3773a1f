// SPDX-License-Identifier: Apache-2.0
// The device that llama.cpp sees. It supports what touches a cache of K and V, and nothing else, so that weights and
// all other operations stay with the CPU backend.
#pragma once

#include "ggml_functions.hpp"

namespace kvdrive::llama {

constexpr const char* kDeviceName = "KVDRIVE";

ggml_backend_reg_t registration();
ggml_backend_dev_t device();

}  // namespace kvdrive::llama
