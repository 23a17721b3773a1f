// SPDX-License-Identifier: Apache-2.0
// hls::burst_maxi for the reference run with g++: requests name elements, which reads and writes then take in order.
#pragma once

#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <map>

namespace hls {

template <typename T>
class burst_maxi {
 public:
  burst_maxi(T* data) : data_(data) {}
  T* data() const { return data_; }

  void read_request(std::size_t offset, std::size_t count) { add(pending().reads, offset, count); }
  T read() { return data_[next(pending().reads, "read() beyond the requests")]; }
  void write_request(std::size_t offset, std::size_t count) {
    add(pending().writes, offset, count);
    ++pending().answers;
  }
  void write(const T& value) { data_[next(pending().writes, "write() beyond the requests")] = value; }
  void write_response() {
    if (!pending().writes.empty() || pending().answers-- == 0) fail("write_response() before the words of a request");
  }

 private:
  struct Pending {
    std::deque<std::size_t> reads, writes;
    std::size_t answers = 0;
  };
  // By the place in memory: a copy of the object has the same requests.
  Pending& pending() const {
    static std::map<const void*, Pending> all;
    return all[data_];
  }
  static void add(std::deque<std::size_t>& places, std::size_t offset, std::size_t count) {
    if (count == 0) fail("a request for no element");
    for (std::size_t i = 0; i < count; ++i) places.push_back(offset + i);
  }
  static std::size_t next(std::deque<std::size_t>& places, const char* what) {
    if (places.empty()) fail(what);
    const std::size_t place = places.front();
    places.pop_front();
    return place;
  }
  [[noreturn]] static void fail(const char* what) {
    std::fprintf(stderr, "reference: burst_maxi: %s\n", what);
    std::exit(3);
  }

  T* data_;
};

}  // namespace hls
