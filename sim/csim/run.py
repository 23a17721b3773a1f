"""Run the testbenches against the golden model and print a table."""

from __future__ import annotations

import argparse
import importlib
import json
import os
import subprocess
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from csim import build, vectors


class SimulationError(Exception):
    """A testbench ended without a report."""


@dataclass(frozen=True)
class Result:
    """The report of one testbench. `streams`: name, depth, high_water and words of each stream."""

    kernel: str
    sanitize: bool
    cases: int
    values: int
    mismatches: int
    shown: list[str]
    streams: list[dict[str, Any]]


def run_kernel(kernel: str, seed: int, *, sanitize: bool = False, small: bool | None = None) -> Result:
    """Generate the cases of a kernel, run its testbench on them and return the comparison.

    `small` (default: as `sanitize`) takes the reduced set of cases. Plain runs advance all stages in lockstep,
    sanitizer runs let each stage run ahead, so that both schedules are tested.
    Raises BuildError when it does not compile and SimulationError when the testbench crashes or deadlocks.
    """
    reduced = sanitize if small is None else small
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "cases"
        write_cases(path, kernel, seed, small=reduced)
        return run_cases(kernel, path, sanitize=sanitize)


def write_cases(path: Path, kernel: str, seed: int, *, small: bool) -> None:
    """Write the file of a kernel's cases, with the golden model's results."""
    module = importlib.import_module(f"csim.{kernel}")
    vectors.write(path, module.cases(np.random.default_rng(seed), small))


def run_cases(kernel: str, path: Path, *, sanitize: bool) -> Result:
    """Build the testbench of a kernel, run it on a file of cases and return the comparison."""
    program = build.build(kernel, sanitize=sanitize)
    return Result(kernel, sanitize, **run_program(program, path, run_ahead=sanitize))


def run_program(program: Path, path: Path, *, run_ahead: bool = False) -> dict[str, Any]:
    """Run a testbench on a file of cases and return its report. Raises SimulationError without one."""
    command = [str(program), str(path), *(["--run-ahead"] if run_ahead else [])]
    environment = os.environ | {
        "UBSAN_OPTIONS": "print_stacktrace=1",
        "ASAN_OPTIONS": "detect_stack_use_after_return=0",
    }
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    lines = done.stdout.splitlines()
    if done.returncode not in (0, 1) or not lines or not lines[-1].startswith("{"):
        raise SimulationError(f"{program.name} ended with status {done.returncode}\n{done.stderr[-8000:]}")
    report: dict[str, Any] = json.loads(lines[-1])
    return report


def show(results: Sequence[Result], console: Console) -> None:
    """Print the table of comparisons, the first mismatches and the stream marks."""
    table = Table(title="csim against golden")
    for name in ("kernel", "build", "cases", "values compared", "mismatches"):
        table.add_column(name, justify="left" if name in ("kernel", "build") else "right")
    for r in results:
        built = "sanitizers" if r.sanitize else "plain"
        table.add_row(r.kernel, built, f"{r.cases:,}", f"{r.values:,}", f"{r.mismatches:,}")
    console.print(table)
    for r in results:
        for text in r.shown:
            console.print(f"{r.kernel}: {text}", markup=False, soft_wrap=True)
    show_streams([r for r in results if not r.sanitize], console)


def show_streams(results: Sequence[Result], console: Console) -> None:
    """Print the largest number of words that each stream held in the lockstep runs."""
    table = Table(title="streams (high-water marks)")
    for name in ("kernel", "stream", "depth", "high water", "words"):
        table.add_column(name, justify="left" if name in ("kernel", "stream") else "right")
    for r in results:
        for s in r.streams:
            table.add_row(r.kernel, s["name"], f"{s['depth']:,}", f"{s['high_water']:,}", f"{s['words']:,}")
    if table.rows:
        console.print(table)


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line; returns 1 when anything differs or does not run."""
    parser = argparse.ArgumentParser(prog="csim", description="Compile the kernels with g++ and compare with golden.")
    parser.add_argument("kernels", nargs="*", metavar="KERNEL", help="default: all")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--sanitize", action="store_true", help="also with address and undefined sanitizers, fewer cases"
    )
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="testbenches at a time")
    parser.add_argument("--small", action="store_true", help="the reduced set of cases in the plain build too")
    options = parser.parse_args(arguments)
    known = build.kernels()
    if unknown := set(options.kernels) - set(known):
        parser.error(f"no such kernel: {', '.join(sorted(unknown))}; there are {', '.join(known)}")
    console = Console()
    console.print(f"seed {options.seed}")
    runs = [
        (k, sanitize)
        for k in options.kernels or known
        for sanitize in ((False, True) if options.sanitize else (False,))
    ]

    def run(kernel: str, sanitize: bool) -> Result:
        return run_kernel(kernel, options.seed, sanitize=sanitize, small=sanitize or options.small)

    with Progress(console=console, transient=True) as bar, ThreadPoolExecutor(options.jobs) as pool:
        task = bar.add_task("csim", total=len(runs))
        futures = {pool.submit(run, *job): job for job in runs}
        try:
            for future in as_completed(futures):
                future.result()
                bar.advance(task)
        except (build.BuildError, SimulationError) as error:
            pool.shutdown(cancel_futures=True)
            console.print(f"{futures[future][0]}: {error}", markup=False, soft_wrap=True)
            return 1
    results = [future.result() for future in futures]
    show(results, console)
    return 1 if any(r.mismatches for r in results) else 0
