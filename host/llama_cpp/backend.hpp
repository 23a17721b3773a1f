// SPDX-License-Identifier: Apache-2.0
// Computes the nodes of a graph that touch a cache in the drive: SET_ROWS, FLASH_ATTN_EXT, and ROPE in place (a context
// shift).
#pragma once

#include "ggml_functions.hpp"

namespace kvdrive::llama {

// Null, with a report, if there is no drive.
ggml_backend_t make_backend(ggml_backend_dev_t device);
void set_threads(ggml_backend_t backend, int threads);

// True for a node that touches a cache. One that cannot be computed is refused by a sentence, and then no graph of the
// cache is computed: ggml would end the program if it were told that nobody supports the node.
bool supports(const ggml_tensor* node);

}  // namespace kvdrive::llama
