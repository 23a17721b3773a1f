# SPDX-License-Identifier: Apache-2.0
"""Faults put into the compiler, one at a time: the comparison with g++ must notice each of them."""

import functools
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from program_choices import CHOICES

from openhls.cosim import cosimulate, parse_choice, simulate
from openhls.emit import arrays, control, dataflow, datapath, outside, overlap, overlapped, process, verilog
from openhls.emit.netlist import ONE, ZERO, NetlistError, negate
from openhls.errors import OpenHlsError
from openhls.frontend import pointers, streams, whole_stores
from openhls.ir import FALSE, TRUE, Block, Const, Opcode, Program
from openhls.passes import answers, flatten, forward, look_ahead, queues, second_port
from openhls.pipeline import compile_program, write_design
from openhls.schedule import dependence, schedule

PROGRAMS = Path(__file__).parent / "programs"

Patch = pytest.MonkeyPatch
Fault = Callable[[Patch], None]


@dataclass(frozen=True)
class Suite:
    """Values of a program's arguments, and the faults that its comparison must notice."""

    choices: tuple[str, ...]
    faults: dict[str, Fault]


def changed(patch: Patch, owner: object, name: str, change: Callable) -> None:
    """Replace a function by one that calls the original: change(original, *arguments)."""
    original = getattr(owner, name)
    patch.setattr(owner, name, lambda *args, **kwargs: change(original, *args, **kwargs))


def swap_opcode(wrong: Opcode, instead: Opcode) -> Fault:
    def change(original, opcode, *rest):
        return original(instead if opcode is wrong else opcode, *rest)

    return lambda patch: changed(patch, datapath, "expression", change)


def swap_operands(victim: Opcode) -> Fault:
    def change(original, opcode, operands, *rest):
        return original(opcode, operands[::-1] if opcode is victim else operands, *rest)

    return lambda patch: changed(patch, datapath, "expression", change)


def without_gate(patch: Patch) -> None:
    """Step 0 does not wait for its words."""

    def change(original, self, operation, step):
        before = len(self.gates)
        original(self, operation, step)
        del self.gates[before:]

    changed(patch, datapath.Pipeline, "read", change)


def without_stall(patch: Patch) -> None:
    """A late read does not wait for its word."""

    def change(original, self):
        self.stalls = {}
        original(self)

    changed(patch, datapath.Pipeline, "moving", change)


def without_credits(patch: Patch) -> None:
    """Iterations start without room for their words."""
    patch.setattr(datapath.OutputEnd, "room_for", lambda self, module, words: module.wire("always_room", ONE))


def claims_nothing(patch: Patch) -> None:
    changed(patch, datapath, "Claim", lambda original, launch, words, places: original(ZERO, words, places))


def keeps_unused_places(patch: Patch) -> None:
    def change(original, self, operation, step):
        original(self, operation, step)
        end = self.around.outputs[operation.target]
        push = end.pushes[-1]
        end.pushes[-1] = replace(push, enable=push.taken, predicate=ONE)

    changed(patch, datapath.Pipeline, "write", change)


def predicate_ignored(kind: str) -> Fault:
    def change(original, self, operation, step):
        return original(self, replace(operation, predicate=TRUE), step)

    return lambda patch: changed(patch, datapath.Pipeline, kind, change)


def one_stage_less(patch: Patch) -> None:
    """Values of overlapped iterations are taken one step too early."""

    def change(original, self, name, step):
        ready = self.schedule.ready[name].step
        return original(self, name, step - 1 if self.schedule.overlapped and step > ready else step)

    changed(patch, datapath.Pipeline, "at", change)


def no_edges_between_iterations(patch: Patch) -> None:
    patch.setattr(dependence, "first_collision", lambda *args: None)


def no_edges_within_an_iteration(patch: Patch) -> None:
    patch.setattr(dependence, "may_meet", lambda *args: False)


def collision_one_iteration_late(patch: Patch) -> None:
    def change(original, *args):
        distance = original(*args)
        return None if distance is None else distance + 1

    changed(patch, dependence, "first_collision", change)


def stale_loads(patch: Patch) -> None:
    patch.setattr(dependence, "LATENCY", {"RAW": 0, "WAR": 0, "WAW": 1})


def everything_exclusive(patch: Patch) -> None:
    patch.setattr(schedule, "exclusive", lambda *args: True)
    patch.setattr(dependence, "exclusive", lambda *args: True)


def carried_too_early(patch: Patch) -> None:
    """The scheduler believes that carried values are there one step earlier than they are."""
    changed(patch, schedule.Attempt, "available", lambda original, self, item: original(self, item) - 1)


