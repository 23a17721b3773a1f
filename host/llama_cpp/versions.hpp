// SPDX-License-Identifier: Apache-2.0
// The releases of ggml that the plugin works with. ggml's structures change between releases, sometimes without a
// change of their version number, so that a release counts only after the tests have run on it.
#pragma once

namespace kvdrive::llama {

// Throws std::runtime_error with a sentence unless the loaded ggml is a known release whose structures are those that
// this library was compiled for. Precondition: find_ggml has returned.
void check_version();

}  // namespace kvdrive::llama
