# SPDX-License-Identifier: Apache-2.0
"""The commands: `new` makes a project, `csim` runs the C++ as software, `build` writes RTL and a schedule report,
`cosim` compares the two, `report` prints the schedule of built RTL, `show` the program in between, `estimate` counts
LUTs."""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

from openhls.config import Component, read_config
from openhls.cosim import Cosimulation, cosimulate, parse_choice, parse_elements
from openhls.cosim.simulate import PATIENCE
from openhls.cosim.testbench import TestbenchRun, replay_testbench, run_testbench
from openhls.emit.design import Design
from openhls.emit.expect import read_expectation
from openhls.emit.netlist import NetlistError
from openhls.emit.report import as_json
from openhls.errors import OpenHlsError
from openhls.estimate import estimate
from openhls.frontend.diagnostics import WrongCpp
from openhls.frontend.directives import read_tcl
from openhls.frontend.interfaces import FLOWS
from openhls.ir import Program
from openhls.new import make_project
from openhls.pipeline import checked, compile_program, write_design
from openhls.printer import print_program
from openhls.schedule.target import DEFAULT, platform_names, target_of

REFUSED = 2
FAULT = 3


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="openhls", description="C++ for hardware to SystemVerilog.")
    commands = parser.add_subparsers(dest="command", required=True)
    software = argparse.ArgumentParser(add_help=False)
    software.add_argument(
        "files", type=Path, nargs="*", metavar="FILE", help="C++ files, one translation unit together"
    )
    software.add_argument("--config", type=Path, metavar="CFG", help="files, top, flags and clock of a hls_config.cfg")
    software.add_argument("-I", dest="includes", type=Path, action="append", default=[], help="an include path")
    software.add_argument("-D", dest="defines", action="append", default=[], metavar="NAME[=X]", help="a macro")
    source = argparse.ArgumentParser(add_help=False, parents=[software])
    source.add_argument("--top", default="", help="the function that becomes the top, without namespaces")
    source.add_argument("--flow", choices=FLOWS, help="what arguments without INTERFACE are (vitis: m_axi)")
    source.add_argument("--directives", type=Path, metavar="TCL", help="set_directive_... commands")
    source.add_argument("--strict", action="store_true", help="refuse what would be a warning: pragmas without effect")
    source.add_argument("--verbose", action="store_true", help="print all that clang says about wrong C++")
    source.add_argument("--verify", action="store_true", help="check the rules of the IR after every pass")
    hardware = argparse.ArgumentParser(add_help=False)
    hardware.add_argument("--platform", choices=platform_names(), default=DEFAULT, help="the device (%(default)s)")
    hardware.add_argument("--clock", type=float, metavar="MHZ", help="default: of --expect, or of the platform")
    hardware.add_argument(
        "--expect", type=Path, metavar="TOML", help="fail unless each loop has the II of its table [loops]"
    )
    hardware.add_argument("--json", action="store_true", help="print the report as JSON")
    bench = argparse.ArgumentParser(add_help=False)
    bench.add_argument("--tb", dest="benches", type=Path, action="append", default=[], help="a file of the testbench")
    new = commands.add_parser("new", help="make a folder with a kernel, a testbench and their description")
    new.add_argument("folder", type=Path, metavar="NAME", help="the folder; the kernel gets its name")
    commands.add_parser("csim", parents=[software, bench], help="compile with g++ and run the testbench's main")
    build = commands.add_parser("build", parents=[source, hardware], help="write the RTL and the schedule report")
    build.add_argument("--out", type=Path, required=True, help="the folder to write")
    cosim = commands.add_parser(
        "cosim", parents=[source, hardware, bench], help="compare g++ and RTL: the testbench's calls, or random inputs"
    )
    cosim.add_argument("--random", action="store_true", help="random inputs although there is a testbench")
    cosim.add_argument("--cases", type=int, default=20, help="how many random cases (default %(default)s)")
    cosim.add_argument("--seed", type=int, default=1, help="seed of the first case, each next one adds 1")
    cosim.add_argument("--stalls", action="store_true", help="also run every case with random stalls on every stream")
    cosim.add_argument(
        "--set", dest="choices", action="append", default=[], metavar="NAME=1,8:64:8", help="scalar values"
    )
    cosim.add_argument(
        "--elements", dest="sizes", action="append", default=[], metavar="NAME=4096", help="elements behind a pointer"
    )
    cosim.add_argument(
        "--patience",
        type=int,
        default=PATIENCE,
        metavar="CYCLES",
        help="cycles that a job may compute without a word (default %(default)s); one that waits for ever ends at once",
    )
    cosim.add_argument("--out", type=Path, help="keep what is written in this folder")
    report = commands.add_parser("report", help="print the schedule of built RTL")
    report.add_argument("folder", type=Path, help="what `build --out` wrote")
    area = commands.add_parser("estimate", help="count LUTs, DSPs and memories of built RTL with Yosys, as JSON")
    area.add_argument("folder", type=Path, help="what `build --out` wrote")
    area.add_argument("--top", required=True, help="the top module")
    commands.add_parser("show", parents=[source], help="print what the front end made of the program")
    return parser


