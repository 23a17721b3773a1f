// SPDX-License-Identifier: Apache-2.0
// EXACT and PARTIAL on an engine with a queue: pages are read into the engine's memory without a copy, those of the
// next head while kernels run.
#pragma once

#include <span>

#include "attention/run.hpp"

namespace kvdrive {

// True if run_queued can take the command: the engine queues jobs of its shape, reads go around the page cache, and
// rows fill whole pages.
bool can_queue(const RunContext& context, std::span<const Head> heads);

AttentionOutcome run_queued(RunContext& context, std::span<const Head> heads);

}  // namespace kvdrive
