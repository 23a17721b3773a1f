# SPDX-License-Identifier: Apache-2.0
"""Random programs in batches, side by side; what fails is made small and kept."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, field
from pathlib import Path

from openhls.cosim import compile_reference
from openhls.errors import OpenHlsError
from openhls.fuzz.batch import Verdict, run_batch
from openhls.fuzz.generate import random_program, top_name
from openhls.fuzz.shrink import shrink

BATCH = 25  # programs


@dataclass
class Summary:
    """Programs compared, values compared, those that the compiler takes not, and those that failed."""

    programs: int = 0
    words: int = 0
    refused: list[Verdict] = field(default_factory=list)
    failed: list[Verdict] = field(default_factory=list)

    def add(self, verdicts: list[Verdict]) -> None:
        self.programs += len(verdicts)
        self.words += sum(verdict.words for verdict in verdicts)
        self.refused += [verdict for verdict in verdicts if verdict.refused]
        self.failed += [verdict for verdict in verdicts if verdict.problem]

    def text(self) -> str:
        return (
            f"{self.programs} programs, {self.words} values compared, "
            f"{len(self.refused)} refused, {len(self.failed)} failed"
        )


def run_seeds(seeds: range) -> list[Verdict]:
    """One batch of random programs."""
    with tempfile.TemporaryDirectory(prefix="openhls-fuzz-") as folder:
        programs = {top_name(seed): random_program(seed) for seed in seeds}
        return run_batch(programs, Path(folder) / "batch")


def fuzz(first: int, count: int, jobs: int) -> Iterator[Summary]:
    """Programs `first` to `first + count - 1`; yields the summary so far after each batch."""
    seeds = [range(at, min(at + BATCH, first + count)) for at in range(first, first + count, BATCH)]
    summary = Summary()
    own = tempfile.TemporaryDirectory(prefix="openhls-fuzz-")  # what is compiled here is of no use to anybody later
    setting = ("OPENHLS_CACHE", own.name)
    with own, ProcessPoolExecutor(jobs, initializer=os.environ.__setitem__, initargs=setting) as pool:
        for done in as_completed([pool.submit(run_seeds, batch) for batch in seeds]):
            summary.add(done.result())
            yield summary


def still_fails(name: str, text: str) -> bool:
    """True if g++ takes a program that has the top `name`, and RTL differs from it."""
    with tempfile.TemporaryDirectory(prefix="openhls-shrink-") as folder:
        source = Path(folder) / "program.cpp"
        source.write_text(f"{text}\nauto* const top = &{name};\n")
        try:
            compile_reference(source, (), Path(folder) / "program.o")
        except OpenHlsError:
            return False
        return bool(run_batch({name: text}, Path(folder) / "batch")[0].problem)


def keep(verdict: Verdict, folder: Path) -> Path:
    """Writes the smallest program that was found to fail like `verdict`, as a regression case."""
    name = verdict.name
    text = random_program(int(name.removeprefix(top_name(0)[:-1])))
    if still_fails(name, text):
        text = shrink(text, lambda candidate: still_fails(name, candidate))
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.cpp"
    reason = verdict.problem.splitlines()[0]
    path.write_text(f"// SPDX-License-Identifier: Apache-2.0\n// Found by fuzzing: {reason}\n{text}")
    return path
