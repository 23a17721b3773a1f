// SPDX-License-Identifier: Apache-2.0
// Testbench side of csim: reads the cases that sim/csim/vectors.py wrote, compares, and prints one line of JSON.
//
//   void check(const kvdrive::csim::Case& item) {
//     ... run the kernel on item.array<std::uint32_t>("keys"), item.beats("keys"), item.scalar<int>("k") ...
//     kvdrive::csim::compare("indices", got, item.array<std::uint32_t>("indices"));
//   }
//   int main(int argc, char** argv) { return kvdrive::csim::run(argc, argv, check); }
#pragma once

#include <cstdint>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <iostream>
#include <map>
#include <sstream>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <vector>

#include "common/stream.hpp"

namespace kvdrive {
namespace csim {

// Whole beats that hold `values`, zero padded.
template <typename T>
std::vector<beat_t> to_beats(const std::vector<T>& values) {
  constexpr std::size_t kPerBeat = abi::kBeatBytes / sizeof(T);
  std::vector<beat_t> beats((values.size() + kPerBeat - 1) / kPerBeat, beat_t(0));
  for (std::size_t i = 0; i < values.size(); ++i) {
    std::make_unsigned_t<T> bits = static_cast<std::make_unsigned_t<T>>(values[i]);
    set_lane<8 * sizeof(T)>(beats[i / kPerBeat], static_cast<int>(i % kPerBeat), ap_uint<8 * sizeof(T)>(bits));
  }
  return beats;
}

// The first `count` values of `beats`.
template <typename T>
std::vector<T> from_beats(const std::vector<beat_t>& beats, std::size_t count) {
  constexpr std::size_t kPerBeat = abi::kBeatBytes / sizeof(T);
  std::vector<T> values(count);
  for (std::size_t i = 0; i < count; ++i) {
    const auto bits = lane<8 * sizeof(T)>(beats.at(i / kPerBeat), static_cast<int>(i % kPerBeat));
    values[i] = static_cast<T>(bits.to_uint64());
  }
  return values;
}

// Named arrays: the inputs and the expected results of one run of a kernel.
class Case {
 public:
  bool has(const std::string& name) const { return arrays_.count(name) != 0; }

  const std::vector<std::size_t>& shape(const std::string& name) const { return find(name).shape; }

  // All values in C order. T is an integer type of the array's item size; floats come as their bit patterns.
  template <typename T>
  std::vector<T> array(const std::string& name) const {
    static_assert(std::is_integral_v<T> && !std::is_same_v<T, bool>);
    const Array& array = find(name);
    const char kind = std::is_signed_v<T> ? 'i' : 'u';
    if (array.item_bytes != sizeof(T) || (array.kind != kind && !(array.kind == 'f' && kind == 'u'))) {
      throw std::runtime_error("array \"" + name + "\" is of kind " + array.kind + " with " +
                               std::to_string(array.item_bytes) + " bytes per item");
    }
    std::vector<T> values(array.bytes.size() / sizeof(T));
    if (!values.empty()) std::memcpy(values.data(), array.bytes.data(), array.bytes.size());
    return values;
  }

  // An array of one int64 or uint64 (Python's int), as T.
  template <typename T>
  T scalar(const std::string& name) const {
    const Array& array = find(name);
    std::int64_t value = 0;
    if (array.bytes.size() != sizeof(value)) throw std::runtime_error("array \"" + name + "\" is no 64-bit scalar");
    std::memcpy(&value, array.bytes.data(), sizeof(value));
    return static_cast<T>(value);
  }

  // The bytes of an array in whole beats, zero padded.
  std::vector<beat_t> beats(const std::string& name) const { return to_beats(find(name).bytes); }

  std::string label() const {
    if (!has("label")) return "";
    const auto bytes = array<std::uint8_t>("label");
    return std::string(bytes.begin(), bytes.end());
  }

 private:
  friend class Reader;

  struct Array {
    char kind = 0;  // numpy's: u, i or f
    std::size_t item_bytes = 0;
    std::vector<std::size_t> shape;
    std::vector<std::uint8_t> bytes;
  };

  const Array& find(const std::string& name) const {
    const auto found = arrays_.find(name);
    if (found == arrays_.end()) throw std::runtime_error("the case has no array \"" + name + "\"");
    return found->second;
  }

  std::map<std::string, Array> arrays_;
};

// Outcome of all comparisons of this process.
struct Report {
  static constexpr std::size_t kShown = 8;

  static Report& global() {
    static Report report;
    return report;
  }

  std::uint64_t cases = 0;
  std::uint64_t values = 0;
  std::uint64_t mismatches = 0;
  std::string label;               // of the case at work
  std::vector<std::string> shown;  // the first mismatches

  void mismatch(const std::string& text) {
    if (mismatches++ < kShown) shown.push_back("case " + std::to_string(cases) + " (" + label + "): " + text);
  }
};

// Reads the container named by the first argument. A second argument `--run-ahead` lets stages run ahead of each other
// as far as their streams allow; by default they advance in lockstep.
class Reader {
 public:
  Reader(int argc, char** argv) {
    const bool run_ahead = argc == 3 && std::string(argv[2]) == "--run-ahead";
    if (argc != 2 && !run_ahead) throw std::runtime_error("usage: <testbench> VECTORS [--run-ahead]");
#ifndef KVDRIVE_SYNTHESIS
    simulation::Scheduler::local().set_lockstep(!run_ahead);
#endif
    open(argv[1]);
  }

