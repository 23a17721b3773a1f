// SPDX-License-Identifier: Apache-2.0
// An NVM subsystem: one drive with its three namespaces, shared by all controllers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "drive.hpp"
#include "nvme/controller.hpp"

namespace kvdrive::nvme {

struct SubsystemOptions {
  std::string nqn;                                    // empty: made from the serial number
  std::string serial;                                 // empty: made from the drive's file
  std::uint64_t slm_bytes = std::uint64_t{64} << 20;  // namespace 2: drive memory for jobs of the host
};

class Subsystem {
 public:
  Subsystem(Drive& drive, SubsystemOptions options);
  ~Subsystem();

  const std::string& nqn() const { return options_.nqn; }
  const std::string& serial() const { return options_.serial; }
  Drive& drive() { return drive_; }

 private:
  friend class Controller;
  Drive& drive_;
  SubsystemOptions options_;
  std::mutex mutex_;
  std::vector<Controller*> controllers_;  // index: CNTLID - 1
};

}  // namespace kvdrive::nvme
