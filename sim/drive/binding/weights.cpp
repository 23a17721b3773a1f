// SPDX-License-Identifier: Apache-2.0
// The reader of weights as a Python object, the window of neurons in memory, and sums over them.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/filesystem.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <cerrno>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "binding/binding.hpp"
#include "binding/owned.hpp"
#include "engine/fast/neuron_window.hpp"
#include "engine/fast/neurons.hpp"
#include "storage/piece_reader.hpp"

namespace nb = nanobind;

namespace kvdrive {
namespace {

using Buffer = nb::ndarray<std::uint8_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Memory = nb::ndarray<std::uint8_t, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
using Table = nb::ndarray<const std::uint32_t, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
using Offsets = nb::ndarray<const std::int64_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Checksums = nb::ndarray<const std::uint32_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

// A reader that holds the memory of reads in flight, and of those that failed.
class Reader {
 public:
  Reader(const std::filesystem::path& path, std::size_t piece_bytes, unsigned depth)
      : reader_(path, piece_bytes, depth) {}

  PieceReader::Ticket start(std::uint64_t offset, Buffer to, const Checksums& checksums, bool ahead) {
    const std::span memory(reinterpret_cast<std::byte*>(to.data()), to.size());
    const PieceReader::Ticket ticket =
        reader_.start(offset, memory, {checksums.data(), checksums.data() + checksums.size()},
                      ahead ? PieceReader::Urgency::kAhead : PieceReader::Urgency::kNow);
    memory_.emplace(ticket, nb::cast(to));
    return ticket;
  }

  // Starts to read bundle i at offsets[i] into row places[i] of `to`; checksums [bundles, pieces].
  std::vector<PieceReader::Ticket> start_rows(const Offsets& offsets, const Memory& to, const Offsets& places,
                                              const Table& checksums) {
    const std::size_t count = offsets.size(), stride = to.shape(1), pieces = checksums.shape(1);
    if (places.size() != count || checksums.shape(0) != count) {
      throw nb::value_error("each bundle has an offset, a place and checksums");
    }
    const auto rows = static_cast<std::int64_t>(to.shape(0));
    std::vector<PieceReader::Ticket> tickets;
    for (std::size_t i = 0; i < count; ++i) {
      const std::int64_t place = places.data()[i];
      if (place < 0 || place >= rows || offsets.data()[i] < 0)
        throw nb::value_error("a bundle lies outside the memory");
      const std::span row(reinterpret_cast<std::byte*>(to.data()) + static_cast<std::size_t>(place) * stride, stride);
      const std::uint32_t* const sums = checksums.data() + i * pieces;
      tickets.push_back(reader_.start(static_cast<std::uint64_t>(offsets.data()[i]), row, {sums, sums + pieces},
                                      PieceReader::Urgency::kNow));
      memory_.emplace(tickets.back(), nb::cast(to));
    }
    return tickets;
  }

  // Waits for all of these reads: which of them failed first, with what; {-1, 0, -1} if none did.
  std::tuple<std::int64_t, int, std::int64_t> wait_all(const std::vector<PieceReader::Ticket>& tickets) {
    std::tuple<std::int64_t, int, std::int64_t> failed{-1, 0, -1};
    for (std::size_t i = 0; i < tickets.size(); ++i) {
      const auto [error, bad_piece] = wait(tickets[i]);
      if (std::get<0>(failed) < 0 && (error != 0 || bad_piece >= 0)) {
        failed = {static_cast<std::int64_t>(i), error, bad_piece};
      }
    }
    return failed;
  }

  std::pair<int, std::int64_t> wait(PieceReader::Ticket ticket) {
    PieceReader::Outcome outcome;
    {
      const nb::gil_scoped_release release;
      outcome = reader_.wait(ticket);
    }
    // After other errors the kernel may still write into the memory.
    if (outcome.error == 0 || outcome.error == ECANCELED) memory_.erase(ticket);
    return {outcome.error, outcome.bad_piece};
  }

  PieceReader& reader() { return reader_; }

