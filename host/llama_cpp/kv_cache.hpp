// SPDX-License-Identifier: Apache-2.0
// One of llama.cpp's caches of K and V, a buffer of ggml, in the drive.
//
// The cache has a tensor [row, cells, streams] for K and for V of each layer. Each stream is a session of the drive.
// Rows arrive one tensor after the other, for the same cells in each: the first tensor of a batch adds tokens to the
// stream's log, the others follow it. A tensor that has fewer tokens than the log, because a graph failed half way or
// skipped the layer, gets rows of zeros before its next ones.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "cell_log.hpp"
#include "ggml_functions.hpp"
#include "session_drive.hpp"

namespace kvdrive::llama {

class KvCache {
 public:
  // K or V of a layer.
  struct Tensor {
    LayerRows rows;                   // heads and dim are 0 until the model's graph is known
    const char* data = nullptr;       // address of the first byte; nothing is stored there
    std::uint32_t row = 0;            // numbers of a cell
    std::vector<std::uint32_t> ends;  // tokens in each stream's session

    std::size_t row_bytes() const { return std::size_t{2} * row; }
  };
  // Rows of some cells of one tensor and stream: bytes of a view.
  struct Range {
    std::uint32_t stream = 0, first_cell = 0, cells = 0;
  };
  // Changes rows of K in place: [rows][row] binary16 of the given cells.
  using Change = std::function<void(std::span<const std::uint32_t> cells, std::uint16_t* rows)>;
  enum class Writer : std::uint8_t { kGraph, kHost };

  explicit KvCache(SessionDrive& drive) : drive_(drive) {}
  KvCache(const KvCache&) = delete;
  KvCache& operator=(const KvCache&) = delete;
  ~KvCache();

  // All throw std::runtime_error with a sentence for what cannot be served and when the drive fails.

  // Takes a tensor of the cache in before it has contents.
  void add(const ggml_tensor* tensor);
  bool empty() const { return tensors_.empty(); }
  // The tensor that a view belongs to; null if it is not of this cache.
  Tensor* find(const ggml_tensor* view);
  // The model's graph reads the tensor as rows of `heads` heads.
  void set_shape(Tensor& tensor, std::uint32_t heads, std::uint32_t dim);

  std::uint32_t cells() const { return cells_; }
  std::uint32_t streams() const { return static_cast<std::uint32_t>(streams_.size()); }
  const CellLog& log(std::uint32_t stream) const { return streams_[stream].log; }
  const Session& session(std::uint32_t stream) const { return streams_[stream].session; }
  // Changes with every batch of rows.
  std::uint64_t epoch() const { return epoch_; }

  // Writes cells of a stream. `rows`: [cells][row] binary16. `writer`: a graph writes each batch to every tensor before
  // the next batch; the host may write several batches to one tensor before the next tensor.
  void write(Tensor& tensor, std::uint32_t stream, std::span<const std::uint32_t> cells, const std::uint16_t* rows,
             Writer writer);
  // Reads cells, [cells][row] binary16. Cells that were never written are zeros.
  void read(Tensor& tensor, const Range& range, std::uint16_t* out);
  // The cells that a part of a view's bytes holds. Throws unless they are whole rows of one stream.
  Range range(const Tensor& tensor, const ggml_tensor* view, std::size_t offset, std::size_t bytes) const;
  // Makes K and V of a layer as long as the log, before attention.
  void complete(Tensor& tensor, std::uint32_t stream);
  // Copies a stream of one tensor onto another one. llama.cpp copies all tensors; the first copy is a fork of all.
  void copy(Tensor& tensor, std::uint32_t from, std::uint32_t to);
  // Writes the live tokens of a stream into a new session, and changes K of some layers meanwhile.
  void rewrite(std::uint32_t stream, const std::map<const Tensor*, Change>& changes);
  // Forgets everything.
  void clear();

  // For a process that keeps sequences beyond itself.

  // Forgets all of a stream.
  void forget(std::uint32_t stream);
  // Forgets the cells from `cells` on, which llama.cpp has freed.
  void shorten(std::uint32_t stream, std::uint32_t cells);
  // Writes what is missing, so that the session has all rows of all tokens. Throws unless token i holds cell i.
  void settle(std::uint32_t stream);
  // A session of the drive that nobody else uses becomes the stream's: its first `tokens` tokens hold the first cells.
  // Next, llama.cpp restores these cells in each tensor, and what it writes there is not taken (`takes`).
  void take(std::uint32_t stream, const Session& session, std::uint32_t tokens);
  // True for rows that are in the session already.
  bool takes(const Tensor& tensor, const Range& range);
  // True after `take` until llama.cpp has restored all tensors.
  bool taking() const { return !taking_.empty(); }
  const std::map<const char*, Tensor>& tensors() const { return tensors_; }

  // The first sentence about something that cannot be served; empty: all can.
  const std::string& refusal() const { return refusal_; }
  void refuse(const std::string& sentence);

 private:
  struct Stream {
    explicit Stream(std::uint32_t cells) : log(cells) {}
    CellLog log;
    Session session;
    bool host_writes = false;  // the last writer was the host
  };

  bool follows(const Tensor& tensor, std::uint32_t stream, std::span<const std::uint32_t> cells, Writer writer) const;
  void begin_batch(std::uint32_t stream, std::span<const std::uint32_t> cells);
  void trim(std::uint32_t stream, std::uint32_t tokens);
  void drop_batch(std::uint32_t stream);
  void fill(Tensor& tensor, std::uint32_t stream, std::uint32_t tokens);
  void append(Tensor& tensor, std::uint32_t stream, std::uint32_t tokens, const std::uint16_t* rows);
  // The tensors that have `least` tokens or more.
  void complete_all(std::uint32_t stream, std::uint32_t least);
  void write_live(std::uint32_t stream, std::span<const std::uint32_t> live,
                  const std::map<const Tensor*, Change>& changes, Session& session);
  void read_tokens(const Tensor& tensor, std::uint32_t stream, std::uint32_t first, std::uint32_t tokens,
                   std::uint16_t* out);
  Stream& stream_of(std::uint32_t number);
  void read_cells(const Tensor& tensor, std::uint32_t stream, std::span<const std::uint32_t> cells, std::uint16_t* out);

  SessionDrive& drive_;
  std::map<const char*, Tensor> tensors_;  // by address
  std::vector<Stream> streams_;
  std::uint32_t cells_ = 0;
  std::uint64_t epoch_ = 0;
  std::string refusal_;
  std::set<const Tensor*> copying_;  // of a copy of a stream: tensors whose copies are still to come
  std::uint32_t copying_from_ = 0, copying_to_ = 0;
  std::set<const Tensor*> taking_;  // of a session that was taken: tensors that llama.cpp has still to restore
  std::uint32_t taking_stream_ = 0;
  std::vector<std::uint16_t> scratch_;
};

}  // namespace kvdrive::llama
