# SPDX-License-Identifier: Apache-2.0
"""Tasks and channels as software and as RTL: the same words in the same order, also over several calls of the top."""

from __future__ import annotations

from pathlib import Path

import pytest

from openhls.fuzz.batch import run_batch
from openhls.fuzz.tasks import task_program

HEAD = "#include <hls_np_channel.h>\n#include <hls_task.h>\nusing Words = hls::stream<int>;\n"
# A stage feeds a task that counts over all calls, another stage takes what it gives.
COUNTED = """
static void counted_task(Words& in, Words& out) {
  int count = 0;
  while (1) out.write(in.read() + count++);
}
static void counted_copy(Words& in, Words& out) {
  for (int i = 0; i < 8; i++) out.write(in.read());
}
void counted(Words& in, Words& out) {
#pragma HLS DATAFLOW
  hls_thread_local Words given, taken;
  hls_thread_local hls::task t(counted_task, given, taken);
  counted_copy(in, given);
  counted_copy(taken, out);
}
"""
# A word stays behind in the channel, which is made anew in each call.
LEFT = """
static void left_give(Words& in, Words& out, int n) {
  for (int i = 0; i < 2 * n + 1; i++) out.write(in.read());
}
static void left_take(Words& in, Words& out, int n) {
  for (int i = 0; i < n; i++) out.write(in.read() + 1);
}
void left(Words& in, Words& even, Words& odd, int n) {
#pragma HLS DATAFLOW
  hls::split::round_robin<int, 2> turns;
  left_give(in, turns.in, n);
  left_take(turns.out[0], even, n);
  left_take(turns.out[1], odd, n);
}
"""
# The same behind a stage that takes long: the channel is made anew with the stages around it.
WAITS = """
static void waits_long(Words& in, int kept[4]) {
  for (int i = 0; i < 4; i++) kept[i] = in.read();
}
static void waits_give(int kept[4], Words& out) {
  for (int i = 0; i < 5; i++) out.write(kept[i & 3] + i);
}
static void waits_take(Words& in, Words& out) {
  for (int i = 0; i < 2; i++) out.write(in.read());
}
void waits(Words& in, Words& even, Words& odd) {
#pragma HLS DATAFLOW
  int kept[4];
  hls::split::round_robin<int, 2> turns;
  waits_long(in, kept);
  waits_give(kept, turns.in);
  waits_take(turns.out[0], even);
  waits_take(turns.out[1], odd);
}
"""
WORKERS = """
static void workers_one(Words& in, Words& out) { out.write(in.read() * 2 + 1); }
static void workers_copy(Words& in, Words& out, int n) {
  for (int i = 0; i < n; i++) out.write(in.read());
}
void workers(Words& in, Words& out, int n) {
  hls_thread_local hls::split::round_robin<int, 4> split;
  hls_thread_local hls::merge::round_robin<int, 4> merge;
#pragma HLS DATAFLOW
  workers_copy(in, split.in, n);
  hls_thread_local hls::task t[4];
  for (int i = 0; i < 4; i++) {
#pragma HLS UNROLL
    t[i](workers_one, split.out[i], merge.in[i]);
  }
  workers_copy(merge.out, out, n);
}
"""
# Stages that take turns with an array, and a task that one of them feeds.
TURNS = """
static void turns_task(Words& in, Words& out) { out.write(in.read() + 5); }
static void turns_first(Words& in, int kept[4], Words& out) {
  for (int i = 0; i < 4; ++i) {
    kept[i] = in.read();
    out.write(i);
  }
}
static void turns_second(int kept[4], Words& out) {
  for (int i = 0; i < 4; ++i) out.write(kept[i]);
}
void turns(Words& in, Words& out, Words& more) {
#pragma HLS DATAFLOW
  hls_thread_local Words between;
  int kept[4];
  hls_thread_local hls::task t(turns_task, between, more);
  turns_first(in, kept, between);
  turns_second(kept, out);
}
"""
PROGRAMS = {
    "turns": HEAD + TURNS,
    "counted": HEAD + COUNTED,
    "left": HEAD + LEFT,
    "waits": HEAD + WAITS,
    "workers": HEAD + WORKERS,
}
RANDOM, QUICK = 200, 6
BATCH = 25


def test_tasks_give_the_same_words_in_hardware(tools: None, tmp_path: Path) -> None:
    programs = PROGRAMS | {f"net_{seed}": task_program(seed, f"net_{seed}") for seed in range(QUICK)}
    verdicts = run_batch(programs, tmp_path / "batch")
    assert [(each.name, each.problem, each.refused) for each in verdicts if each.problem or each.refused] == []
    assert all(each.words > 20 for each in verdicts)


@pytest.mark.slow
@pytest.mark.parametrize("first", range(QUICK, RANDOM, BATCH))
def test_random_networks_of_tasks_are_the_same_in_hardware(first: int, tools: None, tmp_path: Path) -> None:
    seeds = range(first, min(first + BATCH, RANDOM))
    verdicts = run_batch({f"net_{seed}": task_program(seed, f"net_{seed}") for seed in seeds}, tmp_path / "batch")
    assert [(each.name, each.problem, each.refused) for each in verdicts if each.problem or each.refused] == []
