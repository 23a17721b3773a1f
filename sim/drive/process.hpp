// SPDX-License-Identifier: Apache-2.0
// Which process owns what is open. After a fork the child has the parent's memory and descriptors, but none of its
// threads, and a lock of a file counts for both. So what was open belongs to the parent alone.
#pragma once

#include <cstdint>
#include <stdexcept>

namespace kvdrive {

// A number that is the same for all threads of this process, and that no other process has. Costs a read of memory.
std::uint64_t process_mark();

// Closes a descriptor in every child that this process forks, so that a child holds no lock and no address of it. Must
// be taken back before the descriptor is closed.
void close_in_children(int fd);
void forget_in_children(int fd);

// Thrown in a process that uses what another one opened.
struct ForeignProcess : std::runtime_error {
  ForeignProcess()
      : std::runtime_error(
            "this was opened by the process that forked this one, which alone may use it: open it again "
            "here, in another file, or start this process without fork") {}
};

// The process in which it was made.
class OwnerProcess {
 public:
  bool here() const { return mark_ == process_mark(); }
  void require() const {
    if (!here()) throw ForeignProcess();
  }

 private:
  std::uint64_t mark_ = process_mark();
};

}  // namespace kvdrive
