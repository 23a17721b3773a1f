// SPDX-License-Identifier: Apache-2.0
// Calls the top as compiled by g++ with random arguments and records what goes in and what comes out (values.hpp).
#pragma once

#include <hls_stream.h>

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <tuple>
#include <utility>

#include "values.hpp"

namespace hls {
template <typename T>
class burst_maxi;
}

namespace openhls {

// ---- random values ----

// Stream words: any bits, few bits, ends of the range.
inline Words random_words(Random& random, int width) {
  Words words(static_cast<std::size_t>((width + 31) / 32));
  const auto kind = random() % 8;
  for (auto& word : words) word = kind == 0 ? 0 : kind == 1 ? ~0u : static_cast<std::uint32_t>(random());
  if (kind == 2) {
    for (auto& word : words) word = 0;
    words[0] = static_cast<std::uint32_t>(random() % 16);
  }
  if (width % 32 != 0) words.back() &= (1u << width % 32) - 1;
  return words;
}

// ---- arguments of the top ----

template <typename T>
struct Holder;

template <typename T>
struct Holder<T&> {  // a scalar by reference
  T value{};
  void prepare(const Argument& argument, Random& random) {
    if (is_given(argument.role)) value = static_cast<T>(argument.choice.draw(random));
  }
  void before(const Argument& argument, Record& record) const {
    if (is_given(argument.role)) Bits<T>::put(record.scalars, value);
  }
  void after(const Argument& argument, Record& record) const {
    if (is_returned(argument.role)) Bits<T>::put(record.results, value);
  }
  T& pass() { return value; }
};

template <typename T>
struct ValueHolder {
  T value{};
  void prepare(const Argument& argument, Random& random) { value = static_cast<T>(argument.choice.draw(random)); }
  void before(const Argument& argument, Record& record) const {
    if (argument.role != Role::kUnused) Bits<T>::put(record.scalars, value);
  }
  void after(const Argument&, Record&) const {}
  const T& pass() { return value; }
};

template <typename T>
struct Holder : ValueHolder<T> {};
template <typename T>
struct Holder<const T&> : ValueHolder<T> {};

// An input makes its words when they are read.
template <typename T>
void make_words(hls::stream<T>& stream, const Argument& argument, Random& random) {
  if (argument.role != Role::kInput) return;
  stream.most = Random(random)() % 40;
  stream.source = [&stream, &random, fields = argument.fields] {
    if (stream.log.size() > 2000000) {
      std::fprintf(stderr, "reference: two million words were read; limit the arguments with --set\n");
      std::exit(3);
    }
    return get_word<T>(random_words(random, word_bits<T>()), fields);
  };
}

// The words that were read from an input, or written to an output.
template <typename T>
void record_words(hls::stream<T>& stream, const Argument& argument, Record& record) {
  if (argument.role == Role::kUnused) return;
  const bool input = argument.role == Role::kInput;
  Words& out = input ? record.inputs : record.outputs;
  out.push_back(static_cast<std::uint32_t>(input ? stream.log.size() : stream.words().size()));
  if (input) {
    for (const T& word : stream.log) put_word<T>(out, word, argument.fields);
  } else {
    for (const T& word : stream.words()) put_word<T>(out, word, argument.fields);
  }
}

template <typename T, int kDepth>
struct Holder<hls::stream<T, kDepth>&> {
  hls::stream<T, kDepth> stream;
  void prepare(const Argument& argument, Random& random) {
    stream.restart();
    make_words<T>(stream, argument, random);
  }
  void before(const Argument&, Record&) const {}
  void after(const Argument& argument, Record& record) { record_words<T>(stream, argument, record); }
  hls::stream<T, kDepth>& pass() { return stream; }
};

template <typename T, int kDepth>
struct Holder<hls::stream<T, kDepth>*> {  // an array of streams
  using Stream = hls::stream<T, kDepth>;
  std::unique_ptr<Stream[]> streams;
  void prepare(const Argument& argument, Random& random) {
    if (streams == nullptr) streams.reset(new Stream[argument.elements]);
    for (std::size_t i = 0; i < argument.elements; ++i) {
      streams[i].restart();
      make_words<T>(streams[i], argument, random);
    }
  }
  void before(const Argument&, Record&) const {}
  void after(const Argument& argument, Record& record) {
    for (std::size_t i = 0; i < argument.elements; ++i) record_words<T>(streams[i], argument, record);
  }
  Stream* pass() { return streams.get(); }
};

template <typename T>
struct Holder<T*> {  // a buffer, or a scalar by reference
  using Element = typename std::remove_cv<typename std::remove_all_extents<T>::type>::type;
  static constexpr std::size_t kInner = sizeof(T) / sizeof(Element);  // a row of an array has several
  std::unique_ptr<Element[]> elements;
  std::size_t count = 0;
  Words initial;

