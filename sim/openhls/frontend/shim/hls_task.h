// SPDX-License-Identifier: Apache-2.0
// hls::task for the front end of openhls, which makes a call of `run_task` of each task (frontend/tasks.py): a stage of
// the dataflow region around it that never ends.
#pragma once

#include <hls_stream.h>

#define hls_thread_local static

namespace openhls {

template <typename T>
struct is_stream {
  static constexpr bool value = false;
};
template <typename T, int kDepth>
struct is_stream<hls::stream<T, kDepth>> {
  static constexpr bool value = true;
};
template <typename T, unsigned long kCount>
struct is_stream<T[kCount]> : is_stream<T> {};

template <auto kFunction, typename... Streams>
__attribute__((noinline)) void run_task(Streams&... streams) {
  static_assert((is_stream<Streams>::value && ...), "openhls: a task has no arguments but streams");
  for (;;) kFunction(streams...);
}

}  // namespace openhls

namespace hls {

class task {
 public:
  task() = default;
  template <typename... Arguments>
  explicit task(const Arguments&...) {
    refuse<Arguments...>();
  }
  template <typename... Arguments>
  void operator()(const Arguments&...) {
    refuse<Arguments...>();
  }

 private:
  template <typename... Arguments>
  static void refuse() {
    static_assert(sizeof...(Arguments) == 0,
                  "openhls: write hls::task where a task is declared, and call it by its name");
  }
};

}  // namespace hls