def wrong_lookahead(patch: Patch) -> None:
    """The condition for the next iteration is worked out for this one: x + d in place of x + (c + d)."""

    def change(original, self, opcode, operands):
        return original(self, opcode, operands)[0], *operands[1:]

    changed(patch, look_ahead.Copy, "joined", change)


def early_done(patch: Patch) -> None:
    """A process ends before its last words have left."""
    changed(patch, process, "all_of", lambda original, terms: original(list(terms)[:1]))


def loops_always_enter(patch: Patch) -> None:
    def change(original, self, form, start):
        return original(self, replace(form, loop=replace(form.loop, enter=TRUE)), start)

    changed(patch, control.Controller, "inner_loop", change)


def constants_start_at_one(patch: Patch) -> None:
    """Carried values that start with a constant start with 1."""

    def change(original, self, form, start):
        carried = tuple(
            replace(item, initial=Const(item.value.width, 1)) if isinstance(item.initial, Const) else item
            for item in form.loop.carried
        )
        return original(self, replace(form, loop=replace(form.loop, carried=carried)), start)

    changed(patch, control.Controller, "inner_loop", change)


def zero_extension(patch: Patch) -> None:
    def wrong(term) -> str:
        source = term.arguments[0]
        return f"{{{term.width - source.width}'d0, {source.name}}}"

    patch.setattr(verilog, "sign_extension", wrong)


def rows_start_like_the_first(patch: Patch) -> None:
    def change(original, self, copy, operand):
        return original(self, self.first_row, operand)

    changed(patch, flatten.Flattening, "copied", change)


def effects_in_each_iteration(patch: Patch) -> None:
    """What stands before and behind an inner loop happens in every iteration."""
    changed(
        patch, flatten.Flattening, "add", lambda original, self, operation, condition: original(self, operation, TRUE)
    )


def reads_of_a_row_forgotten(patch: Patch) -> None:
    """A word that is read at the head of a row is known in the first iteration only."""

    def change(original, self):
        original(self)
        self.carried = [replace(item, following=item.initial) for item in self.carried]

    changed(patch, flatten.Flattening, "run_head", change)


def skipped_rows_run(patch: Patch) -> None:
    patch.setattr(flatten.Flattening, "activity", lambda self: TRUE)


def last_row_left_out(patch: Patch) -> None:
    """The loop ends with the rows that end, whatever the outer condition says."""
    changed(patch, flatten.Flattening, "either", lambda original, self, a, b: a)


def looks_are_inverted(patch: Patch) -> None:
    """EMPTY and FULL say the opposite."""
    changed(
        patch,
        datapath.Pipeline,
        "poll",
        lambda original, self, operation, term: original(self, operation, negate(term)),
    )


def number_reset_to_zero(patch: Patch) -> None:
    """A reset clears the global numbers, whatever they start with."""

    def change(original, self, state, following, ends):
        return original(self, replace(state, initial=(0,)), following, ends)

    changed(patch, outside.Outside, "number", change)


def numbers_forgotten(patch: Patch) -> None:
    changed(
        patch,
        outside.Outside,
        "number",
        lambda original, self, state, following, ends: original(self, state, following, ZERO),
    )


def memory_not_put_back(patch: Patch) -> None:
    patch.setattr(outside.Outside, "put_back", lambda self, end, state: None)


def contents_in_the_wrong_order(patch: Patch) -> None:
    changed(patch, outside, "bank_contents", lambda original, *args: original(*args)[::-1])


def jobs_start_during_a_reset(patch: Patch) -> None:
    patch.setattr(outside.Outside, "ready", ONE)


def array_ports_not_read(patch: Patch) -> None:
    changed(patch, outside, "uses_of", lambda original, *args: replace(original(*args), reads=False))


def second_port_reads_like_the_first(patch: Patch) -> None:
    """The second port of an array has the address that the first one had last."""

    def change(original, region, storages, second):
        region = original(region, storages, second)
        if not isinstance(region, Block):
            return region
        operations, last = [], {f"{name}_second": () for name in storages}
        for each in region.operations:
            if each.target in storages:
                last[f"{each.target}_second"] = each.operands
            operations.append(replace(each, operands=last[each.target]) if each.target in last else each)
        return replace(region, operations=tuple(operations))

    changed(patch, second_port, "_shared", change)


def stages_do_not_wait(patch: Patch) -> None:
    """Stages that share an array start with the others."""

    def change(original, self, call, begin, start, fifos):
        return original(self, call, begin, begin, fifos)

    changed(patch, dataflow.Stages, "call", change)


