# SPDX-License-Identifier: Apache-2.0
"""The front end as a whole: a C++ file and the name of its top to a program.

Each process is finished by passes, which the caller gives, as soon as it is lowered: callees first, for what callers
connect to is what is left of a callee.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from openhls.errors import OpenHlsError, Unsupported
from openhls.frontend.addresses import Path as Steps
from openhls.frontend.context import Context, Granule, make_context, usual_element
from openhls.frontend.diagnostics import WrongCpp
from openhls.frontend.directives import Directive
from openhls.frontend.interfaces import FLOWS, Interfaces
from openhls.frontend.llvm.instructions import FloatingPoint
from openhls.frontend.llvm.module import Function, Module
from openhls.frontend.llvm.reader import read_module
from openhls.frontend.lowering import Lowering
from openhls.frontend.pragmas import Notes
from openhls.frontend.short_loops import Place, loops_that_wait
from openhls.frontend.stages import Interface
from openhls.frontend.tables import elements_of, layout
from openhls.frontend.toolchain import SHIM, Compiled, compile_source, missing_switches
from openhls.ir import ArrayPort, Location, Process, Program, State
from openhls.lowered import Lowered

Finish = Callable[[Lowered, Mapping[str, Process]], Lowered]  # the second: the callees


class _Compiler:
    def __init__(self, module: Module, notes: Notes, finish: Finish) -> None:
        self._module = module
        self._finish = finish
        self._notes = notes
        self._done: dict[tuple[object, ...], Interface] = {}
        self._names: set[str] = set()
        self.processes: list[Interface] = []
        self.counts: Mapping[str, int] = {}  # words of the sequences

    def compile(self, context: Context, sequences: Mapping[str, int] | None = None) -> Interface:
        """The process of a function, after those it calls. `sequences`: its pointers that become streams."""
        key = context.key()
        if key not in self._done:
            interfaces = {call: self.compile(stage) for call, stage in context.calls.items()}
            name = self._fresh(context.function.cpp_name)
            lowering = Lowering(self._module, context, self._notes, interfaces, name)
            lowered = replace(lowering.run(), sequences=sequences or {})
            finished = self._finish(lowered, lowering.callees())
            self.counts = finished.counts
            interface = lowering.interface(finished.process)
            self._done[key] = interface
            self.processes.append(interface)
        return self._done[key]

    def _fresh(self, wish: str) -> str:
        name, count = wish, 1
        while name in self._names:
            count += 1
            name = f"{wish}_{count}"
        self._names.add(name)
        return name


def _arguments(function: Function, interface: Interface) -> tuple[str, ...]:
    """The C++ parameters of the top in order; the pointer to a returned number is not one of them."""
    by_parameter = {parameter: name for name, parameter, _ in interface.scalars}
    by_parameter |= {parameter: name for name, parameter, _ in interface.outputs if parameter}
    arrays = {parameter for _, parameter, which in interface.streams if which}
    by_parameter |= {parameter: name for name, parameter, _ in interface.streams if parameter not in arrays}
    names = [name for name, _ in function.parameters if name != function.returned]
    return tuple(by_parameter.get(name, name) for name in names)


def _stream_arrays(context: Context, interface: Interface) -> dict[str, tuple[str, ...]]:
    """The streams of each array of streams among the arguments. Raises Unsupported where some are not used."""
    found = {}
    for parameter in dict.fromkeys(parameter for _, parameter, which in interface.streams if which):
        names = {which: name for name, owner, which in interface.streams if owner == parameter}
        if sorted(names) != list(range(context.counts.get(parameter, 0))):
            raise Unsupported(
                context.function.location, f"argument {parameter}: streams of the array that are not used", "use all"
            )
        found[parameter] = tuple(names[which] for which in sorted(names))
    return found


def _array_ports(context: Context, interface: Interface) -> tuple[ArrayPort, ...]:
    """Where the elements of the external arrays of the top lie in its array arguments."""
    return tuple(
        ArrayPort(name, base, *layout(context.objects[base].root, path))
        for name, base, path in interface.arrays
        if not base.startswith("@")
    )


def _states(module: Module, interface: Interface) -> tuple[State, ...]:
    """The global variables, in the arrays, outputs and scalars of the top's process."""

    def initial(base: str, path: Steps) -> tuple[int, ...]:
        kept = module.statics[base[1:]]
        return elements_of(kept.data, kept.type, path)

    def place(base: str) -> Location:
        return module.statics[base[1:]].variable.location

    given = {(base, path): name for name, base, path in interface.scalars}
    arrays = [
        State(name, initial(base, path), is_array=True, location=place(base))
        for name, base, path in interface.arrays
        if base.startswith("@")
    ]
    numbers = [
        State(name, initial(base, path), given.get((base, path), ""), location=place(base))
        for name, base, path in interface.outputs
        if base.startswith("@") and path is not None
    ]
    written = {state.scalar for state in numbers}
    constants = [
        State(name, initial(base, path), name, location=place(base))
        for name, base, path in interface.scalars
        if base is not None and base.startswith("@") and path is not None and name not in written
    ]
    return (*arrays, *numbers, *constants)


