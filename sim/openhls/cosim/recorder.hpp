// SPDX-License-Identifier: Apache-2.0
// Stands between a testbench and the top: records each call (values.hpp) in the file that OPENHLS_RECORD names.
//
// Needs the address sanitizer, which knows how many elements lie behind a pointer of the testbench.
#pragma once

#include <hls_stream.h>
#include <sanitizer/asan_interface.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <tuple>
#include <utility>

#include "values.hpp"

namespace hls {
template <typename T>
class burst_maxi;
}

namespace openhls {

const std::vector<Argument>& arguments();  // of the top

// The file of the record. Its first word is the number of cases.
class Recording {
 public:
  static Recording& only() {
    static Recording one;
    return one;
  }
  void add(const Record& record) {
    Words out;
    append_case(out, ++cases_, record);
    words_ += out.size();
    if (words_ > kMost) fail("the testbench's calls have more than a GiB of inputs and outputs");
    if (std::fwrite(out.data(), sizeof out[0], out.size(), file_) != out.size()) fail("the record cannot be written");
  }
  [[noreturn]] static void fail(const char* why) {
    std::fprintf(stderr, "openhls: %s\n", why);
    std::_Exit(kFailed);
  }
  static constexpr int kFailed = 97;

 private:
  Recording() : file_(std::fopen(std::getenv("OPENHLS_RECORD"), "wb")) {
    if (file_ == nullptr || std::fwrite(&cases_, sizeof cases_, 1, file_) != 1) fail("the record cannot be written");
  }
  ~Recording() {
    std::rewind(file_);
    const bool counted = std::fwrite(&cases_, sizeof cases_, 1, file_) == 1;
    if (std::fclose(file_) != 0 || !counted) fail("the record cannot be written");
  }
  static constexpr std::size_t kMost = std::size_t{1} << 28;
  std::FILE* file_;
  std::uint32_t cases_ = 0;
  std::size_t words_ = 0;
};

// ---- what a call passes ----

template <typename T>
struct Passed {  // a scalar by value
  const T& value;
  void before(const Argument& argument, Record& record) {
    if (argument.role != Role::kUnused) Bits<typename std::remove_const<T>::type>::put(record.scalars, value);
  }
  void after(const Argument&, Record&) {}
};

template <typename T>
struct Passed<const T&> : Passed<T> {};

template <typename T>
struct Passed<T&> {
  T& value;
  void before(const Argument& argument, Record& record) {
    if (is_given(argument.role)) Bits<T>::put(record.scalars, value);
  }
  void after(const Argument& argument, Record& record) {
    if (is_returned(argument.role)) Bits<T>::put(record.results, value);
  }
};

template <typename T, int kDepth>
struct Passed<hls::stream<T, kDepth>&> {
  hls::stream<T, kDepth>& value;
  std::deque<T> there{};  // when the call began
  void before(const Argument&, Record&) { there = value.words(); }
  void after(const Argument& argument, Record& record) {
    if (argument.role == Role::kUnused) return;
    const bool input = argument.role == Role::kInput;
    auto begin = there.begin(), end = there.end();
    if (input) {
      end -= static_cast<std::ptrdiff_t>(value.words().size());  // only reads change it
    } else {
      begin = value.words().begin() + static_cast<std::ptrdiff_t>(there.size());
      end = value.words().end();
    }
    Words& out = input ? record.inputs : record.outputs;
    out.push_back(static_cast<std::uint32_t>(end - begin));
    for (; begin != end; ++begin) put_word<T>(out, *begin, argument.fields);
  }
};

template <typename T, int kDepth>
struct Passed<hls::stream<T, kDepth>*> {  // an array of streams
  using Stream = hls::stream<T, kDepth>;
  Stream* value;
  std::deque<Passed<Stream&>> streams{};
  void before(const Argument& argument, Record& record) {
    for (std::size_t i = 0; i < argument.elements; ++i) {
      streams.push_back(Passed<Stream&>{value[i]});
      streams.back().before(argument, record);
    }
  }
  void after(const Argument& argument, Record& record) {
    for (auto& stream : streams) stream.after(argument, record);
  }
};

template <typename T>
struct Passed<T*> {  // a buffer, or a scalar by reference
  using Element = typename std::remove_cv<T>::type;
  T* value;
  std::size_t count = 0;
  Words initial{};
  void before(const Argument& argument, Record& record) {
    if (argument.role == Role::kMemory) {
      count = elements();
      initial = memory_words(const_cast<const Element*>(value), count);
    } else if constexpr (kIsNumber<Element> && !std::is_array<Element>::value) {
      if (is_given(argument.role)) Bits<Element>::put(record.scalars, *value);
    }
  }
  void after(const Argument& argument, Record& record) {
    if (argument.role == Role::kInput || argument.role == Role::kOutput) {  // the top does not change an input
      Words& words = argument.role == Role::kInput ? record.inputs : record.outputs;
      put_words(words, const_cast<const Element*>(value), argument.elements, argument.fields);
    } else if (argument.role == Role::kMemory) {
      const Words now = memory_words(const_cast<const Element*>(value), count);
      put_buffer(record, count * memory_bytes<Element>(), initial, now);
    } else if constexpr (kIsNumber<Element> && !std::is_array<Element>::value) {
      if (is_returned(argument.role)) Bits<Element>::put(record.results, *value);
    }
  }

