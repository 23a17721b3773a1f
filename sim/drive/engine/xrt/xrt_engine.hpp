// SPDX-License-Identifier: Apache-2.0
// Attention on a card. The job memory is a buffer of the card, so that the drive's reads of flash go to the card
// directly. The page filter is the compiled HLS kernel: the processor picks rows before they go to the card.
//
// A start that does not end before a deadline is repeated once, after a reset of the card. Then it is an error.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "engine/built_shapes.hpp"
#include "engine/engine.hpp"
#include "engine/hls/kernels.hpp"
#include "engine/xrt/card.hpp"

namespace kvdrive {

class XrtEngine final : public Engine {
 public:
  // Throws std::runtime_error: no runtime, no card, another image than its text says, another ABI version or platform.
  XrtEngine(const CardPlace& place, std::chrono::milliseconds deadline);

  const char* name() const override { return "xrt"; }
  EngineMemory& memory() override { return memory_; }
  std::uint32_t attend(std::uint64_t job, const KvPages*) override { return shapes_.attend(memory_, job); }
  FilterResult filter(std::span<const std::uint8_t> pages, std::span<const std::uint8_t> bitmap, std::uint32_t rows,
                      std::uint32_t row_bytes, std::uint32_t page_bytes) override {
    return hls::page_filter(pages, bitmap, rows, row_bytes, page_bytes);
  }
  JobQueue* queue() override { return &queue_; }
  std::vector<std::string> notices() const override { return notices_; }

 private:
  class Memory final : public EngineMemory {
   public:
    explicit Memory(Card& card) : card_(card) {}
    std::span<std::byte> use(std::uint64_t bytes) override;
    std::span<std::byte> used() override { return {data(), bytes_}; }
    CardBuffer& buffer() { return *buffer_; }
    // Calls reset of the card and brings the contents back. Returns false if the card does not come back.
    bool survive_reset();

   private:
    std::byte* data() { return buffer_ ? buffer_->bytes().data() : nullptr; }

    Card& card_;
    std::unique_ptr<CardBuffer> buffer_;
    std::uint64_t bytes_ = 0;
  };

  // Memory that a job uses.
  struct Range {
    std::uint64_t first;
    std::uint64_t bytes;
  };

  struct Started {
    std::size_t unit;
    std::uint64_t job;
    Range range;
    std::chrono::steady_clock::time_point end;
    bool repeated = false;
  };

  class Queue final : public JobQueue {
   public:
    explicit Queue(XrtEngine& engine) : engine_(engine) {}
    unsigned units(unsigned group, unsigned head_dim) const override;
    void start(std::uint64_t job, std::uint64_t bytes) override { engine_.start(job, {job, bytes}); }
    std::uint32_t finish() override { return engine_.finish(); }
    std::uint64_t generation() const override { return engine_.resets_; }

   private:
    XrtEngine& engine_;
  };

  std::uint32_t run(std::uint64_t job);
  void start(std::uint64_t job, Range range);
  std::uint32_t finish();
  void launch(Started& started);
  bool wait(const Started& started);
  void repeat(Started& started, bool hung);
  std::vector<std::size_t> units_for(const abi::AttentionJob& fields) const;
  abi::AttentionJob fields_at(std::uint64_t job);

  const ImageText text_;
  const std::unique_ptr<Card> card_;
  const std::chrono::milliseconds deadline_;
  Memory memory_{*card_};
  Queue queue_{*this};
  BuiltShapes shapes_{[this](std::span<std::byte>, std::uint64_t job) { return run(job); }};
  std::deque<Started> started_;
  std::uint64_t resets_ = 0;
  bool lost_ = false;
  std::vector<std::string> notices_;
};

// `name`: xrt, or xrt:DEVICE,IMAGE. Without a device and image the environment names them: KVDRIVE_XRT_DEVICE,
// KVDRIVE_XRT_IMAGE. KVDRIVE_XRT_P2P=0 copies through host memory; KVDRIVE_XRT_DEADLINE_MS bounds a kernel's run.
std::unique_ptr<Engine> make_xrt_engine(const std::string& name);

}  // namespace kvdrive
