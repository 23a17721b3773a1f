// SPDX-License-Identifier: Apache-2.0
// Drives a verilated top with recorded cases, back to back, and compares all that comes out.
//
// Every stream stalls at random in its own way, chosen anew for each case. A word that is offered must stay until it is
// taken, nothing may come or be taken beyond what the reference wrote and read, and a job that stands still ends the
// run with the state of each stream.
#pragma once

#include <verilated.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <random>
#include <string>
#include <vector>

namespace openhls {

using Words = std::vector<std::uint32_t>;

// ---- ports of any width ----

template <typename T>
void put(T& port, const std::uint32_t* words) {
  port = static_cast<T>(sizeof(T) > 4 ? words[0] | static_cast<std::uint64_t>(words[1]) << 32 : words[0]);
}
template <std::size_t kWords>
void put(VlWide<kWords>& port, const std::uint32_t* words) {
  for (std::size_t i = 0; i < kWords; ++i) port[i] = words[i];
}
template <typename T>
void get(const T& port, std::uint32_t* words) {
  words[0] = static_cast<std::uint32_t>(port);
  if (sizeof(T) > 4) words[1] = static_cast<std::uint32_t>(static_cast<std::uint64_t>(port) >> 32);
}
template <std::size_t kWords>
void get(const VlWide<kWords>& port, std::uint32_t* words) {
  for (std::size_t i = 0; i < kWords; ++i) words[i] = port[i];
}

struct Port {
  const char* name;
  int width;
  std::function<void(const std::uint32_t*)> put;
  std::function<void(std::uint32_t*)> get;
  std::size_t words() const { return static_cast<std::size_t>((width + 31) / 32); }
};

struct StreamPorts {
  Port data;
  CData* valid;
  CData* ready;
};

// ---- stalls ----

enum class Stalls { kNone, kRandom };

// Whether a channel is open in a cycle: always, now and then, or in bursts.
class Gate {
 public:
  void choose(std::mt19937& random, Stalls stalls) {
    mode_ = stalls == Stalls::kNone ? 0 : random() % 5;
    left_ = 0;
  }
  bool open(std::mt19937& random) {
    switch (mode_) {
      case 0:
        return true;
      case 1:
        return random() % 8 != 0;
      case 2:
        return random() % 2 != 0;
      case 3:
        return random() % 8 == 0;
      default:
        break;
    }
    if (left_-- == 0) {
      closed_ = !closed_;
      left_ = random() % 40;
    }
    return !closed_;
  }

 private:
  unsigned mode_ = 0;
  unsigned left_ = 0;
  bool closed_ = true;
};

struct Input {
  StreamPorts port;
  Words words;  // what the reference read; random ones follow
  std::size_t taken = 0;
  Gate gate;
  bool offered = false;
};

struct Output {
  StreamPorts port;
  Words words;  // expected
  std::size_t seen = 0;
  Gate gate;
  Words waiting;  // a word that was offered and not taken
  bool offered = false;
};

// ---- the run ----

template <typename Top>
class Harness {
 public:
  Harness(Top& top, std::vector<Port> scalars, std::vector<StreamPorts> inputs, std::vector<StreamPorts> outputs,
          std::vector<Port> results)
      : top_(top), scalars_(std::move(scalars)), results_(std::move(results)) {
    for (auto& port : inputs) inputs_.push_back({port, {}, 0, {}, false});
    for (auto& port : outputs) outputs_.push_back({port, {}, 0, {}, {}, false});
  }

  // Arguments: file, "stalls" or "none", most cycles without a transfer. Prints one line of JSON; 0: all equal.
  int run(int argc, char** argv) {
    if (argc != 4) return 2;
    load(argv[1]);
    stalls_ = std::string(argv[2]) == "none" ? Stalls::kNone : Stalls::kRandom;
    patience_ = std::strtoul(argv[3], nullptr, 10);
    reset();
    std::string cycles;
    const std::uint32_t cases = next();
    for (std::uint32_t i = 0; i < cases && problem_.empty(); ++i) {
      seed_ = next();
      const std::size_t took = run_case();
      cycles += (i == 0 ? "" : ", ") + std::to_string(took);
    }
    std::printf("{\"cases\": %u, \"words\": %zu, \"cycles\": [%s], \"problem\": \"%s\"}\n", cases, compared_,
                cycles.c_str(), problem_.c_str());
    return problem_.empty() ? 0 : 1;
  }