def buffers_not_swapped(patch: Patch) -> None:
    """Iterations overlap, but all of them use the first buffer."""
    patch.setattr(overlapped.OverlappedStages, "lend", dataflow.Stages.lend)


def stages_get_later_values(patch: Patch) -> None:
    """A stage gets what the loop has now, which may be of a later iteration."""
    patch.setattr(overlapped.OverlappedStages, "given", dataflow.Stages.given)


def stages_need_no_permits(patch: Patch) -> None:
    changed(
        patch,
        overlapped.OverlappedStages,
        "permits",
        lambda original, self: {number: [] for number in original(self)},
    )


def buffers_given_too_often(patch: Patch) -> None:
    """There is a permit more than there are buffers."""

    def change(original, self, name, up, down, start, *rest):
        return original(self, name, up, down, start + (start > 0), *rest)

    changed(patch, overlapped.OverlappedStages, "counter", change)


def loops_end_before_their_stages(patch: Patch) -> None:
    patch.setattr(control.Controller, "drained", lambda self, name, ended, idle: ended)


def all_arrays_are_fresh(patch: Patch) -> None:
    """Arrays that hand numbers on to the next iteration have two buffers, too."""

    def change(original, process, loop, region):
        return original(process, replace(loop, fresh=tuple(array.name for array in process.arrays)), region)

    changed(patch, overlap, "_own", change)


def all_accesses_take_the_second_port(patch: Patch) -> None:
    """The scheduler believes that they take turns."""
    changed(
        patch,
        datapath.Pipeline,
        "load",
        lambda original, self, operation, step: original(self, replace(operation, port=1), step),
    )


def ports_exchange_their_words(patch: Patch) -> None:
    """What one port of a memory reads arrives at the other one."""

    def change(original, self, index, enable, bank, name, port=0):
        term = original(self, index, enable, bank, name, port)
        return original(self, index, ZERO, bank, f"{name}_wrong", 1 - port) if self.storage.array.two_ports else term

    changed(patch, arrays.ArrayEnd, "load", change)


def a_port_reads_while_it_writes(patch: Patch) -> None:
    """Accesses of one port may be in the same cycle."""
    patch.setattr(schedule, "ports_of", lambda *args: ())


def second_port_does_not_write(patch: Patch) -> None:
    def change(original, self, index, data, enable, bank, name, port=0):
        return original(self, index, data, ZERO if port else enable, bank, name, port)

    changed(patch, arrays.ArrayEnd, "store", change)


def stores_not_forwarded(patch: Patch) -> None:
    """Loads take what the memory has; the scheduler still believes that it need not be right."""
    patch.setattr(forward.Forwarding, "load", lambda self, load, stored: self.operations.append(load))


def older_stores_win(patch: Patch) -> None:
    changed(patch, forward.Forwarding, "load", lambda original, self, load, stored: original(self, load, stored[::-1]))


def stores_forwarded_anywhere(patch: Patch) -> None:
    patch.setattr(forward.Forwarding, "same", lambda self, a, b: TRUE)


def stores_forwarded_without_predicate(patch: Patch) -> None:
    def change(original, store):
        _, index, element = original(store)
        return TRUE, index, element

    changed(patch, forward, "stored_by", change)


def memory_right_too_late(patch: Patch) -> None:
    """The promise is about stores that are an iteration younger than it says."""
    changed(patch, forward, "Dependence", lambda original, *args: original(*args[:4], args[4] + 1, args[5]))


def answers_swapped(patch: Patch) -> None:
    changed(patch, answers.Answers, "chosen", lambda original, self, looks, values: original(self, looks, values[::-1]))


def answers_count_as_yes(patch: Patch) -> None:
    """The condition for the next iteration takes every look at a stream for one that found a word, or room."""

    def change(original, self, operand, known):
        return original(self, operand, {name: FALSE if value == TRUE else value for name, value in known.items()})

    changed(patch, answers.Answers, "copied", change)


def parts_count_as_structs(patch: Patch) -> None:
    """Every store to a field is taken for a store of the whole struct."""
    changed(
        patch, whole_stores, "whole_stores", lambda original, accesses, size, needed: original(accesses, size, set())
    )


def parts_of_structs_lost(patch: Patch) -> None:
    """Only the last field that is stored arrives."""

    def change(original, self, *args):
        self.given = {key: Const(each.width, 0) for key, each in self.given.items()}
        return original(self, *args)

    changed(patch, pointers.Pointers, "_store_with_others", change)


