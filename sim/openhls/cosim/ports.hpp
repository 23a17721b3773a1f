// SPDX-License-Identifier: Apache-2.0
// Ports of a verilated model, of any width, as 32-bit words with the low one first.
#pragma once

#include <verilated.h>

#include <cstdint>
#include <functional>
#include <vector>

namespace openhls {

using Words = std::vector<std::uint32_t>;

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

// A pin, or a register behind AXI4-Lite, whose access takes cycles.
struct Port {
  const char* name = "";
  int width = 0;
  std::function<void(const std::uint32_t*)> put;
  std::function<void(std::uint32_t*)> get;
  std::size_t words() const { return static_cast<std::size_t>((width + 31) / 32); }
};

struct StreamPorts {
  Port data;
  CData* valid;
  CData* ready;
};

template <typename T>
Port port(const char* name, int width, T& net) {
  return {name, width, [&net](const std::uint32_t* words) { put(net, words); },
          [&net](std::uint32_t* words) { get(net, words); }};
}

// Several pins as one, the first one lowest.
inline Port joined(const char* name, std::vector<Port> parts) {
  int width = 0;
  for (const Port& part : parts) width += part.width;
  const auto bit = [](const Words& words, int at) { return words[static_cast<std::size_t>(at / 32)] >> at % 32 & 1; };
  const auto count = static_cast<std::size_t>((width + 31) / 32);
  return {name, width,
          [parts, bit, count](const std::uint32_t* from) {
            const Words all(from, from + count);
            int low = 0;
            for (const Port& part : parts) {
              Words words(part.words() + 1);
              for (int i = 0; i < part.width; ++i)
                words[static_cast<std::size_t>(i / 32)] |= bit(all, low + i) << i % 32;
              part.put(words.data());
              low += part.width;
            }
          },
          [parts, bit, count](std::uint32_t* to) {
            for (std::size_t i = 0; i < count; ++i) to[i] = 0;
            int low = 0;
            for (const Port& part : parts) {
              Words words(part.words() + 1);
              part.get(words.data());
              for (int i = 0; i < part.width; ++i) to[(low + i) / 32] |= bit(words, i) << (low + i) % 32;
              low += part.width;
            }
          }};
}

}  // namespace openhls
