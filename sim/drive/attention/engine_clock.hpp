// SPDX-License-Identifier: Apache-2.0
// The engine in device time. Each job takes the cycles that the manifests of the kernels state, whichever engine
// computes.
#pragma once

#include <cstdint>

#include "common/abi.hpp"
#include "group_choice/abi.hpp"
#include "nand/device.hpp"

namespace kvdrive {

class EngineClock {
 public:
  explicit EngineClock(NandDevice& device) : device_(device) {}

  // Counts a job whose data are in memory at `data_done`.
  void count(const abi::AttentionJob& job, Ns data_done) { add(job_cycles(job), data_done); }
  void count(const abi::GroupChoiceJob& job, Ns data_done) { add(job_cycles(job), data_done); }

  Ns free() const { return free_; }  // device time at which the last job ends
  std::uint64_t jobs() const { return jobs_; }
  std::uint64_t cycles() const { return cycles_; }

 private:
  static std::uint64_t job_cycles(const abi::AttentionJob& job);
  static std::uint64_t job_cycles(const abi::GroupChoiceJob& job);
  void add(std::uint64_t cycles, Ns data_done);

  NandDevice& device_;
  Ns free_ = 0;
  std::uint64_t jobs_ = 0;
  std::uint64_t cycles_ = 0;
};

}  // namespace kvdrive
