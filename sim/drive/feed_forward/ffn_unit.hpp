// SPDX-License-Identifier: Apache-2.0
// Executes FFN_SUBMIT: reads the weights of the neurons from their value and lets the engine add them up.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "attention/engine_clock.hpp"
#include "attention/run.hpp"
#include "engine/engine.hpp"
#include "feed_forward/ffn_call.hpp"
#include "ftl/ftl.hpp"
#include "values/value_store.hpp"

namespace kvdrive {

class FfnUnit {
 public:
  FfnUnit(Engine& engine, ValueStore& values, Ftl& ftl, NandDevice& device, EngineClock& clock)
      : engine_(engine), values_(values), ftl_(ftl), device_(device), clock_(clock) {}

  // Precondition: the value exists and holds the weights of all neurons of the call.
  AttentionOutcome run(const FfnCall& call, Ns arrival);

 private:
  // Bytes of the value that lie one behind the other in `stored_`, too.
  struct Piece {
    std::uint64_t at;
    std::uint64_t bytes;
  };

  ReadResult read(const Value& value, const std::vector<Piece>& pieces, Ns ready);
  ReadResult read_rows(const Value& value, const FfnCall& call, std::size_t first, std::size_t count, Ns ready);
  // The rows of some neurons of an expert, from its gate, its up and `down_`.
  ReadResult read_expert(const Value& value, const FfnCall& call, std::size_t first, std::size_t count, Ns ready);
  ReadResult read_down(const Value& value, const FfnCall& call, Ns ready);

  Engine& engine_;
  ValueStore& values_;
  Ftl& ftl_;
  NandDevice& device_;
  EngineClock& clock_;
  // Kept from call to call, because fresh memory costs as much as a copy. All but `down_` hold one block of neurons.
  std::vector<std::byte> pages_;       // that were read
  std::vector<std::uint16_t> stored_;  // what was wanted of them, one piece behind the other
  std::vector<std::uint16_t> rows_;    // [neurons][matrices][hidden]
  std::vector<std::uint16_t> down_;    // of an expert, by neuron: [neurons][hidden]
};

}  // namespace kvdrive