 private:
  void load(const char* path) {
    std::FILE* file = std::fopen(path, "rb");
    if (file == nullptr) std::exit(2);
    std::uint32_t word = 0;
    while (std::fread(&word, sizeof word, 1, file) == 1) record_.push_back(word);
    std::fclose(file);
  }

  std::uint32_t next() { return record_.at(position_++); }

  Words next(std::size_t count) {
    Words words(record_.begin() + static_cast<std::ptrdiff_t>(position_),
                record_.begin() + static_cast<std::ptrdiff_t>(position_ + count));
    position_ += count;
    return words;
  }

  void fail(const std::string& what) {
    if (problem_.empty())
      problem_ = "seed " + std::to_string(seed_) + ", cycle " + std::to_string(cycle_) + ": " + what;
  }

  void reset() {
    top_.ap_rst_n = 0;
    top_.ap_start = 0;
    for (int i = 0; i < 4; ++i) tick();
    top_.ap_rst_n = 1;
  }

  void tick() {
    top_.ap_clk = 0;
    top_.eval();
    top_.ap_clk = 1;
    top_.eval();
  }

  std::size_t run_case() {
    random_.seed(seed_);
    cycle_ = 0;
    for (auto& scalar : scalars_) scalar.put(next(scalar.words()).data());
    for (auto& input : inputs_) {
      input.words = next(next() * input.port.data.words());
      input.taken = 0;
      input.offered = false;
      input.gate.choose(random_, stalls_);
    }
    for (auto& output : outputs_) {
      output.words = next(next() * output.port.data.words());
      output.seen = 0;
      output.gate.choose(random_, stalls_);
    }
    std::vector<Words> expected;
    for (auto& result : results_) expected.push_back(next(result.words()));
    run_job();
    for (std::size_t i = 0; i < results_.size(); ++i) compare_result(results_[i], expected[i]);
    return cycle_;
  }

  void run_job() {
    top_.ap_start = 1;
    bool done = false;
    std::size_t idle = 0;
    while (!done && problem_.empty()) {
      idle = cycle_was_idle() ? idle + 1 : 0;
      done = top_.ap_done != 0;
      finish_cycle();
      if (idle > patience_) stuck();
    }
    top_.ap_start = 0;
    const std::size_t took = cycle_;
    for (int i = 0; i < 3 && problem_.empty(); ++i) {  // nothing may follow
      cycle_was_idle();
      finish_cycle();
    }
    cycle_ = took;
    for (auto& input : inputs_) check_end(input.port.data, "taken", input.taken, input.words.size());
    for (auto& output : outputs_) check_end(output.port.data, "written", output.seen, output.words.size());
  }

  // Drives the inputs of a cycle and looks at the settled outputs. True if no word moves.
  bool cycle_was_idle() {
    top_.ap_clk = 0;
    for (auto& input : inputs_) offer(input);
    for (auto& output : outputs_) *output.port.ready = output.gate.open(random_);
    top_.eval();
    bool idle = true;
    for (auto& input : inputs_) idle = !take(input) && idle;
    for (auto& output : outputs_) idle = !watch(output) && idle;
    return idle;
  }

  void finish_cycle() {
    top_.ap_clk = 1;
    top_.eval();
    ++cycle_;
  }

  void offer(Input& input) {
    if (!input.offered && input.gate.open(random_)) {
      const std::size_t count = input.port.data.words();
      Words word(count);
      for (std::size_t i = 0; i < count; ++i) {
        const std::size_t at = input.taken * count + i;
        word[i] = at < input.words.size() ? input.words[at] : static_cast<std::uint32_t>(random_());
      }
      const int spare = static_cast<int>(32 * count) - input.port.data.width;
      word.back() &= ~0u >> spare;
      input.port.data.put(word.data());
      input.offered = true;
    }
    *input.port.valid = input.offered;
  }

