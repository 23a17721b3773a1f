# SPDX-License-Identifier: Apache-2.0
"""hls::task and the channels of hls_np_channel.h: what becomes a stage that never ends, and what is refused where."""

from __future__ import annotations

from pathlib import Path

import pytest

from openhls.errors import OpenHlsError
from openhls.ir import Life, Program, calls_of, fifos_of
from openhls.pipeline import compile_program

HEAD = """#include <hls_np_channel.h>
#include <hls_task.h>
using Words = hls::stream<int>;
void twice(Words& in, Words& out) { out.write(in.read() * 2); }
"""


def compiled(text: str, folder: Path) -> Program:
    source = folder / "top.cpp"
    source.write_text(HEAD + text)
    return compile_program(source, "top")


TASKS = """void top(Words& in, Words& out) {
  hls_thread_local hls::stream<int, 4> between[3];
  hls_thread_local hls::task first(twice, in, between[0]), *none = nullptr;
}
"""
IN_TURN = """void top(Words& in, Words& out) {
  hls_thread_local hls::stream<int, 4> between[2];
  hls_thread_local hls::task all[3];
  all[0](twice, in, between[0]);
  all[1](twice, between[0], between[1]);
  all[2](twice, between[1], out);
}
"""
CHANNEL = """static void give(Words& in, Words& out) {
  for (int i = 0; i < 4; ++i) out.write(in.read());
}
void top(Words& in, Words& out, Words& more) {
#pragma HLS DATAFLOW
  hls::split::round_robin<int, 2> turns;
  give(in, turns.in);
  give(turns.out[0], out);
  give(turns.out[1], more);
}
"""


def test_tasks_are_stages_for_ever_and_channels_as_long_as_they_are_declared_for(tmp_path: Path) -> None:
    tasks = list(calls_of(compiled(IN_TURN, tmp_path).processes["top"].body))
    assert [call.task for call in tasks] == [Life.PROGRAM] * 3
    assert {call.process.partition("_")[0] for call in tasks} == {"twice"}
    calls = list(calls_of(compiled(CHANNEL, tmp_path).processes["top"].body))
    assert [(call.process, call.task) for call in calls if call.task] == [("split_task", Life.REGION)]


@pytest.mark.parametrize("life", ["", "hls_thread_local "])
def test_a_channel_has_the_depths_it_is_given(life: str, tmp_path: Path) -> None:
    text = CHANNEL.replace("hls::split::round_robin<int, 2>", f"{life}hls::split::round_robin<int, 2, 8, 100>")
    assert text != CHANNEL
    assert [fifo.depth for fifo in fifos_of(compiled(text, tmp_path).processes["top"].body)] == [8, 100, 100]


REFUSED = {
    TASKS: (7, "the declaration of the task first"),
    "void top(Words& in, Words& out) {\n  hls::task alone(twice, in, out);\n}\n": (6, "without hls_thread_local"),
    "void top(Words& in, Words& out) {\n  hls_thread_local hls::task none;\n}\n": (6, "which runs nothing"),
    "hls_thread_local hls::task outside;\nvoid top(Words& in, Words& out) {\n  twice(in, out);\n}\n": (
        5,
        "the task outside outside a function",
    ),
    "void top(Words& in, Words& out) {\n  hls_thread_local hls::task t([](Words& a, Words& b) {}, in, out);\n}\n": (
        6,
        "a task that runs",
    ),
    "void top(Words& in, Words& out) {\n  hls::split::round_robin<int, 2> turns;\n  twice(in, out);\n}\n": (
        6,
        "the channel turns outside a dataflow region",
    ),
    "void top(Words& in, Words& out) {\n#pragma HLS DATAFLOW\n  hls::merge::load_balance<int, 2> any;\n}\n": (
        7,
        "which word goes where would depend on when words arrive",
    ),
    "void top(Words& in, Words& out) {\n  Words between;\n  hls_thread_local hls::task first(twice, in, between);\n"
    "  hls_thread_local hls::task second(twice, between, out);\n}\n": (7, "do not live equally long"),
    "void add(Words& in, Words& out, int& by) { out.write(in.read() + by); }\n"
    "void top(Words& in, Words& out, int by) {\n  hls_thread_local hls::task t(add, in, out, by);\n}\n": (
        7,
        "a task has no arguments but streams",
    ),
    "void count(Words& in, Words& out) {\n  static int n = 0;\n  out.write(in.read() + n++);\n}\n"
    "void top(Words& in, Words& out) {\n  hls_thread_local hls::task t(count, in, out);\n}\n": (
        10,
        "or with static variables",
    ),
    "void look(Words& in, Words& out) {\n  if (!in.empty()) out.write(in.read());\n}\n"
    "void top(Words& in, Words& out) {\n  hls_thread_local hls::task t(look, in, out);\n}\n": (
        9,
        "the task look looks whether a stream has words",
    ),
}


@pytest.mark.parametrize("text", REFUSED, ids=[says for _, says in REFUSED.values()])
def test_what_is_no_task_is_refused_by_its_line(text: str, tmp_path: Path) -> None:
    line, says = REFUSED[text]
    with pytest.raises(OpenHlsError) as caught:
        compiled(text, tmp_path)
    assert says in str(caught.value)
    assert f"top.cpp:{line}" in str(caught.value)