def lower_program(
    source: Path | Sequence[Path],
    top: str,
    includes: tuple[Path, ...],
    defines: tuple[str, ...],
    finish: Finish,
    *,
    strict: bool = False,
    flow: str = FLOWS[0],
    directives: tuple[Directive, ...] = (),
) -> Program:
    """`flow`: what arguments without INTERFACE are (interfaces.FLOWS). Raises Unsupported for C++ outside the subset,
    with `strict` also for what would be a warning; OpenHlsError for wrong C++ or missing tools."""

    def attempt(unrolled: frozenset[Place], folded: frozenset[Place] = frozenset()) -> Program:
        compiled = compile_source(source, top, includes, defines, directives, unrolled, folded)
        try:
            return _compile(compiled, strict, flow, finish)
        except FloatingPoint as error:
            place = error.location.file, error.location.line
            if place in folded:
                raise
            try:  # numbers that constants give, such as a table of sines
                return attempt(unrolled, folded | {place})
            except FloatingPoint:
                raise error from None

    try:
        program = attempt(frozenset())
    except OpenHlsError as error:
        sources = [source] if isinstance(source, Path) else source
        raise _with_switches(error, missing_switches(sources, includes, defines)) from None
    waiting = {place: inner for place, inner in loops_that_wait(program).items() if inner}
    if waiting:
        try:
            other = attempt(frozenset[Place]().union(*waiting.values()))
        except Unsupported:
            return program
        if not waiting.keys() & loops_that_wait(other).keys():
            return other
    return program


def _with_switches(error: OpenHlsError, missing: list[str]) -> OpenHlsError:
    """The error, with the macros that may avoid it."""
    if not missing:
        return error
    hint = f"if the build of this source defines {' or '.join(missing)}, define it here, too: -D {missing[0]}"
    if isinstance(error, Unsupported):
        return Unsupported(error.location, error.problem, f"{error.advice}; {hint}")
    return WrongCpp(f"{error}; {hint}", error.details) if isinstance(error, WrongCpp) else error


def _compile(compiled: Compiled, strict: bool, flow: str, finish: Finish) -> Program:
    """What clang made of the source, as a program."""
    module = read_module(compiled.text, str(SHIM))
    function = module.functions[compiled.top]
    compiler = _Compiler(module, compiled.notes, finish)
    interfaces = Interfaces(compiled.notes, function, flow)
    sequences = interfaces.sequences()
    wanted = interfaces.pointers() | sequences
    memories = frozenset(name for name, _ in function.parameters if name.removesuffix(".coerce") in wanted)
    hidden = {
        name: Granule(element=usual_element(function.pointees.get(name)), hides_padding=True) for name in sequences
    }
    context = make_context(module, function, {}, memories, bounds=compiled.notes.bounds, granules=hidden)
    elements = {name: function.pointees[name].size if name in function.pointees else 0 for name in sequences}
    interface = compiler.compile(context, elements)
    arguments = _arguments(function, interface)
    parameters = (name for name, _ in function.parameters if name != function.returned)
    names = dict(zip(parameters, arguments, strict=True))
    names |= {name.removesuffix(".coerce"): argument for name, argument in names.items()}
    arrays = _stream_arrays(context, interface)
    notes = compiled.notes
    for place in (place for place, of_array in notes.dependences.items() if not of_array):
        notes.warn(place, "DEPENDENCE has no effect: no loop accesses its variable as an array")
    for warning in module.warnings:
        notes.warn(*warning)
    if strict and notes.warnings:
        location, problem = notes.warnings[0]
        raise Unsupported(location, problem, "leave it out, or compile without --strict")
    return Program(
        interface.process.name,
        {each.process.name: each.process for each in compiler.processes},
        arguments,
        function.full_name,
        notes.files,
        interfaces.memories(interface.process, names),
        interfaces.registers(interface.process, names),
        tuple(f"{location}: warning: {text}" for location, text in notes.warnings),
        _array_ports(context, interface),
        _states(module, interface),
        {
            name: channels
            for parameter, channels in function.channels.items()
            for name in arrays.get(parameter, (names[parameter],))
        },
        arrays,
        compiler.counts,
        tuple(dict.fromkeys(place for each in compiler.processes for place in each.queues)),
        {
            name: fields
            for parameter, fields in function.layouts.items()
            if parameter in names
            for name in (names[parameter], *arrays.get(parameter, ()))
        },
    )