  bool take(Input& input) {
    if (!input.offered || *input.port.ready == 0) return false;
    input.offered = false;
    ++input.taken;
    if (input.taken * input.port.data.words() > input.words.size()) {
      fail(std::string("stream ") + input.port.data.name + ": a word more than the reference was read");
    }
    return true;
  }

  bool watch(Output& output) {
    const Port& port = output.port.data;
    if (*output.port.valid == 0) {
      if (output.offered) fail(std::string("stream ") + port.name + ": valid fell before the word was taken");
      return false;
    }
    Words word(port.words());
    port.get(word.data());
    if (output.offered && word != output.waiting) {
      fail(std::string("stream ") + port.name + ": the word changed before it was taken");
    }
    output.offered = *output.port.ready == 0;
    output.waiting = word;
    if (output.offered) return false;
    compare(output, word);
    return true;
  }

  void compare(Output& output, const Words& word) {
    const std::string name = std::string("stream ") + output.port.data.name;
    const std::size_t at = output.seen * word.size();
    if (at >= output.words.size()) {
      fail(name + ": a word more than the reference was written");
    } else {
      const Words expected(output.words.begin() + static_cast<std::ptrdiff_t>(at),
                           output.words.begin() + static_cast<std::ptrdiff_t>(at + word.size()));
      if (word != expected)
        fail(name + ", word " + std::to_string(output.seen) + ": " + hex(word) + ", expected " + hex(expected));
    }
    ++output.seen;
    ++compared_;
  }

  void compare_result(const Port& port, const Words& expected) {
    Words word(port.words());
    port.get(word.data());
    if (word != expected) fail(std::string("output ") + port.name + ": " + hex(word) + ", expected " + hex(expected));
    ++compared_;
  }

  void check_end(const Port& port, const char* what, std::size_t count, std::size_t words) {
    const std::size_t expected = words / port.words();
    if (count != expected) {
      fail(std::string("stream ") + port.name + ": " + std::to_string(count) + " words " + what + ", expected " +
           std::to_string(expected));
    }
  }

  void stuck() {
    std::string state = "no word moved for " + std::to_string(patience_) + " cycles;";
    for (auto& input : inputs_) {
      state += std::string(" ") + input.port.data.name + ": " + std::to_string(input.taken) + " of " +
               std::to_string(input.words.size() / input.port.data.words()) + " taken" +
               (*input.port.ready != 0 ? ", waits for a word;" : ", does not take the next one;");
    }
    for (auto& output : outputs_) {
      state += std::string(" ") + output.port.data.name + ": " + std::to_string(output.seen) + " of " +
               std::to_string(output.words.size() / output.port.data.words()) + " written;";
    }
    fail(state);
  }

  static std::string hex(const Words& words) {
    std::string text = "0x";
    for (std::size_t i = words.size(); i-- > 0;) {
      char digits[9];
      std::snprintf(digits, sizeof digits, "%08x", words[i]);
      text += digits;
    }
    return text;
  }

  Top& top_;
  std::vector<Port> scalars_;
  std::vector<Port> results_;
  std::vector<Input> inputs_;
  std::vector<Output> outputs_;
  Words record_;
  std::size_t position_ = 0;
  std::size_t cycle_ = 0;
  std::size_t compared_ = 0;
  std::size_t patience_ = 0;
  std::uint32_t seed_ = 0;
  std::mt19937 random_;
  Stalls stalls_ = Stalls::kRandom;
  std::string problem_;
};

template <typename T>
Port port(const char* name, int width, T& net) {
  return {name, width, [&net](const std::uint32_t* words) { put(net, words); },
          [&net](std::uint32_t* words) { get(net, words); }};
}

}  // namespace openhls
