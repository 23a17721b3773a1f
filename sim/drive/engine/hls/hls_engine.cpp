// SPDX-License-Identifier: Apache-2.0
#include "engine/hls/hls_engine.hpp"

namespace kvdrive {

std::unique_ptr<Engine> make_hls_engine() { return std::make_unique<HlsEngine>(); }
std::unique_ptr<SingleKernels> make_hls_kernels() { return std::make_unique<HlsKernels>(); }

}  // namespace kvdrive
