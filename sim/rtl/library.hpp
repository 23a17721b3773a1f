// SPDX-License-Identifier: Apache-2.0
// C functions over `Kernel`, the Model of one top. A call that fails gives kFailed and leaves its reason in
// model_problem.
#pragma once

#include <cstdint>
#include <exception>
#include <string>

namespace kvdrive::rtl {

constexpr std::int64_t kFailed = -1;

// Runs `work`, whose result is no negative number.
template <typename Work>
std::int64_t guarded(std::string& problem, Work work) {
  try {
    return static_cast<std::int64_t>(work());
  } catch (const std::exception& error) {
    problem = error.what();
    return kFailed;
  }
}

}  // namespace kvdrive::rtl

struct Handle {
  explicit Handle(openhls::Timing timing) : kernel(timing) {}
  Kernel kernel;
  std::string problem;
};

extern "C" {

// `latency` in cycles on an ideal memory; negative: one channel of DDR4-2400.
Handle* model_new(double clock_mhz, double latency) {
  return new Handle(latency < 0 ? openhls::Timing::ddr4(clock_mhz) : openhls::Timing::ideal(clock_mhz, latency));
}
void model_delete(Handle* model) { delete model; }
const char* model_problem(Handle* model) { return model->problem.c_str(); }

std::int64_t model_set(Handle* model, const char* name, std::uint64_t value) {
  return kvdrive::rtl::guarded(model->problem, [&] {
    model->kernel.set(name, value);
    return 0;
  });
}
std::int64_t model_feed(Handle* model, const char* name, const std::uint32_t* words, std::size_t count) {
  return kvdrive::rtl::guarded(model->problem, [&] {
    model->kernel.feed(name, words, count);
    return 0;
  });
}
std::uint64_t model_add_buffer(Handle* model, const std::uint8_t* bytes, std::size_t size) {
  return model->kernel.add_buffer(bytes, size);
}
std::int64_t model_read_buffer(Handle* model, std::size_t number, std::uint8_t* bytes, std::size_t size) {
  return kvdrive::rtl::guarded(model->problem, [&] {
    model->kernel.read_buffer(number, bytes, size);
    return 0;
  });
}
void model_clear_buffers(Handle* model) { model->kernel.clear_buffers(); }

// Cycles of the job.
std::int64_t model_run(Handle* model, std::uint64_t patience) {
  return kvdrive::rtl::guarded(model->problem, [&] { return model->kernel.run(patience); });
}
// How many 32-bit words the stream `name` gave; `words`: where they are until the next job.
std::int64_t model_words(Handle* model, const char* name, const std::uint32_t** words) {
  return kvdrive::rtl::guarded(model->problem, [&] {
    const auto& found = model->kernel.words(name);
    *words = found.data();
    return found.size();
  });
}
std::int64_t model_get(Handle* model, const char* name, std::uint64_t* value) {
  return kvdrive::rtl::guarded(model->problem, [&] {
    *value = model->kernel.get(name);
    return 0;
  });
}

}  // extern "C"
