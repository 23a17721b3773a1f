// SPDX-License-Identifier: Apache-2.0
#include "attention/streamed_pages.hpp"

#include <algorithm>
#include <atomic>
#include <utility>

#include "attention/prefetch.hpp"

namespace kvdrive {
namespace {

constexpr std::size_t kPiecesAgain = 2;  // for the stream that reads V a second time

}  // namespace

// The part of a head's K or V that a job needs: groups from the disk, then staged rows.
struct StreamedPages::Section {
  const HeadRows* rows;
  std::uint32_t first_group, end_group;
  std::uint32_t tokens;

  // Leaves out groups before the first valid token and behind the last one, such as padding or tokens outside a window.
  Section(const HeadRows& of, std::uint32_t first_token, std::uint32_t end_token, std::uint32_t all)
      : rows(&of), tokens(all) {
    const std::uint32_t per_group = of.tokens_per_group();
    first_group = std::min(first_token / per_group, of.groups());
    end_group = std::clamp((end_token + per_group - 1) / per_group, first_group, of.groups());
  }

  void add_to(std::vector<GroupStream::Group>& groups) const {
    for (std::uint32_t index = first_group; index < end_group; ++index) groups.push_back({rows->list(), index});
  }

  std::vector<const std::byte*> staged_pages() const {
    std::vector<const std::byte*> pages;
    const std::uint32_t per_group = rows->tokens_per_group();
    for (std::uint32_t token = rows->tokens_in_groups(); token < tokens; token += per_group) {
      pages.push_back(rows->staged().data() + std::size_t{token - rows->tokens_in_groups()} * rows->row_bytes());
    }
    return pages;
  }

  std::uint64_t staged_bytes() const {
    return std::uint64_t{tokens - std::min(tokens, rows->tokens_in_groups())} * rows->row_bytes();
  }
};

class StreamedPages::Pages final : public KvPages {
 public:
  Pages(Ftl& ftl, GroupStream& ahead, const Section& k, const Section& v)
      : KvPages(k.rows->tokens_per_group(), k.rows->format()), ftl_(ftl), ahead_(ahead), sections_{&k, &v} {}

  void visit(abi::KvKind kind, const Visit& visit) const override {
    const Section& section = *sections_[kind];
    if (!came_[kind]) {
      came_[kind] = true;
      pass(ahead_, section, visit);
    } else {
      std::vector<GroupStream::Group> groups;
      section.add_to(groups);
      GroupStream again(ftl_.read_path(), *ftl_.direct(), std::move(groups), kPiecesAgain, Sink::kComputer);
      pass(again, section, visit);
    }
    if (const auto staged = section.staged_pages(); !staged.empty()) visit(section.rows->groups(), staged);
  }

  void check(abi::KvKind kind, std::size_t first, std::span<const std::byte* const> pages) const override {
    damaged_ += damaged_groups(ftl_, *sections_[kind]->rows, first, pages);
  }

  std::uint32_t damaged() const { return damaged_; }

 private:
  void pass(GroupStream& stream, const Section& section, const Visit& visit) const {
    for (std::uint32_t group = section.first_group; group < section.end_group;) {
      const auto piece = stream.next();
      const std::uint32_t before = damaged_;
      visit(group, piece.pages);
      if (!piece.whole && damaged_ == before) ++damaged_;
      group += static_cast<std::uint32_t>(piece.pages.size());
    }
  }

  Ftl& ftl_;
  GroupStream& ahead_;
  const Section* sections_[2];
  mutable bool came_[2] = {};
  mutable std::atomic<std::uint32_t> damaged_ = 0;
};

// Single groups in the order of the requests.
class StreamedPages::Batch final : public RowBatch {
 public:
  Batch(StreamedPages& source, std::vector<RowRequest> requests, Ns ready, std::size_t pieces)
      : RowBatch(true, ready),
        source_(source),
        requests_(std::move(requests)),
        stream_(source.context_.ftl.read_path(), *source.context_.ftl.direct(), groups_to_read(), pieces,
                Sink::kComputer, true) {
    stream_.begin();
  }
  ~Batch() override { source_.damaged_ += std::max(damaged_, unread_ ? 1U : 0U); }

