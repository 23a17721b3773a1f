// SPDX-License-Identifier: Apache-2.0
// A page source that streams pages around the page cache. Each page is compared with its checksum just before its use.
// K and V of all heads come in one stream of pieces. While the engine works on a piece, the next ones arrive, so memory
// does not grow with the context.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "attention/page_source.hpp"
#include "attention/run.hpp"
#include "ftl/group_stream.hpp"

namespace kvdrive {

// Precondition: the engine reads pages, and the FTL has direct reads.
class StreamedPages final : public PageSource {
 public:
  StreamedPages(RunContext& context, std::span<const Head> heads);
  ~StreamedPages() override;

  Dense dense(std::size_t index) override;
  std::unique_ptr<RowBatch> read(std::vector<RowRequest> requests, Ns ready, std::size_t pieces) override;
  std::uint32_t damaged() override;
  void close() override;

 private:
  struct Section;
  class Pages;
  class Batch;

  void start_dense();

  RunContext& context_;
  const std::span<const Head> heads_;
  std::vector<Section> sections_;  // K and V of each head
  std::unique_ptr<GroupStream> ahead_;
  std::unique_ptr<Pages> pages_;  // pages of the present head
  std::uint32_t damaged_ = 0;
};

}  // namespace kvdrive
