# SPDX-License-Identifier: Apache-2.0
"""The same random inputs through g++ and through the RTL, and every output compared."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from openhls import store
from openhls.cosim import simulate
from openhls.cosim.causes import cause
from openhls.cosim.driver import build_simulation
from openhls.cosim.simulate import HARNESS, Outcome, ToolError, compiler, run_cases
from openhls.cosim.texts import all_texts
from openhls.emit.design import Design
from openhls.errors import OpenHlsError
from openhls.frontend.toolchain import COMMON
from openhls.ir import Direction

DEFAULT_CHOICE = ((0, 24, 1),)
ELEMENTS = 4096  # of the buffer of a pointer


@dataclass(frozen=True)
class Cosimulation:
    """Runs of the same cases: with stalls, without, and with stalls after a job that a reset has ended."""

    seed: int
    stalled: Outcome
    free: Outcome
    reset: Outcome
    cause: str = ""  # what is wrong with the C++, where they differ

    @property
    def problem(self) -> str:
        after_reset = f"after a reset: {self.reset.problem}" if self.reset.problem else ""
        return self.explained(self.stalled.problem or self.free.problem or after_reset)

    def explained(self, problem: str) -> str:
        """A difference with its cause, if that is known."""
        return f"{self.cause}\n{problem}" if self.cause and problem else problem


Choices = dict[str, tuple[tuple[int, int, int], ...]]


def parse_choice(text: str) -> tuple[str, tuple[tuple[int, int, int], ...]]:
    """`name=1,2,8:64:8`: values and ranges (first:last or first:last:step) of a scalar argument."""
    name, _, values = text.partition("=")
    items = []
    for item in values.split(","):
        try:
            numbers = [int(part, 0) for part in item.split(":")]
        except ValueError:
            numbers = []
        if not 1 <= len(numbers) <= 3 or not name:
            raise OpenHlsError(f"--set {text}: write name=value,first:last,first:last:step")
        first = numbers[0]
        last = numbers[1] if len(numbers) > 1 else first
        items.append((first, last, numbers[2] if len(numbers) > 2 else 1))
        if items[-1][2] < 1 or last < first:
            raise OpenHlsError(f"--set {text}: {item} is empty")
    return name, tuple(items)


def parse_elements(text: str) -> tuple[str, int]:
    """`name=4096`: how many elements the buffer of a pointer has."""
    name, _, count = text.partition("=")
    if not name or not count.isdecimal() or int(count) == 0:
        raise OpenHlsError(f"--elements {text}: write name=count")
    return name, int(count)


def ap_headers() -> Path:
    """Folder of the vendor's ap_int headers, from the Python package hls4ml, found without importing it."""
    for folder in sys.path:
        found = Path(folder) / "hls4ml/templates/vivado/ap_types"
        if (found / "ap_int.h").exists():
            return found
    raise ToolError("the vendor's ap_int headers are missing: pip install --no-deps hls4ml==1.3.0")


def argument_table(design: Design, choices: Choices, sizes: dict[str, int]) -> str:
    """The arguments of the top, as C++ in braces. `sizes`: how many elements a pointer has, where not ELEMENTS."""
    streams = {stream.name: stream for stream in design.process.streams}
    scalars = {scalar.name for scalar in design.process.scalars}
    outputs = {name for name, _ in design.process.outputs}
    arrays = {port.argument: port.levels[0][0] for port in design.ports}
    pointers = {port.name for port in design.memories} | arrays.keys()
    unknown = set(choices) - set(design.arguments) | set(choices) & (set(streams) | pointers)
    if unknown:
        raise OpenHlsError(f"--set: {', '.join(sorted(unknown))} is no scalar argument of {design.top}")
    unknown = set(sizes) - pointers | set(sizes) & arrays.keys()
    if unknown:
        raise OpenHlsError(f"--elements: {', '.join(sorted(unknown))} is no pointer of {design.top}")
    lengths = arrays | {name: len(each) for name, each in design.stream_arrays.items()} | dict(design.sequences)
    arguments = []
    for name in design.arguments:
        members = [streams[each] for each in design.stream_arrays.get(name, (name,)) if each in streams]
        if len({stream.direction for stream in members}) > 1:
            raise OpenHlsError(f"some streams of {name} are read and others written: make it two arguments")
        if name in pointers:
            role = "kMemory"
        elif members:
            role = "kInput" if members[0].direction is Direction.READ else "kOutput"
        elif name in outputs:
            role = "kInOut" if f"{name}_in" in scalars else "kResult"
        else:
            role = "kScalar" if name in scalars else "kUnused"
        items = ", ".join(f"{{{first}, {last}, {step}}}" for first, last, step in choices.get(name, DEFAULT_CHOICE))
        count = sizes.get(name, lengths.get(name, ELEMENTS))
        fields = ", ".join(
            f"{{{each.offset}, {each.bits}, {str(each.is_signed).lower()}}}" for each in design.layouts.get(name, ())
        )
        arguments.append(f"    {{openhls::Role::{role}, {{{{{items}}}}}, {count}, {{{fields}}}}},")
    return "{\n" + "\n".join(arguments) + "\n  }"


