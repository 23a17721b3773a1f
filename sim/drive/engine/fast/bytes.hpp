// SPDX-License-Identifier: Apache-2.0
// Registers of bytes that turn rows in 8 and 4 bits into words of four codes (pack_impl.hpp). The portable one has 16
// bytes, those of bytes_avx2.hpp and bytes_avx512.hpp have 32 and 64. A register is `kRuns` runs of 16 bytes, and
// interleaving stays inside a run.
#pragma once

#include <cstddef>
#include <cstdint>

namespace kvdrive::fast {
namespace {

struct PortableBytes {
  static constexpr unsigned kRuns = 1;
  static constexpr unsigned kRows = 1;  // rows of a part in a register; they are four tokens apart
  typedef std::uint8_t Register __attribute__((vector_size(16)));
  typedef std::uint16_t Pairs __attribute__((vector_size(16)));
  typedef std::uint32_t Quads __attribute__((vector_size(16)));
  typedef std::uint64_t Octets __attribute__((vector_size(16)));

  static Register load(const void* from) {
    Register all;
    __builtin_memcpy(&all, from, sizeof all);
    return all;
  }
  static void store(void* to, Register all) { __builtin_memcpy(to, &all, sizeof all); }
  // Run i comes from from[4 * i].
  static Register load_runs(const std::byte* const* from, unsigned byte) { return load(from[0] + byte); }

  static Register flip_signs(Register x) { return x ^ 0x80; }
  static Register low_nibbles(Register x) { return x & 0x0f; }
  static Register high_nibbles(Register x) { return x >> 4; }
  // Codes of a part that begins at `byte` of from[0], from[4] and so on: those in register i of each row.
  static Register load_part(const std::byte* const* from, unsigned byte, unsigned i) {
    return load(from[0] + byte + sizeof(Register) * i);
  }
  static Register nibbles_of_part(const std::byte* const* from, unsigned byte, unsigned i) {
    const Register both = load(from[0] + byte);
    return i == 0 ? low_nibbles(both) : high_nibbles(both);
  }
  // The bytes of each row times its factor: factor[0], factor[4] and so on. No product exceeds 255.
  static Register times(Register x, const std::uint16_t* factor) { return (Register)((Pairs)x * *factor); }

  // The first and the second halves of a's and b's runs, element by element in turn.
  static Register low_bytes(Register a, Register b) {
    return __builtin_shufflevector(a, b, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
  }
  static Register high_bytes(Register a, Register b) {
    return __builtin_shufflevector(a, b, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31);
  }
  static Register low_pairs(Register a, Register b) {
    return (Register)__builtin_shufflevector((Pairs)a, (Pairs)b, 0, 8, 1, 9, 2, 10, 3, 11);
  }
  static Register high_pairs(Register a, Register b) {
    return (Register)__builtin_shufflevector((Pairs)a, (Pairs)b, 4, 12, 5, 13, 6, 14, 7, 15);
  }
  static Register low_quads(Register a, Register b) {
    return (Register)__builtin_shufflevector((Quads)a, (Quads)b, 0, 4, 1, 5);
  }
  static Register high_quads(Register a, Register b) {
    return (Register)__builtin_shufflevector((Quads)a, (Quads)b, 2, 6, 3, 7);
  }
  static Register low_octets(Register a, Register b) {
    return (Register)__builtin_shufflevector((Octets)a, (Octets)b, 0, 2);
  }
  static Register high_octets(Register a, Register b) {
    return (Register)__builtin_shufflevector((Octets)a, (Octets)b, 1, 3);
  }

  // Deals the fours of bytes of each row to its runs in turn: the first fours of all runs are neighbours, then the
  // second ones.
  static Register deal(Register x) { return x; }
  // Stores the rows of a register at `to`, `to` + stride and so on.
  static void store_rows(std::uint32_t* to, std::size_t, Register all) { store(to, all); }
  // Byte order[i] of each run at place i of it.
  template <int... order>
  static Register reorder(Register x) {
    return __builtin_shufflevector(x, x, order...);
  }
};

}  // namespace
}  // namespace kvdrive::fast
