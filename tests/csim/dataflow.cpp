// SPDX-License-Identifier: Apache-2.0
// Small dataflow programs; test_dataflow.py runs each by name and reads what it prints.
#include "common/dataflow.hpp"

#include <cstdio>
#include <cstring>
#include <iostream>
#include <thread>

#include "common/csim.hpp"

namespace kvdrive {
namespace {

using word_t = ap_uint<32>;

void count_up(int words, Stream<word_t>& out) {
  for (int i = 0; i < words; ++i) out.write(i);
}

void add_one(Stream<word_t>& in, int words, Stream<word_t>& out) {
  for (int i = 0; i < words; ++i) out.write(in.read() + 1);
}

void total(Stream<word_t>& in, int words, unsigned long long& sum) {
  sum = 0;
  for (int i = 0; i < words; ++i) sum += in.read().to_uint64();
}

void chain(Stream<word_t>& in, int words, Stream<word_t>& out) {
#pragma HLS DATAFLOW
  Fifo<word_t, 3> middle("middle");
  DATAFLOW_BEGIN
  DATAFLOW_STAGE(add_one, in, words, middle);
  DATAFLOW_STAGE(add_one, middle, words, out);
  DATAFLOW_END
}

unsigned long long nested_sum(int words) {
  Fifo<word_t, 2> numbers("numbers");
  Fifo<word_t, 5> results("results");
  unsigned long long sum = 0;
  DATAFLOW_BEGIN
  DATAFLOW_STAGE(total, results, words, sum);
  DATAFLOW_STAGE(chain, numbers, words, results);
  DATAFLOW_STAGE(count_up, words, numbers);
  DATAFLOW_END
  return sum;
}

// The second result is needed first, and the first one does not fit into its stream.
void split(int words, Stream<word_t>& early, Stream<word_t>& late) {
  for (int i = 0; i < words; ++i) early.write(i);
  for (int i = 0; i < words; ++i) late.write(i);
}

void join(Stream<word_t>& early, Stream<word_t>& late, int words, unsigned long long& sum) {
  sum = 0;
  for (int i = 0; i < words; ++i) {
    const word_t second = late.read();
    sum += (second * early.read()).to_uint64();
  }
}

template <int kDepth>
unsigned long long reconverge(int words) {
  Fifo<word_t, kDepth> early("early");
  Fifo<word_t, 2> late("late");
  unsigned long long sum = 0;
  DATAFLOW_BEGIN
  DATAFLOW_STAGE(split, words, early, late);
  DATAFLOW_STAGE(join, early, late, words, sum);
  DATAFLOW_END
  return sum;
}

void cycle() {
  Fifo<word_t, 4> forth("forth");
  Fifo<word_t, 4> back("back");
  DATAFLOW_BEGIN
  DATAFLOW_STAGE(add_one, forth, 1, back);
  DATAFLOW_STAGE(add_one, back, 1, forth);
  DATAFLOW_END
}

void starved_chain(Stream<word_t>& in, Stream<word_t>& out) { chain(in, 5, out); }

void nested_deadlock() {
  Fifo<word_t, 4> few("few");
  Fifo<word_t, 8> results("results");
  unsigned long long sum = 0;
  DATAFLOW_BEGIN
  DATAFLOW_STAGE(count_up, 4, few);
  DATAFLOW_STAGE(starved_chain, few, results);
  DATAFLOW_STAGE(total, results, 5, sum);
  DATAFLOW_END
}

void fail_at(Stream<word_t>& in, int position) {
  for (int i = 0; i < position; ++i) in.read();
  throw std::out_of_range("stage failed at word " + std::to_string(position));
}

// Counts its destructions: a stopped stage must be unwound.
struct Witness {
  int& count;
  ~Witness() { ++count; }
};

void endless(Stream<word_t>& out, int& unwound) {
  Witness witness{unwound};
  for (;;) out.write(1);
}

void failing(int& unwound) {
  Fifo<word_t, 2> words("words");
  DATAFLOW_BEGIN
  DATAFLOW_STAGE(endless, words, unwound);
  DATAFLOW_STAGE(fail_at, words, 7);
  DATAFLOW_END
}

void poll_for(Stream<word_t>& in) {
  word_t value;
  while (!in.read_nb(value)) {
  }
}

void polling(bool fed) {
  Fifo<word_t, 2> words("words");
  DATAFLOW_BEGIN
  DATAFLOW_STAGE(poll_for, words);
  DATAFLOW_STAGE(count_up, fed ? 1 : 0, words);
  DATAFLOW_END
}

void two_writers() {
  Fifo<word_t, 8> shared("shared");
  DATAFLOW_BEGIN
  DATAFLOW_STAGE(count_up, 1, shared);
  DATAFLOW_STAGE(count_up, 1, shared);
  DATAFLOW_END
}

// Prints the exception, and proves that the scheduler is usable afterwards.
template <typename Body>
int caught(Body body) {
  try {
    body();
  } catch (const DataflowDeadlock& error) {
    std::cout << "DataflowDeadlock: " << error.what() << '\n';
  } catch (const StreamError& error) {
    std::cout << "StreamError: " << error.what() << '\n';
  } catch (const std::out_of_range& error) {
    std::cout << "out_of_range: " << error.what() << '\n';
  }
  std::cout << "afterwards " << nested_sum(10) << '\n';
  return 0;
}

int lanes_agree() {
  beat_t word = 0;
  ap_uint<264> odd = 0;
  unsigned state = 12345;
  const auto random = [&state] { return state = state * 1664525u + 1013904223u; };
  for (int round = 0; round < 200; ++round) {
    const unsigned value = random() >> 3;
    const int index = static_cast<int>(value % 32);
    beat_t by_range = word;
    by_range.range(16 * index + 15, 16 * index) = value & 0xffff;
    set_lane<16>(word, index, half_t(value & 0xffff));
    if (word != by_range) return 1;
    if (lane<16>(word, 31 - index) != word.range(16 * (31 - index) + 15, 16 * (31 - index))) return 1;
    if (lane<64>(word, index / 4) != word.range(64 * (index / 4) + 63, 64 * (index / 4))) return 1;
    odd.range(263, 256) = value & 0xff;
    set_lane<32>(odd, index / 4, single_t(value));
    if (lane<32>(odd, index / 4) != value || odd.range(263, 256) != (value & 0xff)) return 1;
  }
  std::cout << "lanes agree\n";
  return 0;
}

// A kernel's bug that only the sanitizers see.
void write_beyond(int end) {
  volatile int buffer[4] = {};
  for (int i = 0; i < end; ++i) buffer[i] = i;
  std::cout << buffer[0] << '\n';
}

void overflow(int end) {
  DATAFLOW_BEGIN
  DATAFLOW_STAGE(write_beyond, end);
  DATAFLOW_END
}

void print_marks() {
  for (const auto& [name, mark] : simulation::StreamMarks::global().snapshot()) {
    std::cout << name << " depth " << mark.depth << " high_water " << mark.high_water << " words " << mark.words
              << " left_over " << mark.left_over << '\n';
  }
}

int marks(bool lockstep) {
  simulation::Scheduler::local().set_lockstep(lockstep);
  reconverge<64>(50);
  print_marks();
  return 0;
}

int left_over() {
  {
    Fifo<word_t, 4> kept("kept");
    kept.write(1);
    kept.write(2);
    kept.read();
  }
  return csim::finish();
}

int threads() {
  unsigned long long sums[4] = {};
  std::vector<std::thread> workers;
  for (auto& sum : sums) workers.emplace_back([&sum] { sum = nested_sum(1000); });
  for (auto& worker : workers) worker.join();
  for (const auto sum : sums) std::cout << sum << '\n';
  return 0;
}

int run(const std::string& name) {
  if (name == "nested") return std::cout << nested_sum(1000) << '\n', 0;
  if (name == "deep") return std::cout << reconverge<100000>(100000) << '\n', 0;
  if (name == "undersized") return caught([] { reconverge<3>(4); });
  if (name == "cycle") return caught(cycle);
  if (name == "nested_deadlock") return caught(nested_deadlock);
  if (name == "polling_deadlock") return caught([] { polling(false); });
  if (name == "polling") return caught([] { polling(true); });
  if (name == "two_writers") return caught(two_writers);
  if (name == "read_outside") {
    return caught([] {
      Fifo<word_t, 2> lonely("lonely");
      lonely.read();
    });
  }
  if (name == "write_outside") {
    return caught([] {
      Fifo<word_t, 2> lonely("lonely");
      count_up(3, lonely);
    });
  }
  if (name == "exception") {
    int unwound = 0;
    const int status = caught([&unwound] { failing(unwound); });
    std::cout << "unwound " << unwound << '\n';
    return status;
  }
  if (name == "overflow") return overflow(5), 0;
  if (name == "lanes") return lanes_agree();
  if (name == "marks_lockstep") return marks(true);
  if (name == "marks_run_ahead") return marks(false);
  if (name == "left_over") return left_over();
  if (name == "threads") return threads();
  return 2;
}

}  // namespace
}  // namespace kvdrive

int main(int argc, char** argv) { return argc == 2 ? kvdrive::run(argv[1]) : 2; }