def included(header: str, sources: Path | Sequence[Path], function: str) -> str:
    """The lines that include a header of this folder and the sources of the top, and make `function` visible: with C
    linkage its name says nothing of its namespace."""
    files = [sources] if isinstance(sources, Path) else sources
    lines = [f'#include "{file}"' for file in (header, *files)]
    if "::" not in function:
        texts = (file.read_text() for file in files if file.exists())
        names = (name for text in texts for name in re.findall(r"^\s*namespace\s+(\w[\w:]*)\s*\{", text, re.MULTILINE))
        lines += [f"using namespace {name};" for name in dict.fromkeys(names)]
    return "\n".join(lines)


def queue_lines(design: Design, entry: str) -> str:
    """C++ that names the streams that are never late (hls_stream.h)."""
    places = ", ".join(f'{{"{Path(place.file).name}", {place.line}}}' for place in design.queues)
    return f"static const bool queues_of_{entry} = openhls::add_queues({{{places}}});" if places else ""


def reference_text(
    design: Design,
    sources: Path | Sequence[Path],
    function: str,
    choices: Choices,
    entry: str = "main",
    elements: dict[str, int] | None = None,
) -> str:
    """The function `entry` that runs the C++ and records. `elements`: how many a pointer has, where not ELEMENTS."""
    return f"""{included("reference.hpp", sources, function)}
{queue_lines(design, entry)}

int {entry}(int argc, char** argv) {{
  const std::vector<openhls::Argument> arguments = {argument_table(design, choices, elements or {})};
  return openhls::run(&{function}, arguments, argc, argv);
}}
"""


def build_reference(
    design: Design,
    sources: Path | Sequence[Path],
    function: str,
    includes: tuple[Path, ...],
    choices: Choices,
    elements: dict[str, int] | None = None,
    defines: tuple[str, ...] = (),
    more: tuple[str, ...] = (),
) -> Path:
    """The program that runs the C++ and records. `function` is the top's name with its namespaces; `more` are flags of
    g++."""
    main = design.folder / "reference.cpp"
    files = [sources.resolve()] if isinstance(sources, Path) else [each.resolve() for each in sources]
    main.write_text(reference_text(design, files, function, choices, elements=elements))
    # An access outside a buffer stops the program with its C++ line.
    checks = ("-fsanitize=address", "-g1") if design.memories else ()
    flags = (*checks, *(f"-D{each}" for each in defines), *more)
    return link_reference(main, includes, flags)


def reference_command(includes: tuple[Path, ...], flags: tuple[str, ...] = ()) -> list[str]:
    """How the C++ is compiled as software."""
    paths = [f"-I{HARNESS}", f"-I{COMMON}", *(f"-I{include.resolve()}" for include in includes)]
    return ["-std=c++17", "-O0", "-w", "-D__VITIS_HLS__", *flags, *paths, "-isystem", str(ap_headers())]


