"""Run the benchmarks of a suite, keep their results in results/SUITE/MACHINE.json, and write the pages with them."""

from __future__ import annotations

import argparse
import os
import sys

from bench import results
from bench.setup import Setup
from bench.suites import SUITES, runner
from kvdrive.errors import KvdriveError
from kvdrive.tree import ROOT


def listing() -> str:
    """The suites and their benchmarks."""
    lines = []
    for suite, names in SUITES.items():
        lines += [f"\n{suite}", *(f"  {name:22} {about}" for name, about in names.items())]
    return "\n".join(lines).strip()


def main(arguments: list[str] | None = None) -> int:
    """Exit status 1 if a benchmark could not run; the others' results are kept."""
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("suite", nargs="?", choices=SUITES, help="without one, all are listed")
    parser.add_argument("--only", nargs="+", default=[], metavar="NAME", help="benchmarks of the suite")
    parser.add_argument("--quick", action="store_true", help="seconds instead of minutes; nothing is kept")
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    given = parser.parse_args(arguments)
    if given.suite is None:
        print(listing())
        return 0
    known = SUITES[given.suite]
    if unknown := [name for name in given.only if name not in known and name.partition("/")[0] not in known]:
        parser.error(f"{given.suite} has {', '.join(known)}, not {', '.join(unknown)}")
    setup, failed = Setup(given.quick, given.threads), 0
    for name in given.only or known:
        try:
            blocks = runner(given.suite, name)(setup)
        except KvdriveError as error:
            print(f"{given.suite}, {name}: {error}", file=sys.stderr)
            failed += 1
            continue
        for block in blocks:
            print("\n\n".join([f"{given.suite}/{block.name}", *(table.text() for table in block.tables)]), end="\n\n")
        if blocks and not setup.quick:
            print(f"kept in {results.save(given.suite, blocks, setup).relative_to(ROOT)}; `make pages` shows it")
    return int(failed > 0)