 private:
  std::map<PieceReader::Ticket, nb::object> memory_;  // outlives the reader below
  PieceReader reader_;
};

nb::dict reader_counters(Reader& self) {
  const PieceReader::Counters found = self.reader().counters();
  nb::dict counters;
  counters["reads"] = found.reads;
  counters["bytes"] = found.bytes;
  counters["most_in_flight"] = found.most_in_flight;
  counters["busy_ns"] = found.busy_ns;
  counters["cancelled"] = found.cancelled;
  return counters;
}

using NeuronRows = nb::ndarray<const std::uint8_t, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
using Singles = nb::ndarray<const float, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using OutSingles = nb::ndarray<float, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

fast::NumberFormat number_format(const std::string& name) {
  if (name == "float32") return fast::NumberFormat::kSingle;
  if (name == "bfloat16") return fast::NumberFormat::kBfloat16;
  if (name == "float16") return fast::NumberFormat::kHalf;
  throw nb::value_error("numbers are in float32, bfloat16 or float16");
}

void add_neurons(const NeuronRows& memory, const std::string& format, const Offsets& offsets,
                 const Singles& activations, const std::optional<Singles>& inputs, const OutSingles& out) {
  const fast::ChosenNeurons chosen{.memory = reinterpret_cast<const std::byte*>(memory.data()),
                                   .offsets = offsets.data(),
                                   .activations = activations.data(),
                                   .count = offsets.size(),
                                   .inputs = inputs ? inputs->data() : nullptr,
                                   .hidden = static_cast<unsigned>(out.size()),
                                   .format = number_format(format)};
  if (activations.size() != offsets.size() || (inputs && inputs->size() != out.size())) {
    throw nb::value_error("each neuron has an offset and an activation, and inputs are as many as outputs");
  }
  const auto row = static_cast<std::int64_t>(out.size() * fast::bytes_of(chosen.format) * (inputs ? 2 : 1));
  const auto last = static_cast<std::int64_t>(memory.size()) - row;
  const auto alignment = static_cast<std::int64_t>(fast::bytes_of(chosen.format));
  if (!std::all_of(offsets.data(), offsets.data() + offsets.size(), [last, alignment](std::int64_t offset) {
        return offset >= 0 && offset <= last && offset % alignment == 0;
      })) {
    throw nb::value_error("a neuron lies outside the memory");
  }
  const fast::AddNeurons add = fast::choose_add_neurons();
  const nb::gil_scoped_release release;
  add(chosen, out.data());
}

// A window that holds its memory.
class Window {
 public:
  using Numbers = nb::ndarray<nb::numpy, const std::int64_t, nb::ndim<1>>;

  Window(Memory memory, std::size_t groups, std::int64_t calls)
      : window_({reinterpret_cast<std::byte*>(memory.data()), memory.size()}, memory.shape(1), groups, calls),
        memory_(nb::cast(memory)) {}

  Numbers make_room(const Offsets& groups, const Offsets& briefly) {
    std::vector<std::int64_t> missing;
    {
      const nb::gil_scoped_release release;  // rows move
      missing = window_.make_room(span(groups), span(briefly));
    }
    return array(std::move(missing));
  }

  // Where in the memory the rows of `neurons` begin; `size` neurons of `bytes` each are a group.
  Numbers offsets(const Offsets& neurons, std::int64_t size, std::int64_t bytes) const {
    const auto rows = window_.rows();
    std::vector<std::int64_t> found;
    found.reserve(neurons.size());
    for (const std::int64_t neuron : span(neurons)) {
      const auto group = static_cast<std::size_t>(neuron / size);
      if (neuron < 0 || group >= rows.size() || rows[group] < 0) throw nb::value_error("a neuron is not in memory");
      found.push_back(rows[group] * static_cast<std::int64_t>(window_.row_bytes()) + neuron % size * bytes);
    }
    return array(std::move(found));
  }

  fast::NeuronWindow& window() { return window_; }

 private:
  static fast::NeuronWindow::Groups span(const Offsets& numbers) { return {numbers.data(), numbers.size()}; }

  static Numbers array(std::vector<std::int64_t> numbers) {
    auto owned = std::make_unique<std::vector<std::int64_t>>(std::move(numbers));
    auto* const kept = owned.get();
    const nb::capsule owner(owned.release(), [](void* data) noexcept {
      std::unique_ptr<std::vector<std::int64_t>>(static_cast<std::vector<std::int64_t>*>(data));
    });
    return Numbers(kept->data(), {kept->size()}, owner);
  }

