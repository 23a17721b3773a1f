// SPDX-License-Identifier: Apache-2.0
// Runs a program and returns what it prints.
#pragma once

#include <string>
#include <vector>

namespace kvdrive::hls {

struct Said {
  int status;        // of its end; -1 if a signal ended it
  std::string text;  // its standard output, without the last line break
};

// Runs `command` to its end. Its standard error is this process'; it inherits no other file. Throws std::system_error
// if it cannot be started.
Said run_program(const std::vector<std::string>& command);

}  // namespace kvdrive::hls
