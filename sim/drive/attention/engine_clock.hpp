// SPDX-License-Identifier: Apache-2.0
// The engine in device time. Each job takes the cycles that the manifests of the kernels state, whichever engine
// computes.
#pragma once

#include <cstdint>

#include "common/abi.hpp"
#include "engine/ffn.hpp"
#include "group_choice/abi.hpp"
#include "nand/device.hpp"

namespace kvdrive {

class EngineClock {
 public:
  explicit EngineClock(NandDevice& device) : device_(device) {}

  // Counts a job whose data are in memory at `data_done`. `over_codes`: its K and V are codes.
  void count(const abi::AttentionJob& job, Ns data_done, bool over_codes = false) {
    add_job(over_codes ? code_job_cycles(job) : job_cycles(job), data_done);
  }
  void count(const abi::GroupChoiceJob& job, Ns data_done) { add_job(job_cycles(job), data_done); }
  void count(const FfnBlock& block, Ns data_done) { add(block_cycles(block), data_done); }

  Ns free() const { return free_; }             // device time at which the last job ends
  std::uint64_t jobs() const { return jobs_; }  // of attention
  std::uint64_t cycles() const { return cycles_; }

 private:
  static std::uint64_t job_cycles(const abi::AttentionJob& job);
  static std::uint64_t job_cycles(const abi::GroupChoiceJob& job);
  static std::uint64_t code_job_cycles(const abi::AttentionJob& job);
  static std::uint64_t block_cycles(const FfnBlock& block);
  void add_job(std::uint64_t cycles, Ns data_done) {
    ++jobs_;
    add(cycles, data_done);
  }
  void add(std::uint64_t cycles, Ns data_done);

  NandDevice& device_;
  Ns free_ = 0;
  std::uint64_t jobs_ = 0;
  std::uint64_t cycles_ = 0;
};

}  // namespace kvdrive
