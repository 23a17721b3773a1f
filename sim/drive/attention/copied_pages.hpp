// SPDX-License-Identifier: Apache-2.0
// A page source that copies: K and V go to the engine's job memory, wanted rows through the engine's page filter.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "attention/page_source.hpp"
#include "attention/run.hpp"
#include "kv/row_fetch.hpp"

namespace kvdrive {

class CopiedPages : public PageSource {
 public:
  CopiedPages(RunContext& context, std::span<const Head> heads) : context_(context), heads_(heads) {}

  Dense dense(std::size_t index) override;
  // Reads all pages at once.
  std::unique_ptr<RowBatch> read(std::vector<RowRequest> requests, Ns ready, std::size_t pieces) override;
  std::uint32_t damaged() override { return 0; }

 protected:
  RunContext& context_;
  const std::span<const Head> heads_;

 private:
  // K or V of a job, and its rows in 8 or 4 bits on their way to job memory.
  struct Coded {
    std::uint64_t address = 0;     // numbers, or codes
    std::uint64_t steps = 0;       // step bytes of codes
    std::vector<std::byte> bytes;  // rows as they are stored
  };

  void place_rows(const Head& head, const HeadRows& rows, RowFetch& fetch, Coded& coded);
  void unpack(const HeadRows& rows, const Coded& coded);
};

}  // namespace kvdrive
