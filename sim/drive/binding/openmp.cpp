// SPDX-License-Identifier: Apache-2.0
// The OpenMP threads of a calling thread as a team: those that torch computes with.
//
// torch brings the OpenMP library along. It is found in the running process, because a second copy of it would start
// threads of its own.
#include <dlfcn.h>
#include <nanobind/nanobind.h>

#include "binding/binding.hpp"
#include "engine/team.hpp"

namespace nb = nanobind;

namespace kvdrive {
namespace {

template <typename Function>
Function* find(const char* name) {
  return reinterpret_cast<Function*>(dlsym(RTLD_DEFAULT, name));
}

class OpenmpTeam final : public Team {
 public:
  bool exists() const { return parallel_ && most_ && number_ && inside_; }

  unsigned threads() const override { return inside_() != 0 ? 1 : static_cast<unsigned>(most_()); }

  void run(const std::function<void(unsigned)>& work) override {
    struct Call {
      const OpenmpTeam* team;
      const std::function<void(unsigned)>* work;
    } call{this, &work};
    const auto one = [](void* given) {
      const Call& call = *static_cast<Call*>(given);
      (*call.work)(static_cast<unsigned>(call.team->number_()));
    };
    parallel_(one, &call, threads(), 0);
  }

 private:
  // How g++ starts `#pragma omp parallel`: function, its argument, number of threads, flags.
  using Parallel = void(void (*)(void*), void*, unsigned, unsigned);

  Parallel* const parallel_ = find<Parallel>("GOMP_parallel");
  int (*const most_)() = find<int()>("omp_get_max_threads");
  int (*const number_)() = find<int()>("omp_get_thread_num");
  int (*const inside_)() = find<int()>("omp_in_parallel");
};

Team* openmp_team() {
  static OpenmpTeam team;
  return team.exists() ? &team : nullptr;
}

}  // namespace

void bind_openmp(nb::module_& m) {
  m.def(
      "lend_threads", [](bool lend) { lent_team() = lend ? openmp_team() : nullptr; }, nb::arg("lend"),
      "Until it is called with False: drives of this process that the calling thread runs compute with its OpenMP "
      "threads, where there are as many as the drive's engine has. Call it after torch was imported.");
  m.def(
      "threads_lent", [] { return lent_team() == nullptr ? 0U : lent_team()->threads(); },
      "How many threads the calling thread lends now, itself included; 0: none.");
}

}  // namespace kvdrive
