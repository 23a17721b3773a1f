// SPDX-License-Identifier: Apache-2.0
// Threads that a caller lends to the engine. A thread that computes a model has others beside it, those of OpenMP. They
// poll for its next work while it waits for a command. Threads of the engine's own would compete with them for the
// processors.
#pragma once

#include <functional>

namespace kvdrive {

class Team {
 public:
  Team() = default;
  Team(const Team&) = delete;
  Team& operator=(const Team&) = delete;
  virtual ~Team() = default;

  // Number of threads, with the calling one.
  virtual unsigned threads() const = 0;
  // Calls work(0) in the calling thread and work(1) .. work(threads() - 1) in the others. Returns when all have ended.
  // `work` must not throw.
  virtual void run(const std::function<void(unsigned)>& work) = 0;
};

// The team of the calling thread; null while it lends none.
inline Team*& lent_team() {
  thread_local Team* team = nullptr;
  return team;
}

}  // namespace kvdrive