def _component(options: argparse.Namespace) -> Component:
    """What the command line names, after what --config does. Raises OpenHlsError without a source."""
    found = read_config(options.config) if options.config is not None else Component((), "")
    found = replace(
        found,
        sources=(*found.sources, *options.files),
        includes=(*found.includes, *options.includes),
        defines=(*found.defines, *options.defines),
        top=getattr(options, "top", "") or found.top,
        flow=getattr(options, "flow", None) or found.flow,
    )
    if getattr(options, "directives", None) is not None:
        found = replace(found, directives=(*found.directives, *read_tcl(options.directives)))
    if not found.sources:
        raise OpenHlsError("name a C++ file, or a --config that does")
    missing = [str(path) for path in (*found.sources, *found.testbenches) if not path.exists()]
    if missing:
        raise OpenHlsError(f"{missing[0]}: no such file")
    return found


def _compiled(options: argparse.Namespace, component: Component) -> Program:
    if not component.top:
        raise OpenHlsError("name the function that becomes the top: --top NAME")
    program = compile_program(
        component.sources,
        component.top,
        component.includes,
        component.defines,
        strict=options.strict,
        flow=component.flow,
        directives=component.directives,
    )
    for warning in program.warnings:
        print(f"openhls: {warning}", file=sys.stderr)
    return program


def _report(program: Program, design: Design) -> dict[str, object]:
    return {
        "top": design.top,
        "platform": design.target.platform,
        "clock_mhz": design.target.clock_mhz,
        "sources": list(program.sources),
        "warnings": list(program.warnings),
        "files": [str(path) for path in (*design.files, *design.library)],
        "regions": as_json(list(design.regions)),
    }


def _design(options: argparse.Namespace, component: Component, program: Program, out: Path) -> Design:
    expected = read_expectation(options.expect) if options.expect is not None else None
    stated = options.clock or (expected.clock_mhz if expected is not None else None) or component.clock_mhz
    return write_design(program, component.top, out, target_of(stated, options.platform), expected)


def _csim(options: argparse.Namespace, component: Component) -> int:
    benches = (*component.testbenches, *options.benches)
    if not benches:
        raise OpenHlsError("name a file with a main function: --tb FILE")
    with tempfile.TemporaryDirectory(prefix="openhls-") as folder:
        files = (*component.sources, *benches)
        return run_testbench(files, Path(folder), component.includes, component.defines)


def _build(options: argparse.Namespace, component: Component, program: Program) -> int:
    design = _design(options, component, program, options.out)
    print(json.dumps(_report(program, design), indent=1) if options.json else design.text())
    return 0


