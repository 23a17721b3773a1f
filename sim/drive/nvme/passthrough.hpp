// SPDX-License-Identifier: Apache-2.0
// Commands through Linux' NVMe passthrough, many in flight: entries of an io_uring (Linux 5.19 and newer) that go to
// /dev/ngXnY. A host's side: nothing of a drive is needed here.
#pragma once

#include <linux/nvme_ioctl.h>

#include <cstdint>
#include <span>
#include <vector>

#include "storage/io_ring.hpp"

namespace kvdrive::nvme {

// `file`: the open device of the command's namespace. The data at `command.addr` stay in place until the command ends.
struct PassthroughCommand {
  int file;
  nvme_uring_cmd command;
};

// `status`: of the completion (status code and type, and the bit DO_NOT_RETRY at 0x4000), or a negative errno of Linux.
struct PassthroughResult {
  std::int32_t status = 0;
  std::uint64_t result = 0;
};

// Not safe to call concurrently: a thread has a ring of its own.
class PassthroughRing {
 public:
  // `depth`: how many commands are in flight at most.
  explicit PassthroughRing(unsigned depth) : depth_(depth), ring_(depth, IoRing::Size::kDouble) {}

  // Why the kernel has no such ring: an errno. 0: it has one.
  int error() const { return ring_.error(); }

  // Executes commands that do not depend on each other. Results are in the order of the commands. Throws
  // std::system_error if the ring itself fails.
  std::vector<PassthroughResult> execute(std::span<const PassthroughCommand> commands);

 private:
  unsigned depth_;
  IoRing ring_;
};

}  // namespace kvdrive::nvme
