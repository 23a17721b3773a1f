// SPDX-License-Identifier: Apache-2.0
// A page source for an engine that reads pages where they are in the page cache. EXACT and PARTIAL copy nothing.
// SparF's rows are copied as for any other engine.
//
// While the engine works on a head, the pages of the next head arrive. If the engine leaves a processor idle, other
// threads check the pages of the present head meanwhile. Otherwise the engine checks them when it reads them, as they
// are in its cache then.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "attention/copied_pages.hpp"

namespace kvdrive {

class MappedPages final : public CopiedPages {
 public:
  MappedPages(RunContext& context, std::span<const Head> heads);
  ~MappedPages() override;

  Dense dense(std::size_t index) override;
  std::uint32_t damaged() override;

 private:
  struct Gathered;
  class Pages;

  void start(std::size_t index);
  void gather(const HeadRows& rows, const Head& head, const std::vector<bool>& wanted, Gathered& to,
              std::vector<const std::byte*>& pages);

  const bool beside_;                                // true: checks run beside the engine
  std::vector<std::unique_ptr<Gathered>> gathered_;  // one for each head that was started
  std::unique_ptr<Pages> pages_;                     // pages of the present head
};

}  // namespace kvdrive
