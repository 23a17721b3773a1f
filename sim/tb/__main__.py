# SPDX-License-Identifier: Apache-2.0
"""`make sim`: the regression of each kernel, with tables.

python -m tb [KERNEL ...] [--seed N] [--small] [--record] [--stale]
"""

from __future__ import annotations

import argparse
import re
import sys

from rich.console import Console
from rich.table import Table

from openhls.errors import OpenHlsError
from rtl.kernels import Top, all_tops, find_tops
from tb import verified
from tb.run import Result, run_top


def tops_of(names: list[str]) -> list[Top]:
    """The tops that are named, all of a kernel by its name; without names the smallest group of each engine."""
    if names:
        return [top for name in names for top in find_tops(name)]
    return list({re.sub(r"_g\d+$", "", top.name): top for top in reversed(all_tops())}.values())[::-1]


def show(result: Result, console: Console) -> None:
    state = f"{len(result.tests) - len(result.failures)} of {len(result.tests)} tests passed"
    console.print(f"{result.top.name}: {state}; {result.log.parent}", soft_wrap=True)
    table = Table(title=f"{result.top.name}: FIFOs")
    for name in ("FIFO", "depth", "high water"):
        table.add_column(name, justify="left" if name == "FIFO" else "right")
    for one in result.report.get("fifos", []):
        table.add_row(one["fifo"], f"{one['depth']:,}", f"{one['high_water']:,}")
    console.print(table)
    for test, text in result.failures.items():
        console.print(f"FAILED {result.top.name}, {test}: {text}", markup=False, soft_wrap=True)
        if test in result.waveforms:
            console.print(f"  waveform: {result.waveforms[test]}", markup=False, soft_wrap=True)


def is_stale(top: Top, console: Console) -> bool:
    """Say why a top must run again, if it must."""
    reason = verified.problem(top)
    console.print(f"{top.name}: " + (f"runs again, {reason}" if reason else "its record is valid"), soft_wrap=True)
    return reason != ""


def main(arguments: list[str] | None = None) -> int:
    """0: all passed; 1: a test failed or a kernel does not compile; 2: no such kernel."""
    parser = argparse.ArgumentParser(prog="python -m tb", description=__doc__)
    parser.add_argument(
        "kernels", nargs="*", metavar="KERNEL", help="a kernel or a top; default: the smallest top of each"
    )
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--small", action="store_true", help="the reduced set of cases; coverage may have holes")
    parser.add_argument("--record", action="store_true", help="note in bitstreams/<top>.json that the top has passed")
    parser.add_argument("--stale", action="store_true", help="only tops without a valid record")
    options = parser.parse_args(arguments)
    console = Console()
    console.print(f"seed {options.seed}")
    try:
        tops = tops_of(options.kernels)
    except OpenHlsError as error:
        print(f"tb: {error}", file=sys.stderr)
        return 2
    failed = False
    for top in tops:
        try:
            if options.stale and not is_stale(top, console):
                if options.record:
                    verified.renew(top)
                continue
            result = run_top(top, options.seed, small=options.small)
            if result.failures:
                verified.forget(top)
            elif options.record:
                verified.record(result, options.seed, small=options.small)
        except OpenHlsError as error:
            console.print(f"FAILED {top.name}: {error}", markup=False, soft_wrap=True)
            failed = True
            continue
        show(result, console)
        failed = failed or bool(result.failures)
    return int(failed)


if __name__ == "__main__":
    raise SystemExit(main())
