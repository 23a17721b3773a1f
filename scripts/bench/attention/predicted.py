"""The performance model beside this machine: steps of the cpu target and of the emulator, predicted and measured.

A step is the attention of all layers. The cpu target's steps are predicted from its rate and its fixed time, which two
contexts show (processor time of one thread, K and V in the page cache), or from the disk's own rate (wall time, around
the page cache; `predicted_disk.py`). The emulator's device times are those of a step with contents through the runtime;
the model asks the drive library for one layer without contents. For SparF and policy groups it takes a rate and a fixed
time, too, and the work of the busiest die or channel in place of the bytes. What is read is counted, not predicted:
which pages these policies read depends on the contents. Contexts that predict others are not reported.
"""

from __future__ import annotations

import os
import random
import statistics
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path

from bench.attention.predicted_disk import disk
from bench.attention.predicted_steps import KNOWN, Outcome, Setting, Stored, Timed, from_known
from bench.attention.states import IN_RUNS, SCATTERED, Shape
from bench.setup import Setup
from bench.table import Block, Table
from kvdrive.choices import KV_FORMATS
from kvdrive.kvcache import formats
from kvdrive.perf import hardware
from kvdrive.study.model import drives
from kvdrive.targets.cpu import CpuDrive
from kvdrive.targets.emulator import Emulator

CONTEXTS = (4096, 8192, 16384, 32768, 65536)
GROUPS = (1, 4, 8)
SPARSE = ("sparf", "groups")
BOUND = 0.15
PRESETS = {"smartssd": hardware.SMARTSSD, "instcsd": hardware.INSTCSD}
HEAD = ["target", "where", "policy", "format", "data", "queries per head", "error at each context"]


def settings(target: str, place: str, data: str, contexts: Sequence[int]) -> list[Setting]:
    """All policies and formats; of scattered K only the policies to which it makes a difference."""
    kinds = [(policy, "f16") for policy in SPARSE]
    if data == IN_RUNS:
        kinds = [("exact", name) for name in KV_FORMATS] + kinds
    return [
        Setting(target, place, policy, group, tokens, data, name)
        for policy, name in kinds
        for group in GROUPS
        for tokens in contexts
    ]


def cpu_target(path: Path, rounds: int, contexts: Sequence[int], known: tuple[int, int]) -> list[Outcome]:
    """Steps of the cpu target: the fastest of several rounds, which other work disturbs least, in different orders."""
    shape = Shape(layers=2, group=max(GROUPS), tokens=max(contexts))
    asked = settings("cpu", "page cache", IN_RUNS, contexts)
    with CpuDrive(path, os.cpu_count() or 1, 16 * shape.kv_bytes, format=True) as drive:
        stored = Stored(drive, shape, IN_RUNS, asked)
    times: dict[Setting, list[Timed]] = {setting: [] for setting in asked}
    with CpuDrive(path, 1, cache_bytes=1 << 40) as drive:
        for number in range(rounds + 1):
            random.Random(number).shuffle(asked)  # a step behind a long one finds less in the processor's caches
            for setting in asked:
                timed = stored.step(drive, setting, time.process_time)
                if number:  # the first round warms up
                    times[setting].append(timed)
    return from_known({setting: min(found, key=lambda one: one.seconds) for setting, found in times.items()}, known)


def emulator(folder: Path, contexts: Sequence[int] = CONTEXTS, known: tuple[int, int] = KNOWN) -> list[Outcome]:
    """Device times of steps; the same on every machine. Sparse ones are predicted from the busiest die or channel."""
    shape = Shape(layers=2, group=max(GROUPS), tokens=max(contexts))
    outcomes = []
    for preset in PRESETS:
        for data in (IN_RUNS, SCATTERED):
            path = folder / f"{preset}-{data}.kv".replace(" ", "-")
            asked = settings("emulator", preset, data, contexts)
            times: dict[Setting, Timed] = {}
            with Emulator(path, "fast", os.cpu_count() or 1, 16 * shape.kv_bytes, preset=preset) as target:
                stored = Stored(target, shape, data, asked)
                for setting in asked:
                    if setting.policy != "exact":
                        times[setting] = stored.on_flash(target, setting)
                        continue
                    before = target.device_ns()
                    size = stored.step(target, setting).size
                    times[setting] = Timed(size, (target.device_ns() - before) / 1e9)
            path.unlink()
            exact = {one: timed for one, timed in times.items() if one.policy == "exact"}
            outcomes += [Outcome(one, _device_seconds(one, shape), timed.seconds) for one, timed in exact.items()]
            outcomes += from_known({one: timed for one, timed in times.items() if one not in exact}, known)
    return outcomes


def _device_seconds(setting: Setting, shape: Shape) -> float:
    """What the model says of an exact step."""
    layer = drives.attention_seconds(
        PRESETS[setting.place],
        shape.kv_heads,
        setting.tokens,
        shape.head_dim,
        setting.group,
        formats.named(setting.kv_format),
    )
    return shape.layers * layer


def listing(outcomes: Sequence[Outcome]) -> str:
    """A line for each setting: predicted and measured milliseconds, and the error."""
    lines = []
    for one in outcomes:
        s = one.setting
        name = f"{s.target:8} {s.place:10} {s.policy:6} {s.kv_format:4} {s.data:9} g={s.group} {s.tokens // 1024:2}K"
        missed = "" if abs(one.error) <= BOUND else "  MISSED"
        times = f"predicted {1e3 * one.predicted:10.3f} ms, measured {1e3 * one.measured:10.3f} ms"
        lines.append(f"{name}  {times}, {100 * one.error:+6.1f} %{missed}")
    return "\n".join(lines)


def run(setup: Setup) -> list[Block]:
    """A block for each target and place of K and V."""
    contexts, known, rounds = setup.size((CONTEXTS, KNOWN, 8), ((512, 1024, 2048), (512, 1024), 1))
    parts = {
        "predicted-cache": lambda folder: cpu_target(folder / "cpu.kv", rounds, contexts, known),
        "predicted-disk": lambda folder: disk(folder / "disk.kv", setup.threads, rounds, contexts[-2:]),
        "predicted-emulator": lambda folder: emulator(folder, contexts, known),
    }
    blocks = []
    for name, measure in parts.items():
        with setup.folder() as folder:
            outcomes = measure(folder)
        setup.say(listing(outcomes))
        blocks.append(Block(name, [table(outcomes)], [asdict(one) | {"error": one.error} for one in outcomes]))
    return blocks


def table(outcomes: Sequence[Outcome]) -> Table:
    """How many of one target and place are within the bound; a row for each policy, format, data and group."""
    errors = [abs(one.error) for one in outcomes]
    first = outcomes[0].setting
    part = first.target if first.target == "emulator" else f"{first.target}, {first.place}"
    said = (
        f"{part}: {sum(error <= BOUND for error in errors)} of {len(errors)} settings within {100 * BOUND:.0f} %, "
        f"median {100 * statistics.median(errors):.1f} %, largest {100 * max(errors):.1f} %."
    )
    return Table(HEAD, list(lines(outcomes)), legend=said, align="l" * len(HEAD))


def lines(outcomes: Sequence[Outcome]) -> Iterator[list[str]]:
    """Rows of the table."""
    rows: dict[tuple[str, str, str, str, str, int], list[Outcome]] = {}
    for one in outcomes:
        s = one.setting
        rows.setdefault((s.target, s.place, s.policy, s.kv_format, s.data, s.group), []).append(one)
    for names, found in rows.items():
        yield [*map(str, names), ", ".join(f"{o.setting.tokens // 1024}K {100 * o.error:+.1f} %" for o in found)]