  fast::NeuronWindow window_;
  nb::object memory_;
};

nb::tuple wait_for_pieces(Reader& self, PieceReader::Ticket ticket) {
  const auto [error, bad_piece] = self.wait(ticket);
  return nb::make_tuple(error, bad_piece);
}

}  // namespace

void bind_weights(nb::module_& m) {
  nb::class_<Owned<Reader>>(m, "PieceReader",
                            "Reads checked pieces of a file around the page cache, in a thread of its own; reads that "
                            "somebody waits for go before reads ahead.")
      .def(
          "__init__",
          [](Owned<Reader>* self, const std::filesystem::path& path, std::size_t piece_bytes, unsigned depth) {
            new (self) Owned<Reader>(std::in_place, path, piece_bytes, depth);
          },
          nb::arg("path"), nb::arg("piece_bytes"), nb::arg("depth") = 64,
          "At most `depth` reads are in flight, an eighth of them reads ahead.")
      .def("start", owned(&Reader::start), nb::arg("offset"), nb::arg("to"), nb::arg("checksums"),
           nb::arg("ahead") = false,
           "Start to read whole pages at `offset` into page-aligned memory; one CRC-32C for each piece. Returns a "
           "ticket for `wait`.")
      .def("start_rows", owned(&Reader::start_rows), nb::arg("offsets"), nb::arg("to"), nb::arg("places"),
           nb::arg("checksums"),
           "Start to read a bundle at each of `offsets` [n] into row `places[i]` of page-aligned memory [rows, bytes]; "
           "checksums [n, pieces]. Returns their tickets.")
      .def("wait_all", owned(&Reader::wait_all), nb::arg("tickets"),
           "Wait for all of these reads: the first one that failed, and its outcome as `wait` returns it; (-1, 0, -1) "
           "if "
           "none did.")
      .def(
          "hurry", [](const Owned<Reader>& self, PieceReader::Ticket ticket) { (*self).reader().hurry(ticket); },
          nb::arg("ticket"), "Put a read ahead among those that somebody waits for.")
      .def(
          "cancel",
          [](const Owned<Reader>& self, PieceReader::Ticket ticket) { return (*self).reader().cancel(ticket); },
          nb::arg("ticket"),
          "Drop the pieces of a read that have not begun; False if all have. `wait` then returns ECANCELED, when the "
          "pieces in flight have ended.")
      .def(
          "has_ended",
          [](const Owned<Reader>& self, PieceReader::Ticket ticket) { return (*self).reader().has_ended(ticket); },
          nb::arg("ticket"), "True if `wait` would not wait.")
      .def("wait", owned(&wait_for_pieces), nb::arg("ticket"),
           "Wait for the end of a read: (errno or 0, the first piece with another checksum or -1).")
      .def("counters", owned(&reader_counters),
           "Reads, bytes, the most reads in flight, the time with reads in flight (ns), and pieces "
           "dropped by `cancel`.")
      .def_prop_ro(
          "around_cache", [](const Owned<Reader>& self) { return (*self).reader().around_cache(); },
          "True if reads bypass the page cache.")
      .def_prop_ro(
          "asynchronous", [](const Owned<Reader>& self) { return (*self).reader().asynchronous(); },
          "True if the kernel has an io_uring; otherwise reads follow one another.");
  nb::class_<Window>(m, "NeuronWindow",
                     "Which groups of neurons of a layer are in which rows of a memory [rows, bytes]; the first "
                     "`num_used` rows are taken.")
      .def(nb::init<Memory, std::size_t, std::int64_t>(), nb::arg("memory"), nb::arg("groups"), nb::arg("calls"),
           "Groups that none of the last `calls` calls used leave.")
      .def("make_room", &Window::make_room, nb::arg("groups"), nb::arg("briefly"),
           "Begin a call that uses these groups, each once. Others leave as far as necessary; rows are copied. Returns "
           "the missing groups, whose rows begin behind `num_used`: read them and call `append`. `briefly`: those that "
           "this call does not count as a use of.")
      .def(
          "append", [](Window& self) { self.window().append(); }, "The missing groups of `make_room` are in memory.")
      .def("offsets", &Window::offsets, nb::arg("neurons"), nb::arg("size"), nb::arg("bytes"),
           "Where the rows of these neurons begin, in bytes. A group has `size` neurons of `bytes` each.")
      .def_prop_ro("num_used", [](Window& self) { return self.window().num_used(); })
      .def_prop_ro(
          "pointer",
          [](nb::handle self) {
            const auto numbers = nb::cast<Window&>(self).window().pointer();
            return Window::Numbers(numbers.data(), {numbers.size()}, self);
          },
          "The groups in the rows that are taken: a view, until the next call of `make_room` or `append`.")
      .def_prop_ro(
          "rows",
          [](nb::handle self) {
            const auto numbers = nb::cast<Window&>(self).window().rows();
            return Window::Numbers(numbers.data(), {numbers.size()}, self);
          },
          "The row of each group of the layer, -1 outside memory: a view.");
  m.def(
      "add_neurons", &add_neurons, nb::arg("memory"), nb::arg("format"), nb::arg("offsets"), nb::arg("activations"),
      nb::arg("inputs").none(), nb::arg("out"),
      "Add chosen neurons of one token to `out` [hidden], in binary32 as engine/fast/neurons.hpp says. Each has a row "
      "at its byte offset in `memory`: up and down, or down alone without `inputs` [hidden].");
}

}  // namespace kvdrive
