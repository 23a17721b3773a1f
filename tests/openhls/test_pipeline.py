# SPDX-License-Identifier: Apache-2.0
"""The list of passes: each leaves a program that keeps the rules, and a breach is caught where it happens."""

import random
from dataclasses import replace
from pathlib import Path

import pytest
from ir_interpreter import interpret

from openhls import pipeline
from openhls.analysis.storage import storage_of
from openhls.ir import Block, Direction, Loop, Program, Value, loops_of, walk
from openhls.pipeline import compile_program
from openhls.schedule.pipelined import forms_of
from openhls.schedule.target import target_of
from openhls.verify import InvalidProgram, verify

PROGRAMS = Path(__file__).parent / "programs"
NAMES = ("blend", "nests", "stages")
TARGET = target_of()


@pytest.fixture(scope="module", params=NAMES)
def program(request: pytest.FixtureRequest) -> Program:
    return compile_program(PROGRAMS / f"{request.param}.cpp", request.param)


def test_every_pass_of_the_program_leaves_what_it_says(program: Program) -> None:
    for each in pipeline.PROGRAM_PASSES:
        program = each.run(program, TARGET)
        verify(program)
    assert program.processes


def changed(program: Program, old: Loop, blocks: tuple[Block, ...], new: Loop) -> Program:
    """`program` with another loop in place of `old`, after `blocks`."""

    def regions(found: tuple) -> tuple:
        result: list = []
        for region in found:
            if region is old:
                result += [*blocks, new]
            else:
                result.append(replace(region, body=regions(region.body)) if isinstance(region, Loop) else region)
        return tuple(result)

    processes = {name: replace(each, body=regions(each.body)) for name, each in program.processes.items()}
    return replace(program, processes=processes)


def outcome(program: Program, seed: int) -> tuple[object, ...]:
    """What the interpreter makes of random inputs whose words often repeat."""
    rng = random.Random(seed)
    top = program.processes[program.top]
    scalars = {value.name: rng.randrange(12) for value in top.scalars}
    inputs = [each for each in top.streams if each.name in program.arguments and each.direction is Direction.READ]
    words = {each.name: [rng.choice((0, 1, 5, rng.getrandbits(each.width))) for _ in range(99)] for each in inputs}
    contents = {name: bytes(4096) for name in program.arguments if name not in words}
    found = interpret(program, scalars, words, seed, contents)
    return found.outputs, found.streams, {name: len(left) for name, left in found.unread.items()}, found.buffers


@pytest.mark.parametrize("name", [*NAMES, "histogram", "forwarding", "answers", "polling"])
def test_every_form_of_a_loop_means_the_same(name: str) -> None:
    program = pipeline.finish_program(compile_program(PROGRAMS / f"{name}.cpp", name), TARGET)
    wanted = [outcome(program, seed) for seed in range(6)]
    count = 0
    for process in program.processes.values():
        storages = {array.name: storage_of(array) for array in process.arrays}
        for loop in (each for each in loops_of(process.body) if each.innermost):
            for ahead in forms_of(loop, storages, pipeline.loop_forms(), lambda _: True):
                before = (Block("first", ahead.first, loop.location),) if ahead.first else ()
                other = changed(program, loop, before, ahead.loop)
                verify(other)
                assert [outcome(other, seed) for seed in range(6)] == wanted
                count += 1
    assert count >= 2


def test_loops_get_the_forms_that_they_can_have() -> None:
    def added(name: str, label: str, helps: bool = True) -> list[int]:
        """How many values each form of a loop carries more than the first one. `helps`: memories limit its interval."""
        program = pipeline.finish_program(compile_program(PROGRAMS / f"{name}.cpp", name), TARGET)
        for process in program.processes.values():
            storages = {array.name: storage_of(array) for array in process.arrays}
            for loop in (each for each in loops_of(process.body) if each.label == label):
                carried = [
                    len(ahead.loop.carried)
                    for ahead in forms_of(loop, storages, pipeline.loop_forms(), lambda _: helps)
                ]
                return [each - carried[0] for each in carried]
        raise AssertionError(label)

    assert added("histogram", "clear") == [0, 0]
    assert added("histogram", "count") == [0, 0, 3, 6, 9, 12]
    assert added("histogram", "count", helps=False) == [0, 0]
    assert added("forwarding", "apart") == [0, 0, *(3 * reach for reach in (3, 4, 5, 6))]
    assert added("forwarding", "twice") == [0, 0, 6, 12]
    assert added("answers", "take") == [0, 0, 2]
    assert added("answers", "hold") == [0, 0, 4]


