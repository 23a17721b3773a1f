// SPDX-License-Identifier: Apache-2.0
// Stored rows of K and V as numpy arrays.
#include "formats.hpp"

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <algorithm>
#include <cstdint>
#include <span>

#include "binding/binding.hpp"
#include "engine/shapes.hpp"

namespace nb = nanobind;

namespace kvdrive {
namespace {

using Halves = nb::ndarray<const std::uint16_t, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
using OutHalves = nb::ndarray<std::uint16_t, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
using Rows = nb::ndarray<const std::uint8_t, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
using OutRows = nb::ndarray<std::uint8_t, nb::ndim<2>, nb::c_contig, nb::device::cpu>;

RowFormat format_of(std::uint32_t number, std::size_t head_dim) {
  if (number > nvme::kFp8) throw nb::value_error("no row format has this number");
  if (!serves_head_dim(static_cast<std::uint32_t>(head_dim))) throw nb::value_error("no head has this dimension");
  return static_cast<RowFormat>(number);
}

void require_shapes(RowFormat format, std::size_t rows, std::size_t head_dim, const auto& stored) {
  if (stored.shape(0) != rows || stored.shape(1) != row_bytes_of(format, static_cast<std::uint32_t>(head_dim))) {
    throw nb::value_error("the arrays do not fit each other");
  }
}

void encode(const Halves& halves, std::uint32_t number, const OutRows& out) {
  const RowFormat format = format_of(number, halves.shape(1));
  require_shapes(format, halves.shape(0), halves.shape(1), out);
  nb::gil_scoped_release release;
  encode_rows(format, static_cast<std::uint32_t>(halves.shape(1)), halves.data(), halves.shape(0),
              reinterpret_cast<std::byte*>(out.data()));
}

void decode(const Rows& rows, std::uint32_t number, const OutHalves& out) {
  const RowFormat format = format_of(number, out.shape(1));
  require_shapes(format, out.shape(0), out.shape(1), rows);
  nb::gil_scoped_release release;
  decode_rows(format, static_cast<std::uint32_t>(out.shape(1)),
              {reinterpret_cast<const std::byte*>(rows.data()), rows.size()}, out.data());
}

bool valid(const Rows& rows, std::uint32_t number, std::uint32_t head_dim) {
  const RowFormat format = format_of(number, head_dim);
  require_shapes(format, rows.shape(0), head_dim, rows);
  return valid_rows(format, head_dim, {reinterpret_cast<const std::byte*>(rows.data()), rows.size()});
}

std::uint32_t row_bytes(std::uint32_t number, std::uint32_t head_dim) {
  return row_bytes_of(format_of(number, head_dim), head_dim);
}

nb::tuple largest_and_zeros(const nb::ndarray<nb::ro, nb::c_contig, nb::device::cpu>& halves) {
  if (halves.itemsize() != sizeof(std::uint16_t)) throw nb::value_error("a binary16 number has two bytes");
  constexpr std::size_t kAtOnce = 4096;  // few enough to count them in 16 bits, in which the loop is vectorised
  std::span left(static_cast<const std::int16_t*>(halves.data()), halves.size());
  std::int16_t largest = 0;
  std::size_t zeros = 0;
  {
    nb::gil_scoped_release release;  // K and V of a prompt are megabytes
    while (!left.empty()) {
      const auto part = left.first(std::min(kAtOnce, left.size()));
      std::int16_t zeros_of_part = 0;
      for (const std::int16_t pattern : part) {
        const auto magnitude = static_cast<std::int16_t>(pattern & 0x7fff);
        largest = std::max(largest, magnitude);
        zeros_of_part = static_cast<std::int16_t>(zeros_of_part + (magnitude == 0 ? 1 : 0));
      }
      zeros += static_cast<std::size_t>(zeros_of_part);
      left = left.subspan(part.size());
    }
  }
  return nb::make_tuple(largest, zeros);
}

}  // namespace

void bind_formats(nb::module_& m) {
  m.def("encode_rows", &encode, nb::arg("halves"), nb::arg("format"), nb::arg("out"),
        "Writes rows [n, d] of finite binary16 patterns to `out` uint8 [n, row_bytes(format, d)]; a RowFormat.");
  m.def("decode_rows", &decode, nb::arg("rows"), nb::arg("format"), nb::arg("out"),
        "Writes the numbers of stored rows uint8 [n, row_bytes] to `out` [n, d], binary16 patterns.");
  m.def("valid_rows", &valid, nb::arg("rows"), nb::arg("format"), nb::arg("head_dim"),
        "True if every code of the rows stands for a finite number.");
  m.def("largest_and_zeros", &largest_and_zeros, nb::arg("halves"),
        "The bits of the largest magnitude of a float16 array, and how many numbers are zero.");
  m.def("row_bytes", &row_bytes, nb::arg("format"), nb::arg("head_dim"), "Bytes of a stored row.");
}

}  // namespace kvdrive
