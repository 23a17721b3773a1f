// SPDX-License-Identifier: Apache-2.0
// Dataflow: a job passed by reference, structs in FIFOs, a stage that gives scalars back, a stage used twice.
#include <ap_int.h>
#include <hls_stream.h>

struct Job {
  int words;
  ap_uint<5> shift;
  bool negate;
};

struct Sample {
  ap_int<18> value;
  bool last;
};

struct Seen {
  int count;
  ap_int<18> most;
};

static void take(hls::stream<ap_uint<32>>& in, const Job& job, hls::stream<Sample>& out) {
take:
  for (int i = 0; i < job.words; ++i) {
#pragma HLS PIPELINE II = 1
    Sample sample;
    sample.value = ap_int<18>(in.read() >> job.shift);
    sample.last = i == job.words - 1;
    out.write(sample);
  }
}

static void change(hls::stream<Sample>& in, const Job& job, hls::stream<Sample>& out) {
change:
  for (int i = 0; i < job.words; ++i) {
#pragma HLS PIPELINE II = 1
    Sample sample = in.read();
    if (job.negate && !sample.last) sample.value = -sample.value;
    out.write(sample);
  }
}

static void give(hls::stream<Sample>& in, const Job& job, hls::stream<ap_int<19>>& out, Seen& seen) {
  Seen now = {0, -131072};
give:
  for (int i = 0; i < job.words; ++i) {
#pragma HLS PIPELINE II = 1
    const Sample sample = in.read();
    if (sample.value > now.most) now.most = sample.value;
    ++now.count;
    out.write((ap_int<19>(sample.value) << 1) | ap_int<19>(sample.last));
  }
  seen = now;
}

int stages(hls::stream<ap_uint<32>>& in, hls::stream<ap_int<19>>& out, int words, ap_uint<5> shift, bool negate) {
  Job job = {words, shift, negate};
  if (words > 20) job.words = 20;
  Seen seen;
  {
#pragma HLS DATAFLOW
    hls::stream<Sample, 3> taken("taken");
#pragma HLS STREAM variable = taken depth = 5
    hls::stream<Sample> changed("changed");
#pragma HLS STREAM variable = changed depth = 2
    hls::stream<Sample, 4> twice("twice");
    take(in, job, taken);
    change(taken, job, changed);
    change(changed, job, twice);
    give(twice, job, out, seen);
  }
  return seen.count + seen.most;
}
