// SPDX-License-Identifier: Apache-2.0
// Prints what csim::Reader finds in a file of cases; with an array name and a type it prints that array's values.
#include <iostream>

#include "common/csim.hpp"

namespace {

using kvdrive::csim::Case;

template <typename T>
void print(const std::vector<T>& values) {
  for (const T value : values) std::cout << ' ' << +value;
  std::cout << '\n';
}

void print_as(const Case& item, const std::string& name, const std::string& type) {
  std::cout << item.label() << ':';
  for (const std::size_t extent : item.shape(name)) std::cout << ' ' << extent;
  std::cout << " =";
  if (type == "u8") return print(item.array<std::uint8_t>(name));
  if (type == "u16") return print(item.array<std::uint16_t>(name));
  if (type == "u32") return print(item.array<std::uint32_t>(name));
  if (type == "i32") return print(item.array<std::int32_t>(name));
  if (type == "i64") return print(item.array<std::int64_t>(name));
  if (type == "int") return print(std::vector<int>{item.scalar<int>(name)});
  if (type == "beats") {
    const auto beats = item.beats(name);
    return print(kvdrive::csim::from_beats<std::uint8_t>(beats, 64 * beats.size()));
  }
  throw std::invalid_argument(type);
}

}  // namespace

int main(int argc, char** argv) {
  try {
    if (argc != 4) throw std::invalid_argument("usage: container CASES ARRAY TYPE");
    kvdrive::csim::Reader reader(argv[1]);
    for (Case item; reader.next(item);) print_as(item, argv[2], argv[3]);
    return 0;
  } catch (const std::exception& error) {
    std::cout << error.what() << '\n';
    return 2;
  }
}