def structs_not_read_again(patch: Patch) -> None:
    def change(original, self, *args):
        taken = self.taken
        original(self, *args)
        self.taken = taken

    changed(patch, pointers.Pointers, "_store_with_others", change)


def memory_in_any_order(patch: Patch) -> None:
    """Elements may be stored before they are read, and rows read before the rows before them are stored."""
    patch.setattr(dependence, "memory_edges", lambda body: [])


def library_with(old: str, new: str, patch: Patch, folder: Path) -> None:
    """A mistake in the hand-written library."""
    files = []
    for path in simulate.LIBRARY:
        text = path.read_text()
        copy = folder / path.name
        copy.write_text(text.replace(old, new))
        files.append(copy)
    assert any(old in path.read_text() for path in simulate.LIBRARY)
    patch.setattr(simulate, "LIBRARY", files)


SUITES = {
    "everything": Suite(
        ("n=0:30", "k=-100:100"),
        {
            "reads do not wait": without_gate,
            "late reads do not wait": without_stall,
            "no credits asked for": without_credits,
            "credits not taken": claims_nothing,
            "credits not given back": keeps_unused_places,
            "predicate of reads ignored": predicate_ignored("read"),
            "predicate of writes ignored": predicate_ignored("write"),
            "one pipeline register less": one_stage_less,
            "no dependences between iterations": no_edges_between_iterations,
            "dependence distance off by one": collision_one_iteration_late,
            "loads see stores too early": stale_loads,
            "all branches exclusive": everything_exclusive,
            "carried values too early": carried_too_early,
            "exit condition an iteration late": wrong_lookahead,
            "a process ends too early": early_done,
            "loops enter always": loops_always_enter,
            "counters start at one": constants_start_at_one,
            "sign extension with zeros": zero_extension,
            "subtraction swapped": swap_operands(Opcode.SUB),
            "comparison without sign": swap_opcode(Opcode.SLT, Opcode.ULT),
            "shift without sign": swap_opcode(Opcode.ASHR, Opcode.LSHR),
            "less instead of less or equal": swap_opcode(Opcode.ULE, Opcode.ULT),
        },
    ),
    "nests": Suite(
        ("rows=0:6", "columns=0:9"),
        {
            "rows start like the first one": rows_start_like_the_first,
            "effects of a row in each iteration": effects_in_each_iteration,
            "words of a row's head forgotten": reads_of_a_row_forgotten,
            "skipped rows run": skipped_rows_run,
            "the first row is the last": last_row_left_out,
        },
    ),
    "polling": Suite(
        (),
        {
            "looks are inverted": looks_are_inverted,
            "there is always room": without_credits,
            "a granted place is not taken": claims_nothing,
        },
    ),
    "statics": Suite(
        ("n=0:20",),
        {
            "global numbers reset to zero": number_reset_to_zero,
            "global numbers forgotten": numbers_forgotten,
            "global memory not put back": memory_not_put_back,
            "initial contents in the wrong order": contents_in_the_wrong_order,
            "jobs start during a reset": jobs_start_during_a_reset,
        },
    ),
    "array_ports": Suite(
        ("n=0:20",),
        {
            "array ports are not read": array_ports_not_read,
            "a second port reads like the first": second_port_reads_like_the_first,
            "predicates of stores ignored": predicate_ignored("store"),
        },
    ),
    "in_place": Suite(
        ("n=0:14",),
        {
            "reads and writes of memory in any order": memory_in_any_order,
        },
    ),
    "in_turns": Suite(
        ("n=0:4",),
        {
            "stages that share an array do not wait": stages_do_not_wait,
        },
    ),
    "two_ports": Suite(
        ("n=0:32",),
        {
            "all reads take the second port": all_accesses_take_the_second_port,
            "ports exchange their words": ports_exchange_their_words,
            "accesses of one port meet": a_port_reads_while_it_writes,
            "the second port does not write": second_port_does_not_write,
        },
    ),
    "two_buffers": Suite(
        ("n=0:7",),
        {
            "buffers are not swapped": buffers_not_swapped,
            "stages get values of later iterations": stages_get_later_values,
            "stages do not wait for what they share": stages_need_no_permits,
            "a buffer is filled before it is free": buffers_given_too_often,
            "a loop ends before its stages": loops_end_before_their_stages,
            "what outlives an iteration has two buffers": all_arrays_are_fresh,
        },
    ),
    "forwarding": Suite(
        ("n=0:20",),
        {
            "stores are not forwarded": stores_not_forwarded,
            "older stores win": older_stores_win,
            "stores are forwarded to any place": stores_forwarded_anywhere,
            "stores that were not made are forwarded": stores_forwarded_without_predicate,
            "the memory is right too late": memory_right_too_late,
        },
    ),
    "answers": Suite(
        ("n=0:20",),
        {
            "answers of streams are swapped": answers_swapped,
            "every answer counts as a yes": answers_count_as_yes,
        },
    ),
}


