// SPDX-License-Identifier: Apache-2.0
// The engine in device time. Each job takes the cycles that the manifests of the kernels state, whichever engine
// computes. Two kernels work at the same time: one attends, the other one chooses units for policy groups.
#pragma once

#include <array>
#include <cstdint>

#include "common/abi.hpp"
#include "engine/ffn.hpp"
#include "nand/device.hpp"

namespace kvdrive {

class EngineClock {
 public:
  explicit EngineClock(NandDevice& device) : device_(device) {}

  // Counts a job whose data are in memory at `data_done`. Returns the device time at which the job ends. `over_codes`:
  // its K and V are codes.
  Ns count(const abi::AttentionJob& job, Ns data_done, bool over_codes = false) {
    return add_job(kSums, over_codes ? code_job_cycles(job) : job_cycles(job), data_done);
  }
  Ns count(const abi::GroupChoiceJob& job, Ns data_done) { return add_job(kChoice, job_cycles(job), data_done); }
  Ns count(const FfnBlock& block, Ns data_done) { return add(kSums, block_cycles(block), data_done); }

  std::uint64_t jobs() const { return jobs_; }  // of attention
  std::uint64_t cycles() const { return cycles_; }

 private:
  static std::uint64_t job_cycles(const abi::AttentionJob& job);
  static std::uint64_t job_cycles(const abi::GroupChoiceJob& job);
  static std::uint64_t code_job_cycles(const abi::AttentionJob& job);
  static std::uint64_t block_cycles(const FfnBlock& block);

  // The kernels that add up take turns: attention, attention over codes, and ffn.
  enum Kernel : std::uint8_t { kSums, kChoice };
  Ns add_job(Kernel kernel, std::uint64_t cycles, Ns data_done) {
    ++jobs_;
    return add(kernel, cycles, data_done);
  }
  Ns add(Kernel kernel, std::uint64_t cycles, Ns data_done);

  NandDevice& device_;
  std::array<Ns, 2> free_{};  // device time at which the last job of each kernel ends
  std::uint64_t jobs_ = 0;
  std::uint64_t cycles_ = 0;
};

}  // namespace kvdrive
