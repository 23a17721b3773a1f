# SPDX-License-Identifier: Apache-2.0
"""The commands: `build` writes RTL and a schedule report, `cosim` compares it with g++, `show` prints the IR."""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path

from openhls.backend.cosim import Cosimulation, cosimulate, parse_choice, parse_elements
from openhls.backend.design import CLOCK_MHZ, Design, write_design
from openhls.backend.expect import read_expectation
from openhls.backend.report import as_json
from openhls.errors import OpenHlsError
from openhls.estimate import estimate
from openhls.frontend.compile import compile_program
from openhls.ir import Program
from openhls.printer import print_program


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="openhls", description="C++ for hardware to SystemVerilog.")
    commands = parser.add_subparsers(dest="command", required=True)
    common = argparse.ArgumentParser(add_help=False)
    common.add_argument("file", type=Path, help="the C++ file")
    common.add_argument("--top", required=True, help="the function that becomes the top, without namespaces")
    common.add_argument("-I", dest="includes", type=Path, action="append", default=[], help="an include path")
    hardware = argparse.ArgumentParser(add_help=False)
    hardware.add_argument("--clock", type=float, metavar="MHZ", help=f"target (default: of --expect, or {CLOCK_MHZ})")
    hardware.add_argument(
        "--expect", type=Path, metavar="TOML", help="fail unless each loop has the II of its table [loops]"
    )
    hardware.add_argument("--json", action="store_true", help="print the report as JSON")
    build = commands.add_parser("build", parents=[common, hardware], help="write the RTL and the schedule report")
    build.add_argument("--out", type=Path, required=True, help="the folder to write")
    cosim = commands.add_parser("cosim", parents=[common, hardware], help="compare g++ and RTL on random inputs")
    cosim.add_argument("--cases", type=int, default=20, help="how many random cases (default %(default)s)")
    cosim.add_argument("--seed", type=int, default=1, help="seed of the first case, each next one adds 1")
    cosim.add_argument("--stalls", action="store_true", help="also run every case with random stalls on every stream")
    cosim.add_argument(
        "--set", dest="choices", action="append", default=[], metavar="NAME=1,8:64:8", help="scalar values"
    )
    cosim.add_argument(
        "--elements", dest="sizes", action="append", default=[], metavar="NAME=4096", help="elements behind a pointer"
    )
    cosim.add_argument("--out", type=Path, help="keep what is written in this folder")
    area = commands.add_parser("estimate", help="count LUTs, DSPs and memories of built RTL with Yosys, as JSON")
    area.add_argument("folder", type=Path, help="what `build --out` wrote")
    area.add_argument("--top", required=True, help="the top module")
    commands.add_parser("show", parents=[common], help="print what the front end made of the program")
    return parser


def _report(program: Program, design: Design) -> dict[str, object]:
    return {
        "top": design.top,
        "clock_mhz": design.clock_mhz,
        "sources": list(program.sources),
        "files": [str(path) for path in (*design.files, *design.library)],
        "regions": as_json(list(design.regions)),
    }


def _design(options: argparse.Namespace, program: Program, out: Path) -> Design:
    expected = read_expectation(options.expect) if options.expect is not None else None
    clock_mhz = options.clock or (expected.clock_mhz if expected is not None else None) or CLOCK_MHZ
    return write_design(program, options.top, out, clock_mhz, expected)


def _build(options: argparse.Namespace, program: Program) -> int:
    design = _design(options, program, options.out)
    print(json.dumps(_report(program, design), indent=1) if options.json else design.text())
    return 0


def _cosim(options: argparse.Namespace, program: Program, out: Path) -> int:
    design = _design(options, program, out)
    found = cosimulate(
        design,
        options.file,
        program.function,
        cases=options.cases,
        seed=options.seed,
        includes=tuple(options.includes),
        choices=dict(parse_choice(text) for text in options.choices),
        elements=dict(parse_elements(text) for text in options.sizes),
    )
    problem = found.problem if options.stalls else found.free.problem
    if options.json:
        print(json.dumps(_report(program, design) | _comparison(found, problem), indent=1))
    else:
        print(design.text())
        last = options.seed + options.cases - 1
        print(f"seeds {options.seed} to {last}: {found.free.words} words compared")
        print(f"cycles without stalls: {' '.join(str(count) for count in found.free.cycles)}")
        print(problem or "g++ and RTL agree")
    return 1 if problem else 0


def _comparison(found: Cosimulation, problem: str) -> dict[str, object]:
    return {"seed": found.seed, "words": found.free.words, "cycles": list(found.free.cycles), "problem": problem}


def main(arguments: list[str] | None = None) -> int:
    """0: done, or g++ and RTL agree; 1: they differ; 2: the program is refused or a tool is missing."""
    options = _parser().parse_args(arguments)
    try:
        if options.command == "estimate":
            print(json.dumps(estimate(options.folder, options.top), indent=1))
            return 0
        program = compile_program(options.file, options.top, tuple(options.includes))
        if options.command == "show":
            print(print_program(program), end="")
            return 0
        if options.command == "build":
            return _build(options, program)
        if options.out is not None:
            return _cosim(options, program, options.out)
        with tempfile.TemporaryDirectory(prefix="openhls-") as folder:
            return _cosim(options, program, Path(folder))
    except OpenHlsError as error:
        print(f"openhls: {error}", file=sys.stderr)
        return 2
