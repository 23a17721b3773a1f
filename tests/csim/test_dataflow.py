"""Streams and dataflow regions in software: results, deadlocks, exceptions, marks."""

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

pytestmark = pytest.mark.xdist_group("csim")

Run = Callable[[str], list[str]]


@pytest.fixture(scope="module", params=[False, True], ids=["plain", "sanitizers"])
def run(request: pytest.FixtureRequest, program: Callable[..., Path]) -> Run:
    """Output lines of one of the programs in dataflow.cpp."""
    executable = program("dataflow", request.param)

    def lines(name: str) -> list[str]:
        done = subprocess.run([executable, name], capture_output=True, text=True, check=False, timeout=60)
        assert done.returncode == 0, done.stderr
        return done.stdout.splitlines()

    return lines


def test_nested_regions_pass_every_word_once(run: Run) -> None:
    assert run("nested") == [str(sum(i + 2 for i in range(1000)))]


def test_a_stream_deep_enough_for_everything_holds_everything(run: Run) -> None:
    assert run("deep") == [str(sum((i * i) % 2**64 for i in range(100000)))]


def test_an_undersized_stream_names_both_stages_and_both_streams(run: Run) -> None:
    assert run("undersized") == [
        "DataflowDeadlock: dataflow deadlock: every stage is blocked",
        '  stage split writes the full stream "early" (depth 3)',
        '  stage join reads the empty stream "late" (depth 2)',
        '  stream "early": holds 3 of 3, high-water mark 3, words written 3',
        '  stream "late": holds 0 of 2, high-water mark 0, words written 0',
        "afterwards 65",
    ]


def test_a_cycle_without_words_deadlocks(run: Run) -> None:
    lines = run("cycle")
    assert lines[1:3] == [
        '  stage add_one reads the empty stream "forth" (depth 4)',
        '  stage add_one reads the empty stream "back" (depth 4)',
    ]


def test_a_deadlock_inside_a_nested_region_ends_all_regions(run: Run) -> None:
    lines = run("nested_deadlock")
    assert lines[0] == "DataflowDeadlock: dataflow deadlock: every stage is blocked"
    assert set(lines[1:4]) == {
        '  stage total reads the empty stream "results" (depth 8)',
        '  stage add_one reads the empty stream "few" (depth 4)',
        '  stage add_one reads the empty stream "middle" (depth 3)',
    }
    assert lines[-1] == "afterwards 65"


def test_a_stage_may_poll_for_its_word(run: Run) -> None:
    assert run("polling") == ["afterwards 65"]


def test_polling_forever_is_a_deadlock(run: Run) -> None:
    lines = run("polling_deadlock")
    assert lines[0] == "DataflowDeadlock: dataflow deadlock: only polling stages run"
    assert "  stage poll_for polls" in lines


def test_two_writers_of_a_stream_are_refused(run: Run) -> None:
    assert run("two_writers")[0] == 'StreamError: stream "shared" has two writers: count_up and count_up'


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("read_outside", 'StreamError: read from the empty stream "lonely" outside a dataflow region'),
        ("write_outside", 'StreamError: write to the full stream "lonely" outside a dataflow region'),
    ],
)
def test_a_stream_keeps_its_bounds_outside_a_region(run: Run, name: str, message: str) -> None:
    assert run(name) == [message, "afterwards 65"]


def test_an_exception_of_a_stage_reaches_the_caller_and_unwinds_the_others(run: Run) -> None:
    assert run("exception") == ["out_of_range: stage failed at word 7", "afterwards 65", "unwound 1"]


def test_lockstep_marks_show_the_depth_that_was_needed(run: Run) -> None:
    assert run("marks_lockstep") == [
        "early depth 64 high_water 50 words 50 left_over 0",
        "late depth 2 high_water 1 words 50 left_over 0",
    ]


def test_running_ahead_fills_streams_to_the_brim(run: Run) -> None:
    assert "late depth 2 high_water 2 words 50 left_over 0" in run("marks_run_ahead")


def test_threads_run_regions_of_their_own(run: Run) -> None:
    assert run("threads") == ["501500"] * 4


def test_lanes_agree_with_bit_ranges(run: Run) -> None:
    assert run("lanes") == ["lanes agree"]


def test_words_left_in_a_stream_are_a_mismatch(program: Callable[..., Path]) -> None:
    done = subprocess.run([program("dataflow"), "left_over"], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 1
    assert '"mismatches": 1' in done.stdout
    assert "stream kept kept 1 words" in done.stdout


def test_the_sanitizer_sees_into_stages(program: Callable[..., Path]) -> None:
    executable = program("dataflow", True)
    done = subprocess.run([executable, "overflow"], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode != 0
    assert "index 4 out of bounds" in done.stderr or "stack-buffer-overflow" in done.stderr