def broken(program: Program) -> Program:
    """The program with an operation of a width that its users do not know."""
    for name, process in program.processes.items():
        for region in walk(process.body):
            if isinstance(region, Block) and region.operations and region.operations[0].result is not None:
                first, *rest = region.operations
                wide = replace(region, operations=(replace(first, result=Value(first.result.name, 777)), *rest))
                old, new = process.body, tuple(wide if each is region else each for each in process.body)
                if old != new:
                    return replace(program, processes={**program.processes, name: replace(process, body=new)})
    raise AssertionError("no operation found")


def test_a_pass_that_breaks_a_rule_is_caught_behind_it_with_a_line(
    program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    spoiled = replace(pipeline.PROGRAM_PASSES[-1], run=lambda program, target: broken(program))
    monkeypatch.setattr(pipeline, "PROGRAM_PASSES", (*pipeline.PROGRAM_PASSES, spoiled))
    with pipeline.checked(), pytest.raises(InvalidProgram, match=r"\.cpp:\d+: \w+: .*; this is a fault of openhls"):
        pipeline.finish_program(program, TARGET)
    with pipeline.checked(False):
        pipeline.finish_program(program, TARGET)


def test_channels_that_do_not_fill_the_words_of_a_stream_are_caught() -> None:
    program = compile_program(PROGRAMS / "channels.cpp", "channels")
    channels = dict(program.channels)
    assert dict(channels["parts_1"]) == {"data": 16, "keep": 2, "strb": 2, "user": 3, "last": 1}
    assert dict(channels["flags"]) == {"data": 8, "last": 1}
    for name, (first, *others) in channels.items():
        short = replace(program, channels={**channels, name: ((first[0], first[1] - 1), *others)})
        with pytest.raises(InvalidProgram, match=f"{name}: its channels do not have"):
            verify(short)


def test_every_pass_says_what_it_needs_and_leaves() -> None:
    passes = (*pipeline.PROCESS_PASSES, *pipeline.PROGRAM_PASSES, *pipeline.LOOP_PASSES)
    assert all(each.needs and each.leaves for each in passes)


def noted(passes: tuple[pipeline.Pass, ...], seen: list[int], kind: int) -> tuple[pipeline.Pass, ...]:
    """The passes; each notes when it runs."""

    def run(number: int, each: pipeline.Pass) -> pipeline.Pass:
        def with_note(*arguments: object) -> object:
            seen.append(100 * kind + number)
            return each.run(*arguments)

        return replace(each, run=with_note)

    return tuple(run(number, each) for number, each in enumerate(passes))


def test_the_compiler_runs_the_passes_of_the_lists_in_their_order(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    seen: list[int] = []
    names = ("PROCESS_PASSES", "PROGRAM_PASSES", "LOOP_PASSES")
    lists = [getattr(pipeline, name) for name in names]
    for kind, (name, passes) in enumerate(zip(names, lists, strict=True)):
        monkeypatch.setattr(pipeline, name, noted(passes, seen, kind))
    program = pipeline.compile_program(PROGRAMS / "answers.cpp", "answers")
    assert seen == [*range(len(lists[0]))] * len(program.processes)
    seen.clear()
    finished = pipeline.finish_program(program, TARGET)
    assert [each for each in seen if each < 200] == [100 + number for number in range(len(lists[1]))]
    seen.clear()
    pipeline.plan_of(finished, TARGET)
    assert set(seen) == {200 + number for number in range(len(lists[2]))}  # one loop needs them all
    assert seen[:2] == [200, 201]
