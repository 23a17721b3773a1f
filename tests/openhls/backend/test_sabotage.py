# SPDX-License-Identifier: Apache-2.0
"""Faults put into the compiler, one at a time: the comparison with g++ must notice each of them."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from openhls.backend import control, dataflow, datapath, dependence, outside, process, schedule, simulate, verilog
from openhls.backend.cosim import cosimulate, parse_choice
from openhls.backend.design import write_design
from openhls.backend.netlist import ONE, ZERO, NetlistError, negate
from openhls.errors import OpenHlsError
from openhls.frontend.compile import compile_program
from openhls.ir import FALSE, TRUE, Const, Opcode, Program
from openhls.passes import answers, flatten, forward, look_ahead

SOURCE = Path(__file__).parents[1] / "programs/everything.cpp"
NESTS = Path(__file__).parents[1] / "programs/nests.cpp"
POLLING = Path(__file__).parents[1] / "programs/polling.cpp"
STATICS = Path(__file__).parents[1] / "programs/statics.cpp"
ARRAY_PORTS = Path(__file__).parents[1] / "programs/array_ports.cpp"
IN_TURNS = Path(__file__).parents[1] / "programs/in_turns.cpp"
FORWARDING = Path(__file__).parents[1] / "programs/forwarding.cpp"
ANSWERS = Path(__file__).parents[1] / "programs/answers.cpp"
TURN_CHOICES = dict([parse_choice("n=0:4")])
STATE_CHOICES = dict([parse_choice("n=0:20")])
NEST_CHOICES = dict(parse_choice(text) for text in ("rows=0:6", "columns=0:9"))
CHOICES = dict(parse_choice(text) for text in ("n=0:30", "k=-100:100"))

Patch = pytest.MonkeyPatch
Fault = Callable[[Patch], None]


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


def stages_do_not_wait(patch: Patch) -> None:
    """Stages that share an array start with the others."""

    def change(original, self, call, begin, start, fifos):
        return original(self, call, begin, begin, fifos)

    changed(patch, dataflow.Stages, "call", change)


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


FAULTS: dict[str, Fault] = {
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
}

NEST_FAULTS: dict[str, Fault] = {
    "rows start like the first one": rows_start_like_the_first,
    "effects of a row in each iteration": effects_in_each_iteration,
    "words of a row's head forgotten": reads_of_a_row_forgotten,
    "skipped rows run": skipped_rows_run,
    "the first row is the last": last_row_left_out,
}

POLL_FAULTS: dict[str, Fault] = {
    "looks are inverted": looks_are_inverted,
    "there is always room": without_credits,
    "a granted place is not taken": claims_nothing,
}

STATE_FAULTS: dict[str, Fault] = {
    "global numbers reset to zero": number_reset_to_zero,
    "global numbers forgotten": numbers_forgotten,
    "global memory not put back": memory_not_put_back,
    "initial contents in the wrong order": contents_in_the_wrong_order,
    "jobs start during a reset": jobs_start_during_a_reset,
}

PORT_FAULTS: dict[str, Fault] = {
    "array ports are not read": array_ports_not_read,
    "predicates of stores ignored": predicate_ignored("store"),
}

TURN_FAULTS: dict[str, Fault] = {"stages that share an array do not wait": stages_do_not_wait}

FORWARD_FAULTS: dict[str, Fault] = {
    "stores are not forwarded": stores_not_forwarded,
    "older stores win": older_stores_win,
    "stores are forwarded to any place": stores_forwarded_anywhere,
    "stores that were not made are forwarded": stores_forwarded_without_predicate,
    "the memory is right too late": memory_right_too_late,
}

ANSWER_FAULTS: dict[str, Fault] = {
    "answers of streams are swapped": answers_swapped,
    "every answer counts as a yes": answers_count_as_yes,
}

LIBRARY_FAULTS = {
    "queue forgets a word when full": ("held != COUNT'(DEPTH)", "1'b1"),
    "queue wraps too late": ("POINTER'(DEPTH - 1)", "POINTER'(DEPTH - 2)"),
    "credits leak": ("+ COUNT'(pop)", ""),
    "memory ignores its read enable": ("if (read) read_data", "if (1'b1) read_data"),
}


@pytest.fixture(scope="module")
def program() -> Program:
    return compile_program(SOURCE, "everything")


@pytest.fixture(scope="module")
def polling() -> Program:
    return compile_program(POLLING, "polling")


@pytest.fixture(scope="module")
def in_turns() -> Program:
    return compile_program(IN_TURNS, "in_turns")


@pytest.fixture(scope="module")
def statics() -> Program:
    return compile_program(STATICS, "statics")


@pytest.fixture(scope="module")
def array_ports() -> Program:
    return compile_program(ARRAY_PORTS, "array_ports")


@pytest.fixture(scope="module")
def forwarding() -> Program:
    return compile_program(FORWARDING, "forwarding")


@pytest.fixture(scope="module")
def asking() -> Program:
    return compile_program(ANSWERS, "answers")


@pytest.fixture(scope="module")
def nests() -> Program:
    return compile_program(NESTS, "nests")


def noticed(program: Program, out: Path) -> str:
    """What the comparison says; an error of the compiler or of a tool counts, too."""
    source = Path(program.sources[0])
    try:
        design = write_design(program, program.function, out)
        kept = dict.fromkeys((STATICS, ARRAY_PORTS, FORWARDING, ANSWERS), STATE_CHOICES)
        choices = {NESTS: NEST_CHOICES, POLLING: {}, IN_TURNS: TURN_CHOICES, **kept}.get(source, CHOICES)
        return cosimulate(design, source, program.function, cases=25, seed=1, choices=choices, patience=2000).problem
    except (OpenHlsError, NetlistError) as error:
        return f"{type(error).__name__}: {error}"


def test_the_healthy_compiler_passes(program: Program, tools: None, tmp_path: Path) -> None:
    assert noticed(program, tmp_path) == ""


@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_noticed(
    fault: str, program: Program, tools: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    FAULTS[fault](monkeypatch)
    assert noticed(program, tmp_path) != ""


@pytest.mark.slow
@pytest.mark.parametrize("fault", NEST_FAULTS)
def test_a_fault_in_nests_is_noticed(
    fault: str, nests: Program, tools: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    NEST_FAULTS[fault](monkeypatch)
    assert noticed(nests, tmp_path) != ""


@pytest.mark.slow
@pytest.mark.parametrize("fault", POLL_FAULTS)
def test_a_fault_in_polling_is_noticed(
    fault: str, polling: Program, tools: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    POLL_FAULTS[fault](monkeypatch)
    assert noticed(polling, tmp_path) != ""


@pytest.mark.slow
@pytest.mark.parametrize("fault", STATE_FAULTS)
def test_a_fault_of_global_variables_is_noticed(
    fault: str, statics: Program, tools: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    STATE_FAULTS[fault](monkeypatch)
    assert noticed(statics, tmp_path) != ""


@pytest.mark.slow
@pytest.mark.parametrize("fault", TURN_FAULTS)
def test_a_fault_in_the_turns_of_stages_is_noticed(
    fault: str, in_turns: Program, tools: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    TURN_FAULTS[fault](monkeypatch)
    assert noticed(in_turns, tmp_path) != ""


@pytest.mark.slow
@pytest.mark.parametrize("fault", PORT_FAULTS)
def test_a_fault_of_array_arguments_is_noticed(
    fault: str, array_ports: Program, tools: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    PORT_FAULTS[fault](monkeypatch)
    assert noticed(array_ports, tmp_path) != ""


@pytest.mark.slow
@pytest.mark.parametrize("fault", FORWARD_FAULTS)
def test_a_fault_in_forwarding_is_noticed(
    fault: str, forwarding: Program, tools: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    FORWARD_FAULTS[fault](monkeypatch)
    assert noticed(forwarding, tmp_path) != ""


@pytest.mark.slow
@pytest.mark.parametrize("fault", ANSWER_FAULTS)
def test_a_fault_in_answers_ahead_is_noticed(
    fault: str, asking: Program, tools: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ANSWER_FAULTS[fault](monkeypatch)
    assert noticed(asking, tmp_path) != ""


@pytest.mark.slow
@pytest.mark.parametrize("fault", LIBRARY_FAULTS)
def test_a_fault_of_the_library_is_noticed(
    fault: str, program: Program, tools: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    library_with(*LIBRARY_FAULTS[fault], monkeypatch, tmp_path)
    assert noticed(program, tmp_path / "design") != ""
