// SPDX-License-Identifier: Apache-2.0
#include "engine/rtl/rtl_engine.hpp"

#include <dlfcn.h>

#include <cstring>
#include <stdexcept>
#include <string>
#include <utility>

#include "common/abi.hpp"

namespace kvdrive {
namespace {

// The same values as in sim/rtl/library.py.
constexpr double kClockMhz = 300.0, kLatencyCycles = 30.0;
constexpr std::uint64_t kPatience = 200'000;  // cycles without a transfer on any port: stuck

std::filesystem::path library_in(const std::filesystem::path& folder) {
  std::error_code none;
  for (const auto& entry : std::filesystem::directory_iterator(folder, none)) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with("library-") && name.ends_with(".so")) return entry.path();
  }
  return {};
}

}  // namespace

// One simulated kernel, used through the C functions of sim/rtl/library.hpp.
class RtlEngine::Kernel {
 public:
  explicit Kernel(const std::filesystem::path& library) : library_(dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL)) {
    if (!library_) throw std::runtime_error("cannot load " + library.string() + ": " + dlerror());
    try {
      find(create_, "model_new");
      find(remove_, "model_delete");
      find(problem_, "model_problem");
      find(set_, "model_set");
      find(add_buffer_, "model_add_buffer");
      find(read_buffer_, "model_read_buffer");
      find(clear_buffers_, "model_clear_buffers");
      find(run_, "model_run");
      find(get_, "model_get");
      model_ = create_(kClockMhz, kLatencyCycles);
    } catch (...) {
      dlclose(library_);
      throw;
    }
  }
  ~Kernel() {
    remove_(model_);
    dlclose(library_);
  }
  Kernel(const Kernel&) = delete;
  Kernel& operator=(const Kernel&) = delete;

  // `operand`: the port through which K or its index comes.
  std::uint32_t run(std::span<std::byte> memory, const char* operand, std::uint64_t job) {
    clear_buffers_(model_);
    auto* const bytes = reinterpret_cast<std::uint8_t*>(memory.data());
    const std::uint64_t address = add_buffer_(model_, bytes, memory.size());
    for (const char* port : {operand, "io", "out"}) check(set_(model_, port, address));
    check(set_(model_, "job", job));
    check(set_(model_, "memory_beats", memory.size() / abi::kBeatBytes));
    check(run_(model_, kPatience));
    std::uint64_t status = 0;
    check(get_(model_, "return", &status));
    check(read_buffer_(model_, 0, bytes, memory.size()));
    return static_cast<std::uint32_t>(status);
  }

 private:
  using Model = void*;

  template <typename Function>
  void find(Function*& function, const char* name) {
    void* symbol = dlsym(library_, name);
    if (!symbol) throw std::runtime_error(std::string("a verilated library has no function ") + name);
    function = reinterpret_cast<Function*>(symbol);
  }
  void check(std::int64_t result) {
    if (result < 0) throw std::runtime_error(problem_(model_));
  }

  void* library_;
  Model model_ = nullptr;
  Model (*create_)(double, double) = nullptr;
  void (*remove_)(Model) = nullptr;
  const char* (*problem_)(Model) = nullptr;
  std::int64_t (*set_)(Model, const char*, std::uint64_t) = nullptr;
  std::uint64_t (*add_buffer_)(Model, const std::uint8_t*, std::size_t) = nullptr;
  std::int64_t (*read_buffer_)(Model, std::size_t, std::uint8_t*, std::size_t) = nullptr;
  void (*clear_buffers_)(Model) = nullptr;
  std::int64_t (*run_)(Model, std::uint64_t) = nullptr;
  std::int64_t (*get_)(Model, const char*, std::uint64_t*) = nullptr;
};

RtlEngine::RtlEngine(const std::filesystem::path& folder) {
  const auto load = [&folder](const std::string& kernel, std::uint32_t group, Kernels& kernels) {
    const auto library = library_in(folder / (kernel + std::to_string(group)));
    if (!library.empty()) kernels.emplace(group, std::make_unique<Kernel>(library));
  };
  for (const std::uint32_t group : abi::kGroupSizes) {
    load("attention_g", group, kernels_);
    load("group_choice_g", group, choosers_);
  }
  if (kernels_.empty()) {
    throw std::runtime_error("engine rtl finds no verilated attention kernel in " + folder.string() +
                             ": run `kvdrive kernel run attention --engine rtl` once, or choose hls");
  }
}

RtlEngine::~RtlEngine() = default;

std::uint32_t RtlEngine::run(std::span<std::byte> memory, std::uint64_t job) {
  abi::AttentionJob fields;
  std::memcpy(&fields, memory.data() + job, sizeof fields);
  const auto kernel = kernels_.find(fields.group);
  return kernel == kernels_.end() ? std::uint32_t{abi::kBadGroup} : kernel->second->run(memory, "kv", job);
}

std::uint32_t RtlEngine::choose_groups(std::uint64_t job, std::span<const std::byte* const> index) {
  const std::span<std::byte> memory = memory_.used();
  if (!hls::chooses_groups(memory, job)) return Engine::choose_groups(job, index);
  abi::GroupChoiceJob fields;
  std::memcpy(&fields, memory.data() + job, sizeof fields);
  const auto chooser = choosers_.find(fields.group);
  return chooser == choosers_.end() ? Engine::choose_groups(job, index) : chooser->second->run(memory, "index", job);
}

}  // namespace kvdrive