def _cosim(options: argparse.Namespace, component: Component, program: Program, out: Path) -> int:
    design = _design(options, component, program, out)
    benches = (*component.testbenches, *options.benches)
    run = None
    if benches and not options.random:
        run = replay_testbench(
            design,
            component.sources,
            program.function,
            benches,
            includes=component.includes,
            defines=component.defines,
            patience=options.patience,
            explain=True,
        )
        found, what = run.found, f"testbench: status {run.status}, {run.calls} calls of {component.top}"
    else:
        found = cosimulate(
            design,
            component.sources,
            program.function,
            cases=options.cases,
            seed=options.seed,
            includes=component.includes,
            defines=component.defines,
            choices=dict(parse_choice(text) for text in options.choices),
            elements=dict(parse_elements(text) for text in options.sizes),
            patience=options.patience,
            explain=True,
        )
        what = f"seeds {options.seed} to {options.seed + options.cases - 1}"
    problem = found.problem if options.stalls else found.explained(found.free.problem)
    if options.json:
        print(json.dumps(_report(program, design) | _comparison(found, problem, run), indent=1))
    else:
        print(design.text())
        print(f"{what}: {found.free.words} words compared")
        print(f"cycles without stalls: {' '.join(str(count) for count in found.free.cycles)}")
        print(problem or "g++ and RTL agree")
    return 1 if problem else 0 if run is None else run.status


def _comparison(found: Cosimulation, problem: str, run: TestbenchRun | None) -> dict[str, object]:
    common = {"words": found.free.words, "cycles": list(found.free.cycles), "problem": problem}
    return common | ({"seed": found.seed} if run is None else {"status": run.status, "calls": run.calls})


def _of_folder(options: argparse.Namespace) -> int:
    """A new project, and the commands about RTL that is there already."""
    if options.command == "new":
        for path in make_project(options.folder):
            print(path)
        for command in ("csim", f"build --out {options.folder}/rtl", "cosim --stalls"):
            name, _, rest = command.partition(" ")
            print(f"  openhls {name} --config {options.folder}/hls_config.cfg {rest}".rstrip())
        return 0
    if options.command == "estimate":
        print(json.dumps(estimate(options.folder, options.top), indent=1))
        return 0
    path = options.folder / "schedule.txt"
    if not path.exists():
        raise OpenHlsError(f"{path} does not exist: run `openhls build --out {options.folder}`")
    print(path.read_text(), end="")
    return 0


def _of_source(options: argparse.Namespace) -> int:
    component = _component(options)
    if options.command == "csim":
        return _csim(options, component)
    with checked(options.verify):
        program = _compiled(options, component)
        if options.command == "show":
            print(print_program(program), end="")
            return 0
        if options.command == "build":
            return _build(options, component, program)
        if options.out is not None:
            return _cosim(options, component, program, options.out)
        with tempfile.TemporaryDirectory(prefix="openhls-") as folder:
            return _cosim(options, component, program, Path(folder))


def main(arguments: list[str] | None = None) -> int:
    """0: done, or g++ and RTL agree; 1: they differ; 2: the program is refused or a tool is missing; 3: openhls itself
    is at fault. `csim`, and `cosim` where g++ and RTL agree, return what the testbench does."""
    options = _parser().parse_args(arguments)
    try:
        return _of_folder(options) if options.command in ("new", "estimate", "report") else _of_source(options)
    except OpenHlsError as error:
        print(f"openhls: {error}", file=sys.stderr)
        if isinstance(error, WrongCpp) and getattr(options, "verbose", False):
            print(error.details, file=sys.stderr)
        return REFUSED
    except (NetlistError, AssertionError, LookupError, TypeError, ValueError, RecursionError) as error:
        what = f"{type(error).__name__}: {error}".rstrip(": ")
        print(f"openhls: a fault of openhls, not of the C++ ({what}); please report the source", file=sys.stderr)
        return FAULT


def run() -> None:
    """The command `openhls`."""
    sys.exit(main())