 private:
  // Elements from the pointer to the end of its object.
  std::size_t elements() const {
    char* const first = reinterpret_cast<char*>(const_cast<Element*>(value));
    for (std::size_t bytes = sizeof(T); bytes <= std::size_t{1} << 30; bytes *= 2) {
      const auto* end = static_cast<char*>(__asan_region_is_poisoned(first, bytes));
      if (end != nullptr) return static_cast<std::size_t>(end - first) / sizeof(T);
    }
    Recording::fail("a pointer of the testbench has more than a GiB behind it");
  }
};

template <typename T>
struct Passed<hls::burst_maxi<T>> : Passed<T*> {
  explicit Passed(hls::burst_maxi<T>& given) : Passed<T*>{given.data()} {}
};

// Two buffers of one memory are two in the hardware, too: a write to one is not seen in the other.
inline void refuse_shared(const std::vector<std::pair<const char*, const char*>>& buffers) {
  for (std::size_t i = 0; i < buffers.size(); ++i) {
    for (std::size_t j = 0; j < i; ++j) {
      if (buffers[i].first < buffers[j].second && buffers[j].first < buffers[i].second) {
        Recording::fail("the testbench passes the same memory to two arguments of the top");
      }
    }
  }
}

template <typename T>
void note_buffer(std::vector<std::pair<const char*, const char*>>&, const Passed<T>&) {}
template <typename T, int kDepth>
void note_buffer(std::vector<std::pair<const char*, const char*>>&, const Passed<hls::stream<T, kDepth>*>&) {}
template <typename T>
void note_buffer(std::vector<std::pair<const char*, const char*>>& buffers, const Passed<T*>& passed);
template <typename T>
void note_buffer(std::vector<std::pair<const char*, const char*>>& buffers, const Passed<hls::burst_maxi<T>>& passed) {
  note_buffer(buffers, static_cast<const Passed<T*>&>(passed));
}
template <typename T>
void note_buffer(std::vector<std::pair<const char*, const char*>>& buffers, const Passed<T*>& passed) {
  const auto* first = reinterpret_cast<const char*>(const_cast<const typename std::remove_cv<T>::type*>(passed.value));
  if (passed.count != 0) buffers.emplace_back(first, first + passed.count * sizeof(T));
}

// `call` takes the place of the top in the testbench.
template <auto kTop>
struct Recorded;

template <typename Result, typename... Args, Result (*kTop)(Args...)>
struct Recorded<kTop> {
  static Result call(Args... args) { return recorded(std::index_sequence_for<Args...>{}, args...); }

 private:
  template <std::size_t... kIndex>
  static Result recorded(std::index_sequence<kIndex...>, Args&... args) {
    Record record;
    std::tuple<Passed<Args>...> passed{Passed<Args>{args}...};
    (std::get<kIndex>(passed).before(arguments()[kIndex], record), ...);
    std::vector<std::pair<const char*, const char*>> buffers;
    (note_buffer(buffers, std::get<kIndex>(passed)), ...);
    refuse_shared(buffers);
    if constexpr (std::is_void<Result>::value) {
      {
        const InTop running;
        kTop(args...);
        Beside::settle();
      }
      (std::get<kIndex>(passed).after(arguments()[kIndex], record), ...);
      Recording::only().add(record);
    } else {
      const Result result = [&args...]() -> Result {
        const InTop running;
        const Result returned = kTop(args...);
        Beside::settle();
        return returned;
      }();
      Bits<typename std::decay<Result>::type>::put(record.results, result);
      (std::get<kIndex>(passed).after(arguments()[kIndex], record), ...);
      Recording::only().add(record);
      return result;
    }
  }
};

}  // namespace openhls