  void next(const Use& use) override {
    const RowRequest& request = requests_[next_++];
    std::uint64_t pages = 0;
    std::uint32_t last = UINT32_MAX;
    Page from{};
    request.each_run([&](std::uint32_t number, const Run& run) {
      if (number != last) {
        from = page(request, request.first_page + number);
        last = number;
        ++pages;
      }
      use(run, from.bytes + std::size_t{run.first % request.rows_per_page} * request.row_bytes, from.stays);
    });
    if (!request.filtered) return;
    source_.context_.filtered.count(pages, request.pages, request.rows_per_page, request.rows.count(),
                                    request.row_bytes);
  }

 private:
  // The groups that drive memory does not keep. Notes the pages of the others.
  std::vector<GroupStream::Group> groups_to_read() {
    ReadPath& path = source_.context_.ftl.read_path();
    std::vector<GroupStream::Group> groups;
    for (const RowRequest& request : requests_) {
      KeptPages* const kept = request.kept(path);
      request.each_page([&](std::uint32_t number, auto) {
        const std::uint32_t index = request.first_page + number;
        in_memory_.push_back(kept == nullptr ? nullptr : kept->find(path.unit(request.list, index)));
        if (in_memory_.back() == nullptr) groups.push_back({request.list, index});
      });
    }
    return groups;
  }

  // A page that drive memory keeps stays. Most of the stream's own pages are gone when its next piece comes.
  struct Page {
    const std::byte* bytes = nullptr;
    bool stays = false;
  };
  Page page(const RowRequest& request, std::uint32_t index) {
    if (const std::byte* const kept = in_memory_[at_++]) return {kept, true};
    const std::byte* const read = next_page();
    ReadPath& path = source_.context_.ftl.read_path();
    if (source_.context_.ftl.damaged(request.list, index, std::span(&read, 1)) > 0) {
      ++damaged_;
    } else if (KeptPages* const kept = request.kept(path); kept != nullptr && piece_.whole) {
      if (const std::byte* const copy = kept->keep(path.unit(request.list, index), read)) return {copy, true};
    }
    return {read, piece_.stays};
  }

  const std::byte* next_page() {
    if (taken_ == piece_.pages.size()) {
      piece_ = stream_.next();
      taken_ = 0;
      if (!piece_.whole) unread_ = true;
    }
    const std::byte* const page = piece_.pages[taken_++];
    if (taken_ < piece_.pages.size()) prefetch(piece_.pages[taken_]);
    return page;
  }

  StreamedPages& source_;
  const std::vector<RowRequest> requests_;
  std::vector<const std::byte*> in_memory_;  // a page of each group in order, null if it comes with the stream
  GroupStream stream_;
  GroupStream::Piece piece_{};
  std::size_t at_ = 0;     // position of the next group
  std::size_t next_ = 0;   // index of the next request
  std::size_t taken_ = 0;  // pages of the piece that were used
  std::uint32_t damaged_ = 0;
  bool unread_ = false;
};

StreamedPages::StreamedPages(RunContext& context, std::span<const Head> heads) : context_(context), heads_(heads) {}
StreamedPages::~StreamedPages() = default;

void StreamedPages::start_dense() {
  const Head& any = heads_.front();
  std::uint32_t first = 0, end = any.tokens();
  while (first < end && !any.is_valid(first)) ++first;
  while (first < end && !any.is_valid(end - 1)) --end;
  std::vector<GroupStream::Group> groups;
  for (const Head& head : heads_) {
    for (const HeadRows* rows : {&head.k, &head.v}) {
      sections_.emplace_back(*rows, first, end, head.tokens()).add_to(groups);
      context_.staged_bytes += sections_.back().staged_bytes();
    }
  }
  ahead_ = context_.streams.open(any.command, context_.place, first, std::move(groups));
}

void StreamedPages::close() {
  pages_.reset();
  if (ahead_) context_.streams.close(std::move(ahead_), heads_.front().command, context_.place);
}

PageSource::Dense StreamedPages::dense(std::size_t index) {
  if (index == 0) start_dense();
  damaged();
  pages_ = std::make_unique<Pages>(context_.ftl, *ahead_, sections_[2 * index], sections_[2 * index + 1]);
  return {.done = context_.ready, .pages = pages_.get()};
}

std::unique_ptr<RowBatch> StreamedPages::read(std::vector<RowRequest> requests, Ns ready, std::size_t pieces) {
  return std::make_unique<Batch>(*this, std::move(requests), ready, pieces);
}

std::uint32_t StreamedPages::damaged() {
  if (pages_) damaged_ += pages_->damaged();
  pages_.reset();
  return damaged_;
}

}  // namespace kvdrive
