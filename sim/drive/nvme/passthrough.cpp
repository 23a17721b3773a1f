// SPDX-License-Identifier: Apache-2.0
#include "nvme/passthrough.hpp"

#include <linux/io_uring.h>

#include <cstring>

namespace kvdrive::nvme {

std::vector<PassthroughResult> PassthroughRing::execute(std::span<const PassthroughCommand> commands) {
  std::vector<PassthroughResult> results(commands.size());
  std::size_t started = 0, ended = 0;
  while (ended < commands.size()) {
    for (; started < commands.size() && started - ended < depth_; ++started) {
      const auto& [file, command] = commands[started];
      io_uring_sqe& entry = ring_.queue();
      entry.opcode = IORING_OP_URING_CMD;
      entry.fd = file;
      entry.cmd_op = NVME_URING_CMD_IO;
      entry.user_data = started;
      std::memcpy(entry.cmd, &command, sizeof command);
    }
    ring_.enter(1);
    while (const io_uring_cqe* const completion = ring_.front()) {
      results[completion->user_data] = {completion->res, completion->big_cqe[0]};
      ring_.pop();
      ++ended;
    }
  }
  return results;
}

}  // namespace kvdrive::nvme
