// SPDX-License-Identifier: Apache-2.0
// Calls the top as compiled by g++ with random arguments and records what goes in and what comes out.
//
// Record of a case, 32-bit words: the seed; each scalar; each input stream: count, words; each output stream: count,
// words; each output; each pointer: bytes of its buffer, their words before and after. A value of w bits has
// ceil(w / 32) words, the low one first; a buffer holds its elements one after the other.
#pragma once

#include <ap_int.h>
#include <hls_stream.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#ifdef __SANITIZE_ADDRESS__
extern "C" inline const char* __asan_default_options() { return "detect_leaks=0"; }
#endif

namespace openhls {

using Words = std::vector<std::uint32_t>;

// ---- values as words ----

template <typename T>
struct Bits {
  static_assert(std::is_integral<T>::value || std::is_enum<T>::value,
                "arguments and stream words must be integers or ap_int types: pack a struct into an ap_uint");
  static constexpr int kWidth = std::is_same<T, bool>::value ? 1 : 8 * static_cast<int>(sizeof(T));
  static void put(Words& out, T value) {
    const auto bits = static_cast<std::uint64_t>(value);
    out.push_back(static_cast<std::uint32_t>(bits & (kWidth < 32 ? (1ull << kWidth) - 1 : 0xffffffffull)));
    if (kWidth > 32) out.push_back(static_cast<std::uint32_t>(bits >> 32));
  }
  static T get(const Words& in) {
    const std::uint64_t high = kWidth > 32 ? in[1] : 0;
    return static_cast<T>(in[0] | high << 32);
  }
};

template <typename T, int kBits>
struct ApBits {
  static constexpr int kWidth = kBits;
  static void put(Words& out, const T& value) {
    for (int low = 0; low < kBits; low += 32) {
      out.push_back(static_cast<std::uint32_t>(T(value).range(low + 32 < kBits ? low + 31 : kBits - 1, low).to_uint()));
    }
  }
  static T get(const Words& in) {
    T value = 0;
    for (int low = 0; low < kBits; low += 32) {
      value.range(low + 32 < kBits ? low + 31 : kBits - 1, low) = in[static_cast<std::size_t>(low / 32)];
    }
    return value;
  }
};

template <typename T>
struct IsAp : std::false_type {};
template <int kBits>
struct IsAp<ap_uint<kBits>> : std::true_type {};
template <int kBits>
struct IsAp<ap_int<kBits>> : std::true_type {};
template <typename T>
struct IsSignedAp : std::false_type {};
template <int kBits>
struct IsSignedAp<ap_int<kBits>> : std::true_type {};

template <int kBits>
struct Bits<ap_uint<kBits>> : ApBits<ap_uint<kBits>, kBits> {};
template <int kBits>
struct Bits<ap_int<kBits>> : ApBits<ap_int<kBits>, kBits> {};

// ---- random values ----

using Random = std::mt19937_64;

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

// A value of the set that the command line gives for an argument: items are first, last, step.
struct Choice {
  std::vector<std::vector<long long>> items;
  long long draw(Random& random) const {
    const auto& item = items[random() % items.size()];
    const auto count = static_cast<std::uint64_t>((item[1] - item[0]) / item[2] + 1);
    return item[0] + static_cast<long long>(random() % count) * item[2];
  }
};

// kUnused: an argument that the hardware does not have, because nothing depends on it.
enum class Role { kScalar, kInput, kOutput, kResult, kInOut, kMemory, kUnused };

struct Argument {
  Role role;
  Choice choice;
  std::size_t elements = 0;  // of the buffer of a pointer
};

// ---- arguments of the top ----

struct Record {
  Words scalars, inputs, outputs, results, buffers;
};

template <typename T>
struct Holder;

template <typename T>
struct Holder<T&> {  // a scalar by reference
  T value{};
  void prepare(const Argument& argument, Random& random) {
    if (argument.role == Role::kInOut) value = static_cast<T>(argument.choice.draw(random));
  }
  void before(const Argument& argument, Record& record) const {
    if (argument.role == Role::kInOut) Bits<T>::put(record.scalars, value);
  }
  void after(const Argument& argument, Record& record) const {
    if (argument.role != Role::kUnused) Bits<T>::put(record.results, value);
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

template <typename T, int kDepth>
struct Holder<hls::stream<T, kDepth>&> {
  hls::stream<T, kDepth> stream;
  void prepare(const Argument& argument, Random& random) {
    if (argument.role != Role::kInput) return;
    stream.source = [this, &random] {
      if (stream.log.size() > 2000000) {
        std::fprintf(stderr, "reference: two million words were read; limit the arguments with --set\n");
        std::exit(3);
      }
      return Bits<T>::get(random_words(random, Bits<T>::kWidth));
    };
  }
  void before(const Argument&, Record&) const {}
  void after(const Argument& argument, Record& record) {
    if (argument.role == Role::kUnused) return;
    const bool input = argument.role == Role::kInput;
    Words& out = input ? record.inputs : record.outputs;
    out.push_back(static_cast<std::uint32_t>(input ? stream.log.size() : stream.words().size()));
    if (input) {
      for (const T& word : stream.log) Bits<T>::put(out, word);
    } else {
      for (const T& word : stream.words()) Bits<T>::put(out, word);
    }
  }
  hls::stream<T, kDepth>& pass() { return stream; }
};

template <typename T>
struct Holder<T*> {  // a buffer, or a scalar by reference
  using Element = typename std::remove_cv<T>::type;
  std::unique_ptr<Element[]> elements;
  std::size_t count = 0;
  Words initial;

  void prepare(const Argument& argument, Random& random) {
    count = argument.role == Role::kMemory ? argument.elements : 1;
    elements.reset(new Element[count]);
    for (std::size_t i = 0; i < count; ++i) elements[i] = random_element(random);
    if constexpr (kNumber) {
      if (is_given(argument)) elements[0] = static_cast<Element>(argument.choice.draw(random));
    }
    initial = words();
  }
  void before(const Argument& argument, Record& record) const {
    if constexpr (kNumber) {
      if (is_given(argument)) Bits<Element>::put(record.scalars, elements[0]);
    }
  }
  void after(const Argument& argument, Record& record) const {
    if constexpr (kNumber) {
      if (argument.role == Role::kResult || argument.role == Role::kInOut) {
        Bits<Element>::put(record.results, elements[0]);
      }
    }
    if (argument.role != Role::kMemory) return;
    record.buffers.push_back(static_cast<std::uint32_t>(count * bytes()));
    for (const Words& whole : {initial, words()}) {
      record.buffers.insert(record.buffers.end(), whole.begin(), whole.end());
    }
  }
  T* pass() { return elements.get(); }

 private:
  static constexpr bool kNumber = !std::is_class<Element>::value || IsAp<Element>::value;
  static bool is_given(const Argument& argument) {
    return argument.role == Role::kScalar || argument.role == Role::kInOut;
  }
  // Memory pads a number to a power of two of bytes, with copies of the sign of an ap_int.
  static constexpr std::size_t bytes() {
    if constexpr (kNumber) {
      std::size_t size = 1;
      while (8 * size < static_cast<std::size_t>(Bits<Element>::kWidth)) size *= 2;
      return size;
    }
    return sizeof(Element);
  }
  static void extend(Words& one) {
    constexpr int kWidth = Bits<Element>::kWidth;
    const bool negative = IsSignedAp<Element>::value && (one[(kWidth - 1) / 32] >> (kWidth - 1) % 32 & 1) != 0;
    if (negative && kWidth % 32 != 0) one.back() |= ~0u << kWidth % 32;
    one.resize((bytes() + 3) / 4, negative ? ~0u : 0);
  }
  static Element random_element(Random& random) {
    if constexpr (kNumber) {
      return Bits<Element>::get(random_words(random, Bits<Element>::kWidth));
    } else {
      static_assert(std::is_trivially_copyable<Element>::value, "an element of memory must be plain data");
      Element element;
      const Words words = random_words(random, 8 * sizeof element);
      std::memcpy(&element, words.data(), sizeof element);
      return element;
    }
  }
  // Elements one after the other, as memory has them.
  Words words() const {
    std::vector<std::uint8_t> all;
    for (std::size_t i = 0; i < count; ++i) {
      Words one;
      if constexpr (kNumber) {
        Bits<Element>::put(one, elements[i]);
        extend(one);
      } else {
        one.resize((sizeof(Element) + 3) / 4);
        std::memcpy(one.data(), &elements[i], sizeof(Element));
      }
      const auto* raw = reinterpret_cast<const std::uint8_t*>(one.data());
      all.insert(all.end(), raw, raw + bytes());
    }
    Words packed((all.size() + 3) / 4);
    std::memcpy(packed.data(), all.data(), all.size());
    return packed;
  }
};

// ---- cases ----

template <typename Result, typename... Args, std::size_t... kIndex>
void run_case(Result (*top)(Args...), const std::vector<Argument>& arguments, std::uint32_t seed, Words& out,
              std::index_sequence<kIndex...>) {
  Random random(seed);
  std::tuple<Holder<Args>...> holders;
  Record record;
  (std::get<kIndex>(holders).prepare(arguments[kIndex], random), ...);
  (std::get<kIndex>(holders).before(arguments[kIndex], record), ...);
  if constexpr (std::is_void<Result>::value) {
    top(std::get<kIndex>(holders).pass()...);
  } else {
    const auto result = top(std::get<kIndex>(holders).pass()...);
    Bits<typename std::decay<Result>::type>::put(record.results, result);
  }
  (std::get<kIndex>(holders).after(arguments[kIndex], record), ...);
  out.push_back(seed);
  for (const Words* part : {&record.scalars, &record.inputs, &record.outputs, &record.results, &record.buffers}) {
    out.insert(out.end(), part->begin(), part->end());
  }
}

template <typename Result, typename... Args>
int run(Result (*top)(Args...), const std::vector<Argument>& arguments, int argc, char** argv) {
  if (argc != 4) return 2;
  const auto cases = std::strtoul(argv[1], nullptr, 10);
  const auto seed = static_cast<std::uint32_t>(std::strtoul(argv[2], nullptr, 10));
  Words out = {static_cast<std::uint32_t>(cases)};
  for (std::uint32_t i = 0; i < cases; ++i) {
    run_case(top, arguments, seed + i, out, std::index_sequence_for<Args...>{});
  }
  std::FILE* file = std::fopen(argv[3], "wb");
  if (file == nullptr) return 2;
  const bool written = std::fwrite(out.data(), sizeof(std::uint32_t), out.size(), file) == out.size();
  return std::fclose(file) == 0 && written ? 0 : 2;
}

}  // namespace openhls