  explicit Reader(const std::string& path) { open(path); }

  // False at the end of the file.
  bool next(Case& item) {
    item.arrays_.clear();
    if (file_.peek() == std::ifstream::traits_type::eof()) return false;
    const auto count = get<std::uint32_t>();
    for (std::uint32_t i = 0; i < count; ++i) read_array(item);
    Report& report = Report::global();
    ++report.cases;
    report.label = item.label();
    return true;
  }

 private:
  void open(const std::string& path) {
    file_.open(path, std::ios::binary);
    if (!file_) throw std::runtime_error("cannot open " + path);
    char magic[8];
    read_bytes(magic, sizeof(magic));
    if (std::memcmp(magic, "KVCASES1", sizeof(magic)) != 0) throw std::runtime_error(path + " holds no csim cases");
  }

  void read_bytes(void* to, std::size_t bytes) {
    file_.read(static_cast<char*>(to), static_cast<std::streamsize>(bytes));
    if (static_cast<std::size_t>(file_.gcount()) != bytes) throw std::runtime_error("the csim cases end too early");
  }

  template <typename T>
  T get() {
    T value;
    read_bytes(&value, sizeof(value));
    return value;
  }

  void read_array(Case& item) {
    std::string name(get<std::uint16_t>(), '\0');
    read_bytes(name.data(), name.size());
    Case::Array& array = item.arrays_[name];
    array.kind = get<char>();
    array.item_bytes = get<std::uint8_t>();
    array.shape.resize(get<std::uint8_t>());
    std::size_t bytes = array.item_bytes;
    for (std::size_t& extent : array.shape) bytes *= extent = get<std::uint64_t>();
    array.bytes.resize(bytes);
    read_bytes(array.bytes.data(), bytes);
  }

  std::ifstream file_;
};

template <typename T>
std::string to_text(const T& value) {
  std::ostringstream text;
  if constexpr (std::is_integral_v<T>) {
    text << +value;
  } else {
    text << value.to_string(16);
  }
  return text.str();
}

// Counts every value; a different length is a mismatch as well.
template <typename T>
void compare(const std::string& name, const std::vector<T>& got, const std::vector<T>& expected) {
  Report& report = Report::global();
  report.values += expected.size();
  if (got.size() != expected.size()) {
    report.mismatch(name + " has " + std::to_string(got.size()) + " values, not " + std::to_string(expected.size()));
    return;
  }
  for (std::size_t i = 0; i < got.size(); ++i) {
    if (got[i] != expected[i]) {
      report.mismatch(name + "[" + std::to_string(i) + "] is " + to_text(got[i]) + ", not " + to_text(expected[i]));
    }
  }
}

template <typename T>
void compare(const std::string& name, const T& got, const T& expected) {
  compare(name, std::vector<T>{got}, std::vector<T>{expected});
}

inline std::string quoted(const std::string& text) {
  std::string result = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') result += '\\';
    result += c == '\n' ? ' ' : c;
  }
  return result + "\"";
}

// JSON list of the streams' marks; words left in a stream count as mismatches. The vendor's streams keep no marks.
inline std::string stream_marks() {
  std::ostringstream streams;
#ifndef KVDRIVE_SYNTHESIS
  for (const auto& [name, mark] : simulation::StreamMarks::global().snapshot()) {
    if (mark.left_over > 0) {
      Report::global().mismatch("stream " + name + " kept " + std::to_string(mark.left_over) + " words");
    }
    streams << (streams.tellp() > 0 ? ", " : "") << "{\"name\": " << quoted(name) << ", \"depth\": " << mark.depth
            << ", \"high_water\": " << mark.high_water << ", \"words\": " << mark.words << "}";
  }
#endif
  return "[" + streams.str() + "]";
}

// Prints the report. The exit status of main.
inline int finish() {
  Report& report = Report::global();
  const std::string streams = stream_marks();
  std::ostringstream shown;
  for (const std::string& text : report.shown) shown << (shown.tellp() > 0 ? ", " : "") << quoted(text);
  std::cout << "{\"cases\": " << report.cases << ", \"values\": " << report.values
            << ", \"mismatches\": " << report.mismatches << ", \"shown\": [" << shown.str()
            << "], \"streams\": " << streams << "}\n";
  return report.mismatches == 0 ? 0 : 1;
}

// A whole main: `check` on every case, then the report; 2 with a message when the cases cannot be run to their end.
template <typename Check>
int run(int argc, char** argv, Check check) {
  try {
    Reader reader(argc, argv);
    for (Case item; reader.next(item);) check(item);
    return finish();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "case %llu (%s): %s\n", static_cast<unsigned long long>(Report::global().cases),
                 Report::global().label.c_str(), error.what());
    return 2;
  }
}

}  // namespace csim
}  // namespace kvdrive
