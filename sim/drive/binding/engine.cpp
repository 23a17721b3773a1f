// SPDX-License-Identifier: Apache-2.0
// Engines as Python objects. Arrays are numpy arrays in C order. Lengths that the C++ code would trust are checked
// here.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/unique_ptr.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <optional>
#include <stdexcept>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "binding/arrays.hpp"
#include "binding/binding.hpp"
#include "common/abi.hpp"
#include "engine/fast/fast_engine.hpp"
#include "engine/hls/kernels.hpp"
#include "engine/hls/library.hpp"
#include "engine/rtl/rtl_engine.hpp"
#include "engine/single_kernels.hpp"
#include "engine/xrt/xrt_engine.hpp"

namespace nb = nanobind;

namespace kvdrive {
namespace {

void require(bool condition, const char* message) {
  if (!condition) throw nb::value_error(message);
}

std::uint32_t attention(SingleKernels& engine,
                        nb::ndarray<std::uint8_t, nb::ndim<1>, nb::c_contig, nb::device::cpu> memory,
                        std::uint64_t job) {
  require(reinterpret_cast<std::uintptr_t>(memory.data()) % abi::kBeatBytes == 0, "memory must be 64-byte aligned");
  const std::span bytes(reinterpret_cast<std::byte*>(memory.data()), memory.size());
  nb::gil_scoped_release release;
  return engine.attention(bytes, job);
}

auto argtopk(SingleKernels& engine, nb::ndarray<nb::ndim<1>, nb::c_contig, nb::device::cpu, nb::ro> keys,
             std::uint32_t k) {
  const bool magnitude = keys.dtype() == nb::dtype<std::uint16_t>();
  require(magnitude || keys.dtype() == nb::dtype<std::uint32_t>(),
          "keys must be uint32 (binary32 patterns) or uint16 (binary16 patterns)");
  require(keys.size() <= UINT32_MAX, "too many keys");
  const auto type = magnitude ? abi::kMagnitude16 : abi::kBinary32;
  ArgtopkResult result;
  {
    nb::gil_scoped_release release;
    result = engine.argtopk(keys.data(), static_cast<std::uint32_t>(keys.size()), k, type);
  }
  return std::tuple(result.status, to_numpy(std::move(result.indices)), to_numpy(std::move(result.bitmap)));
}

auto page_filter(SingleKernels& engine, Bytes pages, Bytes bitmap, std::uint32_t rows, std::uint32_t row_bytes,
                 std::uint32_t page_bytes) {
  require(bitmap.size() >= (std::size_t{rows} + 7) / 8, "the bitmap is shorter than the number of rows");
  FilterResult result;
  {
    nb::gil_scoped_release release;
    result =
        engine.page_filter({pages.data(), pages.size()}, {bitmap.data(), bitmap.size()}, rows, row_bytes, page_bytes);
  }
  return std::tuple(result.status, to_numpy(std::move(result.rows)), result.rows_seen, result.rows_kept,
                    to_numpy(std::move(result.page_needed)));
}

auto gemv_rows(SingleKernels& engine, In<std::uint16_t, 2> q, In<std::uint16_t, 2> k) {
  require(q.shape(1) == k.shape(1), "q and k differ in their head dimension");
  const std::size_t g = q.shape(0), d = q.shape(1), tokens = k.shape(0);
  require(tokens <= abi::kMaxTokens && g <= abi::kMaxCommandGroup && d <= abi::kMaxHeadDim, "an array is too large");
  std::vector<std::uint32_t> dots(g * tokens);
  std::uint32_t status = 0;
  {
    nb::gil_scoped_release release;
    status = engine.gemv_rows(q.data(), k.data(), static_cast<std::uint32_t>(g), static_cast<std::uint32_t>(d),
                              static_cast<std::uint32_t>(tokens), dots.data());
  }
  return std::tuple(status, to_numpy<std::uint32_t, 2>(std::move(dots), {g, tokens}));
}

// Scores as the drive computes them: the exact dot products rounded to binary32, times the scale in binary32, then as
// Q12.20, which saturates (docs/arithmetic.md).
auto scores(SingleKernels& engine, In<std::uint16_t, 3> q, In<std::uint16_t, 3> k, std::uint32_t scale_log2e) {
  const std::size_t heads = q.shape(0), g = q.shape(1), d = q.shape(2), tokens = k.shape(1), count = g * tokens;
  require(k.shape(0) == heads && k.shape(2) == d, "q and k differ in their heads or in their head dimension");
  require(tokens <= abi::kMaxTokens && g <= abi::kMaxCommandGroup && d <= abi::kMaxHeadDim, "an array is too large");
  const auto scale = std::bit_cast<float>(scale_log2e);
  require(std::isfinite(scale), "the scale is not finite");
  std::vector<std::int32_t> found(heads * count);
  std::uint32_t status = 0;
  {
    nb::gil_scoped_release release;
    constexpr double kOne = 1 << abi::kScoreFractionBits;
    std::vector<std::uint32_t> dots(count);
    for (std::size_t head = 0; head < heads; ++head) {
      status |= engine.gemv_rows(q.data() + head * g * d, k.data() + head * tokens * d, static_cast<std::uint32_t>(g),
                                 static_cast<std::uint32_t>(d), static_cast<std::uint32_t>(tokens), dots.data());
      for (std::size_t i = 0; i < count; ++i) {
        const float scaled = std::bit_cast<float>(dots[i]) * scale;
        const double fixed = std::nearbyint(static_cast<double>(scaled) * kOne);
        found[head * count + i] = static_cast<std::int32_t>(std::clamp(fixed, -0x1p31, 0x1p31 - 1));
      }
    }
  }
  require(status == 0, "q or k holds an Inf or NaN, or has no shape of the kernels");
  return to_numpy<std::int32_t, 3>(std::move(found), {heads, g, tokens});
}

auto gemv_columns(SingleKernels& engine, In<std::uint16_t, 2> q, In<std::uint16_t, 3> k, std::uint32_t tokens) {
  const std::size_t g = q.shape(0), r = q.shape(1);
  require(k.shape(1) == r && k.shape(2) == abi::kLanes, "k must be [blocks][r][32] with the r of q");
  require(tokens <= abi::kMaxTokens && g <= abi::kMaxCommandGroup && r <= abi::kMaxHeadDim, "an array is too large");
  require(k.shape(0) == (tokens + abi::kLanes - 1) / abi::kLanes, "k must hold ceil(tokens / 32) blocks");
  std::vector<std::uint32_t> dots(g * tokens);
  std::uint32_t status = 0;
  {
    nb::gil_scoped_release release;
    status = engine.gemv_columns(q.data(), k.data(), static_cast<std::uint32_t>(g), static_cast<std::uint32_t>(r),
                                 tokens, dots.data());
  }
  return std::tuple(status, to_numpy<std::uint32_t, 2>(std::move(dots), {g, tokens}));
}

auto gemv_accumulate(SingleKernels& engine, In<std::uint32_t, 2> p, In<std::uint16_t, 2> v) {
  require(p.shape(1) == v.shape(0), "p and v differ in their number of tokens");
  const std::size_t g = p.shape(0), tokens = v.shape(0), d = v.shape(1);
  require(tokens <= abi::kMaxTokens && g <= abi::kMaxCommandGroup && d <= abi::kMaxHeadDim, "an array is too large");
  std::vector<Wide> acc(g * d);
  std::uint32_t status = 0;
  {
    nb::gil_scoped_release release;
    status = engine.gemv_accumulate(p.data(), v.data(), static_cast<std::uint32_t>(g), static_cast<std::uint32_t>(d),
                                    static_cast<std::uint32_t>(tokens), acc.data());
  }
  std::vector<std::int64_t> words(acc.size() * 2);
  std::memcpy(words.data(), acc.data(), words.size() * sizeof(std::int64_t));
  return std::tuple(status, to_numpy<std::int64_t, 3>(std::move(words), {g, d, 2}));
}

auto softmax(SingleKernels& engine, In<std::int32_t, 1> dense, std::optional<Bytes> valid,
             std::optional<In<std::int32_t, 1>> tail) {
  require(!valid || valid->size() >= (dense.size() + 7) / 8, "valid is shorter than the dense scores");
  const std::span<const std::int32_t> tail_scores =
      tail ? std::span(tail->data(), tail->size()) : std::span<const std::int32_t>();
  SoftmaxResult result;
  {
    nb::gil_scoped_release release;
    result = engine.softmax({dense.data(), dense.size()}, valid ? valid->data() : nullptr, tail_scores);
  }
  return std::tuple(result.status, to_numpy(std::move(result.p)), result.max, result.sum);
}

}  // namespace

std::unique_ptr<Engine> make_engine(const std::string& name, int threads) {
  require(threads >= 1 && threads <= 256, "threads must be between 1 and 256");
  if (name == "hls") return make_hls_engine();
  if (name == "fast") return make_fast_engine(threads);
  if (name == "rtl") {  // the folder of sim/rtl's builds, unless the environment names another
    const char* folder = std::getenv("KVDRIVE_RTL");
    return std::make_unique<RtlEngine>(folder ? folder : "build/rtl");
  }
  if (name == "xrt" || name.starts_with("xrt:")) return make_xrt_engine(name);
  throw nb::value_error(("unknown engine '" + name + "': choose hls, fast, rtl or xrt").c_str());
}

std::unique_ptr<SingleKernels> make_kernels(const std::string& name, int threads) {
  require(threads >= 1 && threads <= 256, "threads must be between 1 and 256");
  if (name == "hls") return make_hls_kernels();
  if (name == "fast") return make_fast_kernels(threads);
  throw nb::value_error(("engine '" + name + "' has no single kernels: choose hls or fast").c_str());
}

namespace {

// In a source tree, the tree's own tool makes kernels when they are first used. A wheel has them.
void find_maker() {
  const nb::object where = nb::module_::import_("kvdrive.tree").attr("ROOT");
  const std::string root = nb::str(where).c_str();
  const nb::object python = nb::module_::import_("sys").attr("executable");
  const std::filesystem::path tool = std::filesystem::path(root) / "sim/compiled";
  if (!python.is_none() && std::filesystem::exists(tool)) {
    hls::set_maker({nb::cast<std::string>(python), tool.string()});
  }
}

// A kernel that cannot be used is one of the package's own errors.
void raise_own_error(const std::exception_ptr& thrown, void*) {
  try {
    std::rethrow_exception(thrown);
  } catch (const hls::KernelMissing& missing) {
    const nb::object error = nb::module_::import_("kvdrive.errors").attr("TargetError");
    PyErr_SetString(error.ptr(), missing.what());
  }
}

}  // namespace

void bind_engine(nb::module_& m) {
  find_maker();
  nb::register_exception_translator(raise_own_error);
  m.def("prepare_attention", &hls::prepare_attention, nb::arg("group"), nb::call_guard<nb::gil_scoped_release>(),
        "Load the compiled kernels that attention with `group` query heads per KV head needs; make those missing.");
  nb::class_<SingleKernels>(m, "Engine",
                            "An engine's single kernels; every engine gives the same bits (docs/arithmetic.md).")
      .def(nb::new_(&make_kernels), nb::arg("name"), nb::arg("threads") = 1)
      .def_prop_ro("name", &SingleKernels::name)
      .def("attention", &attention, nb::arg("memory"), nb::arg("job"),
           "Run the AttentionJob at byte `job` of `memory` (uint8, 64-byte aligned); returns its status word.")
      .def("argtopk", &argtopk, nb::arg("keys"), nb::arg("k"), "-> (status, indices, bitmap)")
      .def("page_filter", &page_filter, nb::arg("pages"), nb::arg("bitmap"), nb::arg("rows"), nb::arg("row_bytes"),
           nb::arg("page_bytes"), "-> (status, rows, rows_seen, rows_kept, page_needed)")
      .def("gemv_rows", &gemv_rows, nb::arg("q"), nb::arg("k"), "binary16 patterns -> (status, dots [g, tokens])")
      .def("scores", &scores, nb::arg("q"), nb::arg("k"), nb::arg("scale_log2e"),
           "binary16 patterns q [heads, g, d], k [heads, tokens, d] -> int32 [heads, g, tokens], Q12.20")
      .def("gemv_columns", &gemv_columns, nb::arg("q"), nb::arg("k"), nb::arg("tokens"),
           "binary16 patterns -> (status, dots [g, tokens])")
      .def("gemv_accumulate", &gemv_accumulate, nb::arg("p"), nb::arg("v"), "-> (status, acc [g, d, 2])")
      .def("softmax", &softmax, nb::arg("dense"), nb::arg("valid") = nb::none(), nb::arg("tail") = nb::none(),
           "-> (status, p, max, sum)");
  nb::class_<fast::FastEngine, SingleKernels>(m, "FastEngine", "What Engine(\"fast\") gives.")
      .def_prop_ro("isa", &fast::FastEngine::isa, "the instruction set in use: scalar, avx2 or avx512")
      .def("multiply_adds", &fast::FastEngine::multiply_adds, nb::arg("count"),
           nb::call_guard<nb::gil_scoped_release>(),
           "Compute at least `count` multiply-adds in registers, in this thread -> how many; a bound for benchmarks.")
      .def_prop_ro("dots_doubted",
                   [](const fast::FastEngine& engine) { return engine.statistics().dots_doubted.load(); })
      .def_prop_ro("dots_exact", [](const fast::FastEngine& engine) { return engine.statistics().dots_exact.load(); })
      .def_prop_ro("outputs_exact",
                   [](const fast::FastEngine& engine) { return engine.statistics().outputs_exact.load(); });
}

}  // namespace kvdrive
