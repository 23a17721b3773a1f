// SPDX-License-Identifier: Apache-2.0
// A dataflow region that software runs as concurrent stages and synthesis sees as plain calls:
//
//   #pragma HLS DATAFLOW
//   DATAFLOW_FIFO(4, k_beats, beat_t);  // a stream between two stages, 4 words deep
//   DATAFLOW_BEGIN
//   DATAFLOW_STAGE(read_beats, memory, beats, k_beats);
//   DATAFLOW_STAGE((score<kGroup, kLanes>), k_beats, scores);  // a comma in the name needs parentheses
//   DATAFLOW_END
//
// Software throws DataflowDeadlock where hardware would stand still; any other exception of a stage reaches the caller
// after the other stages were stopped.
#pragma once

#include "common/stream.hpp"

#define DATAFLOW_PRAGMA(text) _Pragma(#text)
#define DATAFLOW_FIFO(words, name, ...)            \
  ::kvdrive::Fifo<__VA_ARGS__, words> name(#name); \
  DATAFLOW_PRAGMA(HLS STREAM variable = name depth = words)

#ifdef KVDRIVE_SYNTHESIS

#define DATAFLOW_BEGIN
#define DATAFLOW_STAGE(function, ...) function(__VA_ARGS__)
#define DATAFLOW_END

#else

#define DATAFLOW_BEGIN \
  {                    \
    ::kvdrive::simulation::Region kvdrive_region;
#define DATAFLOW_STAGE(function, ...) kvdrive_region.stage(#function, [&]() { function(__VA_ARGS__); })
#define DATAFLOW_END    \
  kvdrive_region.run(); \
  }

#endif