  void prepare(const Argument& argument, Random& random) {
    const bool many = argument.role == Role::kMemory || argument.role == Role::kInput || argument.role == Role::kOutput;
    count = many ? argument.elements * kInner : 1;
    elements.reset(new Element[count]);
    for (std::size_t i = 0; i < count; ++i) random_element(elements[i], argument, random);
    if constexpr (kNumber) {
      if (is_given(argument.role)) elements[0] = static_cast<Element>(argument.choice.draw(random));
    }
    initial = words();
  }
  void before(const Argument& argument, Record& record) const {
    if constexpr (kNumber) {
      if (is_given(argument.role)) Bits<Element>::put(record.scalars, elements[0]);
    }
  }
  void after(const Argument& argument, Record& record) const {
    if constexpr (kNumber) {
      if (is_returned(argument.role)) Bits<Element>::put(record.results, elements[0]);
    }
    if (argument.role == Role::kInput)
      put_words(record.inputs, elements.get(), count, argument.fields);  // the top only reads them
    if (argument.role == Role::kOutput) put_words(record.outputs, elements.get(), count, argument.fields);
    if (argument.role == Role::kMemory) put_buffer(record, count * memory_bytes<Element>(), initial, words());
  }
  T* pass() { return reinterpret_cast<T*>(elements.get()); }

 private:
  static constexpr bool kNumber = kIsNumber<Element>;
  static void random_element(Element& element, const Argument& argument, Random& random) {
    if constexpr (kNumber) {
      element = Bits<Element>::get(random_words(random, Bits<Element>::kWidth));
    } else {
      static_assert(!std::is_polymorphic<Element>::value, "an element of memory must be plain data");
      Words words = random_words(random, 8 * sizeof element);
      for (const Field& field : argument.fields) field.tidy(reinterpret_cast<std::uint8_t*>(words.data()));
      std::memcpy(static_cast<void*>(&element), words.data(), sizeof element);
    }
  }
  Words words() const { return memory_words(elements.get(), count); }
};

template <typename T>
struct Holder<hls::burst_maxi<T>> : Holder<T*> {};

// ---- cases ----

// `holders` are the same in all cases: tasks have references to streams.
template <typename Result, typename... Args, std::size_t... kIndex>
void run_case(Result (*top)(Args...), const std::vector<Argument>& arguments, std::tuple<Holder<Args>...>& holders,
              std::uint32_t seed, Words& out, std::index_sequence<kIndex...>) {
  Random random(seed);
  Record record;
  (std::get<kIndex>(holders).prepare(arguments[kIndex], random), ...);
  (std::get<kIndex>(holders).before(arguments[kIndex], record), ...);
  const InTop running;
  if constexpr (std::is_void<Result>::value) {
    top(std::get<kIndex>(holders).pass()...);
  } else {
    const auto result = top(std::get<kIndex>(holders).pass()...);
    Bits<typename std::decay<Result>::type>::put(record.results, result);
  }
  Beside::settle();
  (std::get<kIndex>(holders).after(arguments[kIndex], record), ...);
  append_case(out, seed, record);
}

template <typename Result, typename... Args>
int run(Result (*top)(Args...), const std::vector<Argument>& arguments, int argc, char** argv) {
  if (argc != 4) return 2;
  const auto cases = std::strtoul(argv[1], nullptr, 10);
  const auto seed = static_cast<std::uint32_t>(std::strtoul(argv[2], nullptr, 10));
  Words out = {static_cast<std::uint32_t>(cases)};
  std::tuple<Holder<Args>...> holders;
  for (std::uint32_t i = 0; i < cases; ++i) {
    run_case(top, arguments, holders, seed + i, out, std::index_sequence_for<Args...>{});
  }
  std::FILE* file = std::fopen(argv[3], "wb");
  if (file == nullptr) return 2;
  const bool written = std::fwrite(out.data(), sizeof(std::uint32_t), out.size(), file) == out.size();
  return std::fclose(file) == 0 && written ? 0 : 2;
}

}  // namespace openhls
