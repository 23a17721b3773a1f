"""A turn behind a long stored history: time to its first token by each way, beside computing everything again.

Ways: the drive attends where K and V are (attend), layers are loaded into memory while others compute (load), and what
the calibrated cost model chooses, on the drive as it is and on one that is 50 times slower. Writes a table of
docs/sessions.md.

Histories are random tokens, on a drive of the cpu target whose file is not in the page cache. Times on a busy machine
mean little: the ratios are taken within one run. 426m is a Llama with random weights.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
import time
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch
from transformers import PreTrainedModel

import bench_decode
from bench_sessions import PAGE, forget
from kvdrive.perf.kept import processor
from kvdrive.plugins.transformers import Attachment, attach
from kvdrive.sessions.resume import Way
from kvdrive.targets.base import Target
from kvdrive.targets.cpu import CpuDrive
from kvdrive.targets.slowed import SlowedTarget
from page_blocks import write_blocks

NEW, STEPS, SLOWER = 16, 64, 50


class Bench:
    """One model with a stored history of `tokens` tokens in the file `path`."""

    def __init__(self, model: PreTrainedModel, path: Path, tokens: int, threads: int) -> None:
        self.model = model
        self._path = path
        self._threads = threads
        self._random = torch.Generator().manual_seed(1)
        self._history = self._tokens(tokens)

    def _tokens(self, count: int) -> torch.Tensor:
        return torch.randint(2, self.model.config.vocab_size, (1, count), generator=self._random)

    def _question(self) -> torch.Tensor:
        """The history, and new tokens that nobody has asked before."""
        return torch.cat([self._history, self._tokens(NEW)], dim=1)

    def drive(self) -> CpuDrive:
        """The drive, opened."""
        return CpuDrive(self._path, self._threads, 1 << 33)

    def store(self) -> float:
        """Compute the history and keep it. Returns the seconds of the computation."""
        with self.drive() as drive, attach(self.model, drive, sessions=True) as attached:
            cache = attached.sessions.cache(self._history)
            began = time.perf_counter()
            self._forward(self._history, cache)
            seconds = time.perf_counter() - began
            attached.sessions.release(cache)
        return seconds

    def recompute(self) -> float:
        """Seconds to the first token without anything stored."""
        ids = self._question()
        began = time.perf_counter()
        self.model(ids, logits_to_keep=1)
        return time.perf_counter() - began

    def turn(self, target: Target, way: Way | None) -> dict[str, Any]:
        """Seconds to the first token by `way`; None: as the cost model chooses."""
        options: dict[str, Any] = {"active": "drive"} if way == "attend" else {"active": "memory"}
        with attach(self.model, target, sessions=True, **options) as attached:
            if way == "load":
                costs = attached.sessions.costs
                costs._path, costs._rates = None, replace(costs.rates, load_byte=0.0, attend_pair=1.0)
            elif way is None:
                _ = attached.sessions.costs.rates  # measured once for each drive, before the first turn
            return self._turn(attached)

    def _turn(self, attached: Attachment) -> dict[str, Any]:
        ids = self._question()
        forget(self._path)
        before = attached.sessions.stats.loaded_bytes
        began = time.perf_counter()
        cache = attached.sessions.cache(ids, new_tokens=STEPS)
        self._forward(ids[:, cache.get_seq_length() :], cache)
        seconds = time.perf_counter() - began
        chosen = cache.keeper.way
        assert chosen is not None
        found = {"seconds": seconds, "way": chosen, "loaded_bytes": attached.sessions.stats.loaded_bytes - before}
        attached.sessions.release(cache)
        return found

    def _forward(self, ids: torch.Tensor, cache: Any) -> None:
        self.model(ids, past_key_values=cache, logits_to_keep=1)


def measure(name: str, tokens: int, rounds: int, again: int, threads: int) -> dict[str, Any]:
    """All ways of one model. `again`: how often everything is computed again; 0: when the history is stored, only."""
    model = bench_decode.load(name)[0]
    with tempfile.TemporaryDirectory(dir=Path.cwd() / "out") as folder, torch.no_grad():
        path = Path(folder) / "drive.kv"
        bench = Bench(model, path, tokens, threads)
        stored = bench.store()
        recompute = statistics.median([bench.recompute() for _ in range(again)] or [stored])
        found: dict[str, Any] = {"model": name, "tokens": tokens, "new_tokens": NEW, "recompute_seconds": recompute}
        for way in ("attend", "load", None):
            turns = []
            for _ in range(rounds):
                with bench.drive() as drive:
                    turns.append(bench.turn(drive, way))
            turn = turns[0] | {"seconds": statistics.median(one["seconds"] for one in turns)}
            found[way or "chosen"] = turn | {"ratio": recompute / turn["seconds"]}
        with bench.drive() as drive, attach(model, drive, sessions=True, active="memory") as attached:
            found["rates"] = asdict(attached.sessions.costs.rates)
        path.with_name(path.name + ".costs").unlink()
        with SlowedTarget(bench.drive(), SLOWER) as slow:
            turn = bench.turn(slow, None)
        found["slowed"] = turn | {"factor": SLOWER, "ratio": recompute / turn["seconds"]}
    return found


def table(bench: dict[str, Any]) -> str:
    """The figures as they stand in the page."""
    lines = [
        "| model, history | computed again | drive attends | loaded by layer | the model's choice | on a drive "
        f"{SLOWER} times slower |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    for one in bench["models"]:
        cells = [f"{one['model']}, {one['tokens']:,}", f"{one['recompute_seconds']:.3g} s"]
        for name in ("attend", "load", "chosen", "slowed"):
            turn = one[name]
            chosen = f"{turn['way']}: " if name in ("chosen", "slowed") else ""
            cells.append(f"{chosen}{turn['seconds']:.3g} s ({turn['ratio']:.3g}x)")
        lines.append(f"| {' | '.join(cells)} |")
    where = bench["machine"]
    note = (
        f"Seconds to the first token of a turn with {NEW} new tokens. Measured on {where['processor']}, "
        f"{where['cpus']} shared cores, while other work ran: only the ratios mean something. cpu target, "
        "its file not in the page cache."
    )
    return "\n".join([*lines, "", note])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path, default=Path("out/bench_resume.json"))
    parser.add_argument("--models", nargs="+", default=["mini:16000", "426m:16000"], help="name:tokens")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--again", type=int, default=1, help="computations of everything; 0: the history's own")
    given = parser.parse_args()
    Path("out").mkdir(exist_ok=True)
    threads = os.cpu_count() or 1
    torch.set_num_threads(threads)
    models = []
    for one in given.models:
        name, _, tokens = one.partition(":")
        models.append(measure(name, int(tokens), given.rounds, given.again, threads))
    bench = {"machine": {"processor": processor(), "cpus": os.cpu_count()}, "models": models}
    given.json.write_text(json.dumps(bench, indent=1) + "\n")
    write_blocks(PAGE, {"bench-resume": table(bench)})
    print(table(bench))


if __name__ == "__main__":
    main()
