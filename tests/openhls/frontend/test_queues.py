# SPDX-License-Identifier: Apache-2.0
"""Streams that one function writes and reads: how many words they hold, and which of them are refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from openhls.errors import Unsupported
from openhls.ir import Dataflow, Life, Partition, fifos_of
from openhls.pipeline import compile_program

HEAD = "#include <ap_int.h>\n#include <hls_stream.h>\nusing Words = hls::stream<int>;\n"
TOP = "void top(Words& in, Words& out, int n) {\n"


def compiled(text: str, folder: Path):
    source = folder / "program.cpp"
    source.write_text(HEAD + text)
    return compile_program(source, "top")


def loops(count: str, again: str = "") -> str:
    again = again or count
    return (
        f"  for (int i = 0; i < {count}; i++) q.write(in.read());\n"
        f"  for (int i = 0; i < {again}; i++) out.write(q.read());\n}}\n"
    )


# Bodies of the top, and the words of its only array.
LENGTHS = {
    "all words of a loop": ("  Words q;\n" + loops("40"), 64),
    "a depth": ("  hls::stream<int, 20> q;\n" + loops("n"), 32),
    "a depth that is larger than the loops need": ("  hls::stream<int, 200> q;\n" + loops("40"), 64),
    "a pragma": ("  Words q;\n#pragma HLS STREAM variable = q depth = 33\n" + loops("n"), 64),
    "what an iteration leaves, times the iterations": (
        "  Words q;\n  for (int i = 0; i < 10; i++) {\n    q.write(in.read());\n    q.write(i);\n"
        "    out.write(q.read());\n  }\n  for (int i = 0; i < 10; i++) out.write(q.read());\n}\n",
        16,
    ),
    "rounds of loops": (
        "  Words q;\n  for (int r = 0; r < n; r++) {\n    for (int i = 0; i < 9; i++) q.write(in.read());\n"
        "    for (int i = 0; i < 9; i++) out.write(q.read());\n  }\n}\n",
        16,
    ),
    "a stream of each round": (
        "  for (int r = 0; r < n; r++) {\n    Words q;\n    for (int i = 0; i < 9; i++) q.write(in.read());\n"
        "    for (int i = 0; i < 7; i++) out.write(q.read());\n  }\n}\n",
        16,
    ),
}


@pytest.mark.parametrize("name", LENGTHS)
def test_a_queue_has_room_for_the_words_that_the_loops_leave_in_it(name: str, tmp_path: Path) -> None:
    body, length = LENGTHS[name]
    (array,) = compiled(TOP + body, tmp_path).processes["top"].arrays
    assert (array.name, array.length) == ("q", length)


@pytest.mark.parametrize(("count", "registers"), [("8", True), ("9", False)])
def test_small_queues_are_registers(count: str, registers: bool, tmp_path: Path) -> None:
    arrays = compiled(TOP + "  Words q;\n" + loops(count), tmp_path).processes["top"].arrays
    assert (arrays == ()) == registers
    assert all(array.partition is Partition.NONE for array in arrays)


def test_a_word_with_the_condition_of_its_write_leaves_none(tmp_path: Path) -> None:
    body = (
        "  Words q;\n  for (int i = 0; i < n; i++) {\n    int x = in.read();\n    if (x > 3) q.write(x);\n"
        "    if (x > 3) out.write(q.read());\n  }\n}\n"
    )
    assert compiled(TOP + body, tmp_path).processes["top"].arrays == ()


def test_a_region_that_is_run_twice_has_a_new_stream_each_time(tmp_path: Path) -> None:
    text = (
        "static void a(Words& in, Words& out) {\n  out.write(in.read());\n}\n"
        "static void region(Words& in, Words& out) {\n#pragma HLS DATAFLOW\n  Words q;\n  a(in, q);\n  a(q, out);\n}\n"
    )
    found = compiled(text + TOP + "  region(in, out);\n  region(in, out);\n}\n", tmp_path)
    assert [fifo.life for fifo in fifos_of(found.processes["top"].body)] == [Life.REGION, Life.REGION]


# Source after HEAD (three lines), the line that the message must name, and words of the message.
REFUSED = {
    "any number of words": (
        TOP + "  Words q;\n" + loops("n"),
        5,
        "q, which one function writes and reads, may hold any",
    ),
    "many words": (
        TOP + "  Words q;\n" + loops("5000"),
        5,
        "may hold 5000 words at once; say how many: #pragma HLS STREAM",
    ),
    "more than the depth": (
        TOP + "  hls::stream<int, 3> q;\n" + loops("4"),
        5,
        "holds 4 words at once, more than its depth of 3; give it a depth of 4",
    ),
    "static words that may stay": (
        TOP + "  static Words q;\n" + loops("4", "3"),
        5,
        "the static stream q may keep words from one call to the next",
    ),
    "never full": (
        TOP + "  Words q;\n  for (int i = 0; i < 4; i++) q.write_nb(in.read());\n  out.write(q.read());\n}\n",
        6,
        "full() or write_nb() of the stream q",
    ),
    "a member": (
        "struct Both {\n  Words q;\n  int x;\n};\n" + TOP + "  Both both;\n  both.x = n;\n  both.q.write(in.read());\n"
        "  out.write(both.q.read() + both.x);\n}\n",
        11,
        "a stream inside of both, which has other members",
    ),
    "nobody reads": (
        "static void a(Words& in, Words& q) {\n  q.write(in.read());\n}\nstatic void b(Words& in, Words& out) {\n"
        "  out.write(in.read());\n}\n" + TOP + "#pragma HLS DATAFLOW\n  Words q;\n  a(in, q);\n  b(in, out);\n}\n",
        12,
        "no stage of the region reads the stream q",
    ),
    "two regions": (
        "static void a(Words& in, Words& out) {\n  out.write(in.read());\n}\n"
        "static void region(Words& in, Words& q, Words& out) {\n#pragma HLS DATAFLOW\n  a(in, q);\n  a(q, out);\n}\n"
        + TOP
        + "  Words q;\n  region(in, q, out);\n  region(in, q, out);\n}\n",
        13,
        "the stream q is between stages of two dataflow regions",
    ),
    "a loop between": (
        "static void a(Words& in, Words& out) {\n  out.write(in.read());\n}\n"
        "static void region(Words& in, Words& q, Words& out) {\n#pragma HLS DATAFLOW\n  a(in, q);\n  a(q, out);\n}\n"
        + TOP
        + "  for (int i = 0; i < n; i++) {\n    Words q;\n"
        "    for (int j = 0; j < i; j++) region(in, q, out);\n  }\n}\n",
        14,
        "the stream q is declared in a loop around the one that runs the region",
    ),
    "an unknown pragma": (
        TOP + "#pragma HLS STRAEM variable = in depth = 3\n  out.write(in.read());\n}\n",
        5,
        "STRAEM",
    ),
    "a variable that is not there": (
        TOP + "#pragma HLS STREAM variable = queue depth = 3\n  out.write(in.read());\n}\n",
        5,
        "STREAM of queue, which is no variable",
    ),
    "a variable that only headers of openhls have": (
        TOP + "#pragma HLS STREAM variable = depth depth = 3\n  out.write(in.read());\n}\n",
        5,
        "STREAM of depth, which is no variable",
    ),
    "a dependence of a variable that is not there": (
        TOP + "  for (int i = 0; i < n; i++) {\n#pragma HLS DEPENDENCE variable = seem inter false\n"
        "    out.write(in.read());\n  }\n}\n",
        6,
        "DEPENDENCE of seem, which is no variable",
    ),
    "a dependence without a variable": (
        TOP + "  for (int i = 0; i < n; i++) {\n#pragma HLS DEPENDENCE inter false\n"
        "    out.write(in.read());\n  }\n}\n",
        6,
        "DEPENDENCE of no variable",
    ),
    "an unknown option": (
        TOP + "#pragma HLS INTERFACE axis port = in bundel = one\n  out.write(in.read());\n}\n",
        5,
        "INTERFACE with bundel, which is not known",
    ),
    "ports that depend on a condition": (
        TOP + "#pragma HLS if (words > 2) INTERFACE ap_none port = n\n  out.write(in.read());\n}\n",
        5,
        "INTERFACE with a condition that is not known here",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_streams_and_pragmas_that_would_change_a_result_are_refused(name: str, tmp_path: Path) -> None:
    text, line, words = REFUSED[name]
    with pytest.raises(Unsupported) as caught:
        compiled(text, tmp_path)
    assert f"program.cpp:{line}: " in str(caught.value) or f"program.cpp:{line} in " in str(caught.value)
    assert words in str(caught.value)


# A stage with INLINE whose functions a stream connects: as one stage, they run one after the other.
INLINED = (
    "static void one(Words& in, Words& out) {\n  for (int i = 0; i < 9; i++) out.write(in.read());\n}\n"
    "static void two(Words& in, Words& more, Words& out) {\n"
    "  for (int i = 0; i < 9; i++) out.write(in.read() + more.read());\n}\n"
    "static void layer(Words& in, Words& more, Words& out) {\n#pragma HLS INLINE\n  Words q;\n  one(in, q);\n"
    "  two(q, more, out);\n}\n"
    "static void split(Words& in, Words& a, Words& b) {\n"
    "  for (int i = 0; i < 9; i++) {\n    a.write(i);\n    b.write(in.read());\n  }\n}\n"
)


# The same with a statement that is no call, so that `layer` is a stage itself.
WHOLE = INLINED.replace("  two(q, more, out);", "  for (int k = 0; k < 1; k++) two(q, more, out);")
MEETING = TOP + "#pragma HLS DATAFLOW\n  Words a, b;\n  split(in, a, b);\n  layer(a, b, out);\n}\n"


def stages_of(text: str, folder: Path) -> list[str]:
    """What the only dataflow region of the top calls."""
    (region,) = (each for each in compiled(text, folder).processes["top"].body if isinstance(each, Dataflow))
    return [call.process for call in region.calls]


def test_what_a_function_with_inline_calls_are_the_stages(tmp_path: Path) -> None:
    assert stages_of(INLINED + MEETING, tmp_path) == ["split", "one", "two"]
    declared = "static void layer(Words& in, Words& more, Words& out);\n"
    assert stages_of(declared + INLINED + MEETING, tmp_path) == ["split", "one", "two"]


@pytest.mark.parametrize(
    "other",
    [
        "void other(Words& in, Words& out) {\n  for (int i = 0; i < 2; i++) layer(in, in, out);\n}\n",
        "static void layer(Words& in, Words& out) {\n  one(in, out);\n}\n",
    ],
    ids=["called elsewhere", "another of that name"],
)
def test_a_function_with_inline_that_is_not_only_that_is_one_stage(other: str, tmp_path: Path) -> None:
    top = "void top(Words& in, Words& more, Words& out) {\n#pragma HLS DATAFLOW\n  layer(in, more, out);\n}\n"
    assert stages_of(INLINED + top, tmp_path) == ["one", "two"]
    assert stages_of(INLINED + other + top, tmp_path) == ["layer"]


def test_a_function_with_inline_that_is_a_region_of_its_own_is_one_stage(tmp_path: Path) -> None:
    """`layer` is a process with a region in it."""
    own = INLINED.replace("#pragma HLS INLINE\n", "#pragma HLS INLINE\n#pragma HLS DATAFLOW\n")
    assert stages_of(own + MEETING, tmp_path) == ["split", "layer"]


def test_a_stage_with_inline_that_might_wait_for_ever_is_refused(tmp_path: Path) -> None:
    """`layer` reads all words of a before the first one of b, which has room for two."""
    with pytest.raises(Unsupported, match=r"program.cpp:26: .* layer, which has INLINE, .*its streams a and b meet"):
        compiled(WHOLE + MEETING, tmp_path)


def test_a_stage_with_inline_that_is_only_slower_is_a_warning(tmp_path: Path) -> None:
    """Streams of the top have no end that they meet in."""
    top = "void top(Words& in, Words& more, Words& out) {\n#pragma HLS DATAFLOW\n  layer(in, more, out);\n}\n"
    (warning,) = compiled(WHOLE + top, tmp_path).warnings
    assert (
        "program.cpp:24: warning: INLINE has no effect on the stage layer: the functions in it run one after" in warning
    )
    without = WHOLE.replace("#pragma HLS INLINE\n", "")
    assert compiled(without + top, tmp_path).warnings == ()


def test_a_static_stream_is_called_as_in_the_source(tmp_path: Path) -> None:
    text = (
        "static void a(Words& in, Words& out) {\n  out.write(in.read());\n}\n" + TOP + "#pragma HLS DATAFLOW\n"
        "  static Words between;\n#pragma HLS STREAM variable = between depth = 7\n  a(in, between);\n"
        "  a(between, out);\n}\n"
    )
    (fifo,) = fifos_of(compiled(text, tmp_path).processes["top"].body)
    assert (fifo.name, fifo.depth, fifo.life) == ("between", 7, Life.PROGRAM)