def queue_stands_still(patch: Patch) -> None:
    changed(
        patch,
        queues.Queues,
        "_advance",
        lambda original, self, number, arrays, predicate: (
            None if number is arrays.head else original(self, number, arrays, predicate)
        ),
    )


def queues_are_never_new(patch: Patch) -> None:
    patch.setattr(streams.Streams, "begin", lambda self, address, reach: None)


def queues_too_short(patch: Patch) -> None:
    changed(patch, queues, "_slots", lambda original, queue, regions: (max(1, original(queue, regions)[0] // 2), False))


# Faults of the front end, each with the program that it compiles wrongly.
FRONT_END_FAULTS: dict[str, tuple[str, Fault]] = {
    "a part of a struct counts as all of it": ("whole_structs", parts_count_as_structs),
    "parts of a struct that is stored are lost": ("whole_structs", parts_of_structs_lost),
    "a struct that was stored is not read again": ("whole_structs", structs_not_read_again),
    "a queue gives the same word again": ("queues", queue_stands_still),
    "a new stream has the words of the one before": ("queues", queues_are_never_new),
    "a queue has room for too few words": ("queues", queues_too_short),
}

# Faults of the library, each with a program that needs the part: a FIFO that a stage writes to asks for room only where
# it is no buffer of the stage itself, which takes its places ahead (fifos.py).
LIBRARY_FAULTS = {
    "queue forgets a word when full": ("stream_arrays", "held != COUNT'(DEPTH)", "1'b1"),
    "queue wraps too late": ("everything", "POINTER'(DEPTH - 1)", "POINTER'(DEPTH - 2)"),
    "credits leak": ("everything", "+ COUNT'(pop)", ""),
    "memory ignores its read enable": ("everything", "if (read) read_data", "if (1'b1) read_data"),
}


@functools.cache
def compiled(name: str) -> Program:
    return compile_program(PROGRAMS / f"{name}.cpp", name)


def noticed(name: str, out: Path, *, compile_again: bool = False) -> str:
    """What the comparison says; an error of the compiler or of a tool counts, too."""
    source = PROGRAMS / f"{name}.cpp"
    texts = SUITES[name].choices if name in SUITES else CHOICES.get(name, ())
    choices = dict(parse_choice(text) for text in texts)
    try:
        program = compile_program(source, name) if compile_again else compiled(name)
        design = write_design(program, name, out)
        return cosimulate(design, source, name, cases=25, seed=1, choices=choices, patience=2000).problem
    except (OpenHlsError, NetlistError) as error:
        return f"{type(error).__name__}: {error}"


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name == "everything" else pytest.mark.slow) for name in SUITES]
)
def test_the_healthy_compiler_passes(name: str, tools: None, tmp_path: Path) -> None:
    assert noticed(name, tmp_path) == ""


@pytest.mark.slow
@pytest.mark.parametrize(("name", "fault"), [(name, fault) for name, suite in SUITES.items() for fault in suite.faults])
def test_a_fault_is_noticed(name: str, fault: str, tools: None, tmp_path: Path, monkeypatch: Patch) -> None:
    compiled(name)  # by the healthy front end
    SUITES[name].faults[fault](monkeypatch)
    assert noticed(name, tmp_path) != ""


@pytest.mark.slow
@pytest.mark.parametrize("fault", FRONT_END_FAULTS)
def test_a_fault_of_the_front_end_is_noticed(fault: str, tools: None, tmp_path: Path, monkeypatch: Patch) -> None:
    name, break_it = FRONT_END_FAULTS[fault]
    break_it(monkeypatch)
    assert noticed(name, tmp_path, compile_again=True) != ""


@pytest.mark.slow
@pytest.mark.parametrize("fault", LIBRARY_FAULTS)
def test_a_fault_of_the_library_is_noticed(fault: str, tools: None, tmp_path: Path, monkeypatch: Patch) -> None:
    name, right, wrong = LIBRARY_FAULTS[fault]
    assert noticed(name, tmp_path / "healthy") == ""
    library_with(right, wrong, monkeypatch, tmp_path)
    assert noticed(name, tmp_path / "design") != ""
