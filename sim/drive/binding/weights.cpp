// SPDX-License-Identifier: Apache-2.0
// The reader of weights as a Python object.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/filesystem.h>

#include <cerrno>
#include <map>
#include <span>
#include <utility>
#include <vector>

#include "binding/binding.hpp"
#include "storage/piece_reader.hpp"

namespace nb = nanobind;

namespace kvdrive {
namespace {

using Bytes = nb::ndarray<std::uint8_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Checksums = nb::ndarray<const std::uint32_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

// A reader that holds the memory of reads in flight, and of those that failed.
class Reader {
 public:
  Reader(const std::filesystem::path& path, std::size_t piece_bytes, unsigned depth)
      : reader_(path, piece_bytes, depth) {}

  PieceReader::Ticket start(std::uint64_t offset, Bytes to, const Checksums& checksums, bool ahead) {
    const std::span memory(reinterpret_cast<std::byte*>(to.data()), to.size());
    const PieceReader::Ticket ticket =
        reader_.start(offset, memory, {checksums.data(), checksums.data() + checksums.size()},
                      ahead ? PieceReader::Urgency::kAhead : PieceReader::Urgency::kNow);
    memory_.emplace(ticket, std::move(to));
    return ticket;
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
  std::map<PieceReader::Ticket, Bytes> memory_;  // outlives the reader below
  PieceReader reader_;
};

nb::dict counters(Reader& self) {
  const PieceReader::Counters found = self.reader().counters();
  nb::dict counters;
  counters["reads"] = found.reads;
  counters["bytes"] = found.bytes;
  counters["most_in_flight"] = found.most_in_flight;
  counters["busy_ns"] = found.busy_ns;
  counters["cancelled"] = found.cancelled;
  return counters;
}

nb::tuple wait(Reader& self, PieceReader::Ticket ticket) {
  const auto [error, bad_piece] = self.wait(ticket);
  return nb::make_tuple(error, bad_piece);
}

}  // namespace

void bind_weights(nb::module_& m) {
  nb::class_<Reader>(m, "PieceReader",
                     "Reads checked pieces of a file around the page cache, in a thread of its own; reads that "
                     "somebody waits for go before reads ahead.")
      .def(nb::init<const std::filesystem::path&, std::size_t, unsigned>(), nb::arg("path"), nb::arg("piece_bytes"),
           nb::arg("depth") = 64, "At most `depth` reads are in flight, an eighth of them reads ahead.")
      .def("start", &Reader::start, nb::arg("offset"), nb::arg("to"), nb::arg("checksums"), nb::arg("ahead") = false,
           "Start to read whole pages at `offset` into page-aligned memory; one CRC-32C for each piece. Returns a "
           "ticket for `wait`.")
      .def(
          "hurry", [](Reader& self, PieceReader::Ticket ticket) { self.reader().hurry(ticket); }, nb::arg("ticket"),
          "Put a read ahead among those that somebody waits for.")
      .def(
          "cancel", [](Reader& self, PieceReader::Ticket ticket) { return self.reader().cancel(ticket); },
          nb::arg("ticket"),
          "Drop the pieces of a read that have not begun; False if all have. `wait` then returns ECANCELED, when the "
          "pieces in flight have ended.")
      .def("wait", &wait, nb::arg("ticket"),
           "Wait for the end of a read: (errno or 0, the first piece with another checksum or -1).")
      .def("counters", &counters,
           "Reads, bytes, the most reads in flight, the time with reads in flight (ns), and pieces "
           "dropped by `cancel`.")
      .def_prop_ro(
          "around_cache", [](Reader& self) { return self.reader().around_cache(); },
          "True if reads bypass the page cache.")
      .def_prop_ro(
          "asynchronous", [](Reader& self) { return self.reader().asynchronous(); },
          "True if the kernel has an io_uring; otherwise reads follow one another.");
}

}  // namespace kvdrive
