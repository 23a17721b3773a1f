# SPDX-License-Identifier: Apache-2.0
"""Many small programs at once: one compilation by g++, one simulation, so that a program costs a second or two."""

from __future__ import annotations

import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from openhls import store
from openhls.cosim import link_reference, parse_choice, reference_text, simulate
from openhls.cosim.driver import main_text
from openhls.emit.design import Design
from openhls.errors import OpenHlsError, Unsupported
from openhls.fuzz.generate import CHOICES, ELEMENTS
from openhls.ir import Program
from openhls.pipeline import compile_program, write_design

QUICK = ("-O0",)  # to compile takes longer than to run

DISPATCH = """
#include <cstring>

int main(int argc, char** argv) {{
{calls}
  return 2;
}}
"""
CALL = '  if (argc > 1 && std::strcmp(argv[1], "{name}") == 0) return run_{name}(argc - 1, argv + 1);'


@dataclass(frozen=True)
class Verdict:
    """`problem`: how g++ and RTL differ, or what of the flow failed. `refused`: why the compiler takes no such C++."""

    name: str
    problem: str = ""
    refused: str = ""
    words: int = 0


def dispatched(texts: dict[str, str]) -> str:
    """One source of the functions run_<name>, with a main that calls the one its first argument names."""
    return "\n".join(texts.values()) + DISPATCH.format(calls="\n".join(CALL.format(name=name) for name in texts))


def compile_designs(programs: dict[str, str], out: Path, verdicts: dict[str, Verdict]) -> dict[str, tuple[Design, str]]:
    """Designs that Verilator takes, and the C++ names of their tops; what is none is in `verdicts`."""
    designs = {}
    for name, text in programs.items():
        source = out / f"{name}.cpp"
        source.write_text(text)
        try:
            program = compile_program(source, name)
            designs[name] = compile_design(program, name, out / name), program.function
        except Unsupported as error:
            verdicts[name] = refusal(name, str(error).replace(f"{out}/", ""))
        except Exception as error:  # whatever the compiler does with a program of the subset is a finding
            verdicts[name] = Verdict(name, f"{type(error).__name__}: {error}")
    return designs


def compile_design(program: Program, name: str, out: Path) -> Design:
    """A design that Verilator takes. Raises OpenHlsError."""
    design = write_design(program, name, out)
    model(design, name)
    return design


def model(design: Design, name: str) -> Path:
    """A folder with the C++ class V<name> of a design."""

    def make(folder: Path) -> None:
        simulate.verilate(list(design.files), design.top, f"V{name}", folder)

    parts = [name, *simulate.WAIVED, *simulate.shared_key(), *store.texts([*simulate.LIBRARY, *design.files])]
    return store.kept("model", [design.top, *parts], make)


def simulation(designs: dict[str, Design]) -> Path:
    """A program with the models of all designs, that Yosys takes as well; built once for the same designs."""
    mains = {name: main_text(design, f"V{name}", f"run_{name}") for name, design in designs.items()}
    files = [file for design in designs.values() for file in design.files]

    def make(folder: Path) -> None:
        simulate.second_reader({design.top: design.files for design in designs.values()})
        build = folder / "build"
        for name, design in designs.items():
            shutil.copytree(model(design, name), build, dirs_exist_ok=True)
        (build / "main.cpp").write_text(dispatched(mains))
        simulate.compile_models(build, folder / "simulation", small=True)
        shutil.rmtree(build)

    parts = [*mains.values(), *simulate.shared_key(), *store.texts([*simulate.LIBRARY, *files])]
    return store.kept("batch", parts, make) / "simulation"


def refusal(name: str, text: str) -> Verdict:
    """A refusal has to name a line of the C++, and no linker name."""
    if re.match(rf"{name}\.cpp:[1-9]\d*\b", text) and not re.search(r"\b_Z\w", text):
        return Verdict(name, refused=text)
    return Verdict(name, f"a refusal without a line, or with a linker name: {text}")


def run_batch(programs: dict[str, str], out: Path, cases: int = 20) -> list[Verdict]:
    """Runs C++ programs, by the names of their tops, on `cases` random inputs: with and without stalls on
    every stream, and after jobs that a reset ended.

    `out` is emptied. Raises OpenHlsError if a tool is missing or g++ does not take the programs.
    """
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    verdicts: dict[str, Verdict] = {}
    designs = compile_designs(programs, out, verdicts)
    if designs:
        program = simulation({name: design for name, (design, _) in designs.items()})
        known = dict(parse_choice(text) for text in CHOICES)
        references = {
            name: reference_text(
                design,
                Path(f"{name}.cpp"),
                function,
                {each: known[each] for each in known if each in design.arguments},
                f"run_{name}",
                {port.name: ELEMENTS for port in design.memories},
            )
            for name, (design, function) in designs.items()
        }
        (out / "reference.cpp").write_text(dispatched(references))
        reference = link_reference(out / "reference.cpp", (), QUICK)
        for name in designs:
            verdicts[name] = compare(name, reference, program, out / f"{name}.bin", cases)
    return [verdicts[name] for name in programs]


def compare(name: str, reference: Path, simulation: Path, record: Path, cases: int) -> Verdict:
    command = [str(reference), name, str(cases), "1", str(record)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        return Verdict(name, f"the C++ itself fails with random inputs: {done.stderr.strip()}")
    words = 0
    for mode in ("stalls", "none", "resets"):
        try:
            found = simulate.run_cases(simulation, record, mode=mode, model=name)
        except OpenHlsError as error:
            return Verdict(name, str(error))
        if found.problem:
            return Verdict(name, found.problem)
        words += found.words
    return Verdict(name, words=words)