def compile_reference(
    main: Path, includes: tuple[Path, ...], target: Path, flags: tuple[str, ...] = (), header: Path | None = None
) -> None:
    """The C++ as software, an object file: compiled once for the same texts, in whichever folder they lie. `header`: a
    precompiled one of what `main` includes first."""
    used = [] if header is None else ["-include", str(header)]
    command = [*compiler(), *reference_command(includes, flags), *used, "-c", main.name, "-o"]
    # ccache takes precompiled headers then, and what was compiled in another folder.
    environment = {"CCACHE_SLOPPINESS": "pch_defines,time_macros", "CCACHE_NOHASHDIR": "1"}

    def compile_to(place: Path) -> None:
        simulate.run([*command, os.path.relpath(place, main.parent)], cwd=main.parent, environment=environment)

    headers = [HARNESS, COMMON, *(include.resolve() for include in includes), ap_headers()]
    texts = all_texts(main.resolve(), headers)
    if texts is None:
        compile_to(target)
        return
    parts = [*simulate.tools(), Path(__file__).read_bytes(), *flags, *texts]
    shutil.copy(store.kept("object", parts, lambda folder: compile_to(folder / "object.o")) / "object.o", target)


def precompiled(flags: tuple[str, ...]) -> Path:
    """A header that includes reference.hpp, precompiled for these flags of g++. Macros are left out: if one of them
    matters to reference.hpp, g++ reads the header itself."""
    kept = tuple(flag for flag in flags if not flag.startswith("-D"))
    command = reference_command((), kept)
    headers = [*HARNESS.glob("*.h*"), *COMMON.rglob("*.h*"), *ap_headers().rglob("*.h*")]
    parts: list[str | bytes] = [*simulate.tools(), *kept, Path(__file__).read_bytes(), *store.texts(sorted(headers))]

    def make(folder: Path) -> None:
        (folder / "shared.hpp").write_text('#include "reference.hpp"\n')
        simulate.run(["g++", *command, "-x", "c++-header", "shared.hpp", "-o", "shared.hpp.gch"], cwd=folder)

    return store.kept("header", parts, make) / "shared.hpp"


def link_reference(main: Path, includes: tuple[Path, ...], flags: tuple[str, ...] = ()) -> Path:
    """The program of a `main` that includes reference.hpp first."""
    part = main.with_suffix(".o")
    compile_reference(main, includes, part, flags, precompiled(flags))

    def link(folder: Path) -> None:
        simulate.run(["g++", *flags, part, "-o", folder / "reference"])

    return store.kept("reference", [*simulate.tools(), *flags, part.read_bytes()], link) / "reference"


def check_readable(design: Design) -> None:
    """Verilator's lint takes the design, and Yosys, where it is installed. Raises OpenHlsError."""
    simulate.check_readable(list(design.files), design.top)


def cosimulate(
    design: Design,
    sources: Path | Sequence[Path],
    function: str,
    *,
    cases: int,
    seed: int,
    includes: tuple[Path, ...] = (),
    defines: tuple[str, ...] = (),
    choices: Choices | None = None,
    elements: dict[str, int] | None = None,
    patience: int = simulate.PATIENCE,
    explain: bool = False,
) -> Cosimulation:
    """Run `cases` random cases through both. `explain`: where they differ, look for the cause in the C++. Raises
    OpenHlsError where a tool is missing or the C++ itself fails."""
    check_readable(design)
    record = design.folder / "cases.bin"

    def run_reference(*flags: str) -> subprocess.CompletedProcess[str]:
        program = build_reference(design, sources, function, includes, choices or {}, elements, defines, flags)
        command = [str(program), str(cases), str(seed), str(record)]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    def run_again(flags: tuple[str, ...]) -> tuple[str, bytes] | None:
        done = run_reference(*flags)
        return (done.stderr, record.read_bytes()) if done.returncode == 0 else None

    done = run_reference()
    if done.returncode != 0:
        said = "\n".join(done.stderr.strip().splitlines()[:12])
        raise OpenHlsError(f"the C++ itself fails with random inputs (--set, --elements), seed {seed} on:\n{said}")
    found = replayed(design, record, seed, patience)
    if not found.problem or not explain:
        return found
    files = (sources,) if isinstance(sources, Path) else tuple(sources)
    return replace(found, cause=cause(design, files, run_again))


def replayed(design: Design, record: Path, seed: int, patience: int) -> Cosimulation:
    """Run recorded cases on the RTL."""
    program = build_simulation(design)
    modes = ("stalls", "none", "resets")
    stalled, free, reset = (run_cases(program, record, mode=mode, patience=patience) for mode in modes)
    return Cosimulation(seed, stalled, free, reset)
