# SPDX-License-Identifier: Apache-2.0
"""hls::task and the channels of hls_np_channel.h: what becomes a stage that never ends, and what is refused where."""

from __future__ import annotations

from pathlib import Path

import pytest

from openhls.errors import OpenHlsError, Unsupported
from openhls.frontend.syntax import Syntax
from openhls.frontend.tasks import with_tasks
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


BEFORE = '# 1 "top.cpp"\n# 1 "/shim/hls_task.h" 1 3\n# 2 "top.cpp" 2\n'
WRITTEN = {
    "several on a line": (
        "void top() { static hls::task a(f, in, x); static hls::task b(g<2>, x, out); }",
        ["openhls::run_task<(f)>( in, x);", "openhls::run_task<(g<2>)>( x, out);"],
    ),
    "an address": ("void top() { static hls::task a(& f, in, x); }", ["openhls::run_task<(f)>( in, x);"]),
    "a function of a namespace": (
        "void top() { static hls::task a(my :: inner::f<3>, in, x); }",
        ["openhls::run_task<(my :: inner::f<3>)>( in, x);"],
    ),
    "parentheses and shifts in arguments of a template": (
        "void top() { static hls::task a(f<(1 > 0), 1 << 2>, in, x); }",
        ["openhls::run_task<(f<(1 > 0), 1 << 2>)>( in, x);"],
    ),
    "arrays of two dimensions": (
        "void top() { static hls::task t[2][2]; t[0][1](f, in, x); }",
        ["openhls::run_task<(f)>( in, x);"],
    ),
    "an index with an index": (
        "void top() { static hls::task t[2]; for (;;)t[at[0]](f, in[at[0]], x); }",
        ["openhls::run_task<(f)>( in[at[0]], x);"],
    ),
    "a body behind noexcept": (
        "auto top() noexcept -> void { static hls::task a(f, in, x); }",
        ["openhls::run_task<(f)>( in, x);"],
    ),
    "a line marker before the body": (
        'void top()\n# 12 "top.cpp"\n{ static hls::task a(f, in, x); }',
        ["openhls::run_task<(f)>( in, x);"],
    ),
    "brackets and quotes in literals": (
        "void top() { put(R\"({ \" hls::task no(g, y);)\", L'{', '\\''); static hls::task a(f, in, x); }",
        ["openhls::run_task<(f)>( in, x);"],
    ),
    "a constant": ("void top() { static const hls::task a(f, in, x); }", ["openhls::run_task<(f)>( in, x);"]),
    "names that begin like another": (
        "void top() { static hls::task t[1]; at[0](g, y); t[0](f, in, x); }",
        ["at[0](g, y);", "openhls::run_task<(f)>( in, x);"],
    ),
}


@pytest.mark.parametrize("name", WRITTEN)
def test_declarations_of_tasks_become_calls(name: str) -> None:
    text, calls = WRITTEN[name]
    found = with_tasks(BEFORE + text + "\n")
    assert [call for call in calls if call not in found] == []
    assert found.count("run_task") == sum("run_task" in call for call in calls)
    assert "hls::task a" not in found


# What is no task, or no channel, although its name says so.
LEFT_ALONE = {
    "a class of that name": 'auto* text = "using namespace hls;"; struct task {}; void top() { task mine(f, in); }',
    "a class in another namespace": "using namespace hls; void top() { static mine::task one(f, in, x); }",
    "a task in a text": 'void top() { put("static hls::task a(f, in, x);"); }',
    "a channel of another namespace": "void top() { mine::split::round_robin<int, 2> one; }",
}


@pytest.mark.parametrize("name", LEFT_ALONE)
def test_what_only_looks_like_a_task_stays(name: str) -> None:
    text = BEFORE + LEFT_ALONE[name] + "\n"
    assert with_tasks(text) == text


CHANNELS = {
    "round_robin<int, (4 > 2 ? 2 : 3)> turns;": True,
    "round_robin<int, 1 << 1> turns;": True,
    "round_robin<my<int>, 2> turns{};": True,
    'round_robin<int, 2> turns("turns");': False,
    "round_robin<int, 2> turns[3];": False,
    "round_robin<int, 1 < 2> turns;": False,
}


@pytest.mark.parametrize("declared", CHANNELS)
def test_channels_run_or_are_refused(declared: str) -> None:
    text = f"{BEFORE}void top() {{\n#pragma HLS DATAFLOW\n hls::split::{declared}\n give(in, turns.in); }}\n"
    if CHANNELS[declared]:
        assert "turns.openhls_run<false>();" in with_tasks(text)
    else:
        with pytest.raises(Unsupported, match=r"top.cpp:4: .*channel"):
            with_tasks(text)


STAGES = """namespace {
void returned(Words& in, Words& out) { out.write(in.read() + 1); }
template <int kBy>
void add(Words& in, Words& out) {
  for (int i = 0; i < 4; ++i) out.write(in.read() + kBy);
}
}
void returning(Words& in, Words& out) {
  for (int i = 0; i < 4; ++i) out.write(in.read() * 2);
}
"""


def test_a_task_may_be_in_a_namespace_without_a_name(tmp_path: Path) -> None:
    top = "void top(Words& in, Words& out) {\n  hls_thread_local hls::task t(returned, in, out);\n}\n"
    (call,) = calls_of(compiled(STAGES + top, tmp_path).processes["top"].body)
    assert (call.process, call.task) == ("returned_task", Life.PROGRAM)


def test_a_macro_may_declare_several_tasks_on_a_line(tmp_path: Path) -> None:
    top = """#define RUN(name, f, from, to) hls_thread_local hls::task name(f /* (of, */, from, to)
void top(Words& in, Words& out) {
  hls_thread_local Words between; RUN(one, twice, in, between); RUN(other, twice, between, out);  // hls::task t(f);
}
"""
    calls = list(calls_of(compiled(top, tmp_path).processes["top"].body))
    assert [call.task for call in calls] == [Life.PROGRAM] * 2
    assert {call.location.line for call in calls} == {7}


def test_stages_with_names_like_return_and_shifts_in_their_arguments_are_stages(tmp_path: Path) -> None:
    top = """void top(Words& in, Words& out) {
#pragma HLS DATAFLOW
  Words one, other;
  returning(in, one);
  add<(1 << 2)>(one, other);
  add<1 << 3>(other, out);
}
"""
    calls = calls_of(compiled(STAGES + top, tmp_path).processes["top"].body)
    assert [call.process for call in calls] == ["returning", "add", "add_2"]


def test_a_task_under_another_name_is_refused(tmp_path: Path) -> None:
    top = "using Worker = hls::task;\nvoid top(Words& in, Words& out) {\n  static Worker t(twice, in, out);\n}\n"
    with pytest.raises(OpenHlsError, match=r"top.cpp:7: .*write hls::task where a task is declared"):
        compiled(top, tmp_path)


def test_literals_of_all_kinds_are_blank() -> None:
    text = 'a = R"x({ ) " )x"; b = u8"{"; c = L\'{\'; d = \'\\\'\'; e = 1\'000\'000; f = "\\"{"; {}'
    syntax = Syntax(text)
    assert syntax.masked.count("{") == syntax.masked.count("}") == 1
    assert syntax.closing == {len(text) - 2: len(text) - 1}
