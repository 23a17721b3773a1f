// SPDX-License-Identifier: Apache-2.0
// Generated from bitstreams/attention_g*.json and the kernel.toml of group_choice, attention_codes and ffn by
// scripts/engine_cycles.py.
#pragma once

#include <cstdint>

namespace kvdrive {

// Variables of the formula, as hls/attention/kernel.toml explains them.
struct CycleVariables {
  std::int64_t mode, g, d, tokens, inline_tokens, r, k_top, digits;
};

constexpr std::int64_t divide_up(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

// Cycles of an attention job: the iterations of its loops.
constexpr std::int64_t attention_cycles(const CycleVariables& job) {
  const auto& [mode, g, d, tokens, inline_tokens, r, k_top, digits] = job;
  return (5 + ((mode == 0 || mode == 1 || mode == 4) ? ((((((g * d) / 32) * (mode == 1 ? 3 : 2)) + inline_tokens) +
      ((((2 * tokens) + inline_tokens) * d) / 32)) + (d > 64 ? d : 128)) : (mode == 2 ? (((((g * d) / 32) +
      (divide_up(d, 16) * (g == 1 ? 2 : (g == 2 ? 4 : (g <= 5 ? 8 : 16))))) + (r <= 32 ? (d + r) : ((128 + (digits *
      128)) + ((digits - 1) * divide_up(d, 16))))) + (g * d)) : ((((((((((g * d) / 32) + d) + ((g + 1) *
      divide_up(r, 32))) + inline_tokens) + (32 * (r <= 16 ? divide_up(tokens, 64) : (divide_up(tokens, 32) *
      divide_up(r, 32))))) + 31) + (divide_up((tokens + inline_tokens), 16) * (g == 1 ? 2 : (g == 2 ? 6 : (g <= 5 ?
      12 : 24))))) + ((k_top <= 32 && tokens <= 512) ? (tokens + k_top) : ((128 + (digits * 128)) + ((digits - 1) *
      divide_up(tokens, 16))))) + divide_up(tokens, 512)))));
}

// Variables of the formula, as hls/group_choice/kernel.toml explains them.
struct ChoiceVariables {
  std::int64_t g, d, tokens, inline_tokens, units;
};

// Cycles of a choice of groups.
constexpr std::int64_t choice_cycles(const ChoiceVariables& job) {
  const auto& [g, d, tokens, inline_tokens, units] = job;
  return ((((((((376 + (((g * d) / 32) * 8)) + inline_tokens) + ((tokens / 32) * (d < 128 ? 18 : ((5 * d) / 32)))) +
      (d == 256 ? 72 : 36)) + divide_up((tokens + inline_tokens), 4)) + (25 * g)) + (divide_up(units, 16) * 32)) +
      (divide_up(units, 512) * 513));
}

// Variables of the formula, as hls/attention_codes/kernel.toml explains them.
struct CodeVariables {
  std::int64_t mode, bits, g, d, tokens, inline_tokens;
};

// Cycles of an attention job over codes.
constexpr std::int64_t code_cycles(const CodeVariables& job) {
  const auto& [mode, bits, g, d, tokens, inline_tokens] = job;
  return ((((((((bits == 4 ? 194 : 183) + (5 * g)) + (((g * d) / 32) * (mode == 1 ? 3 : 2))) + inline_tokens) + ((2
      * tokens) * ((d * bits) > 512 ? ((d * bits) / 512) : 1))) + ((inline_tokens * d) / 32)) + ((d * bits) <= 512 ?
      80 : ((d * bits) == 2048 ? 128 : 96))) + ((d * bits) < 512 ? (16 * (g - 1)) : 0));
}

// Variables of the formula, as hls/ffn/kernel.toml explains them.
struct FfnVariables {
  std::int64_t hidden, matrices, neurons;
};

// Cycles of a call of ffn.
constexpr std::int64_t ffn_cycles(const FfnVariables& job) {
  const auto& [hidden, matrices, neurons] = job;
  return (((((neurons * matrices) * hidden) / 32) + (hidden / 4)) + (matrices > 1 ? (15 + (hidden / 32)) : 0)) + 90;
}

}  // namespace kvdrive
