// SPDX-License-Identifier: Apache-2.0
// What all commands share that compute on the engine and keep their result for ATTN_FETCH.
#pragma once

#include <cstdint>
#include <utility>

#include "commands/command.hpp"
#include "commands/drive_state.hpp"
#include "commands/reply.hpp"

namespace kvdrive::nvme {

constexpr Ns kEngineTimeout = 1'000'000'000;

// Calls run(arrival), which returns an AttentionOutcome, and answers with its ticket. `arrival` is the device time at
// which the command's data have arrived. `results`: as how many results the outcome counts.
template <typename Run>
Reply run_and_keep(DriveState& drive, const Request& request, Run run, std::uint32_t results = 1) {
  if (!drive.tickets.fit(results)) return {.status = abi::kTicketsExhausted};
  const Ns arrival = drive.volume.device().to_host(request.data.in.size(), drive.now);
  if (drive.volume.faults().strikes(FaultKind::kEngineHang)) {
    return {.status = abi::kInternalError, .done = arrival + kEngineTimeout};
  }
  AttentionOutcome outcome = run(arrival);
  const Ns done = outcome.done;
  const auto controller = static_cast<std::uint16_t>(request.queue >> 16);
  return {.result = drive.tickets.add(controller, std::move(outcome), results), .done = done};
}

}  // namespace kvdrive::nvme
