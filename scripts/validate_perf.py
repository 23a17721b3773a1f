"""The performance model beside this machine: steps of the cpu target and of the emulator, predicted and measured.

A step is the attention of all layers. The cpu target's steps are predicted from its rate and its fixed time, which two
contexts show (processor time of one thread, K and V in the page cache), or from the disk's own rate (wall time, around
the page cache). The emulator's device times are those of a step with contents through the runtime; the model asks the
drive library for one layer without contents, and for SparF it takes a rate and a fixed time, too. Bytes that are read
are counted, not predicted: which pages SparF reads depends on the contents. Contexts that predict others are not
reported.
Writes a JSON file and docs/performance.md.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from fractions import Fraction
from pathlib import Path

import numpy as np

from attention_states import IN_RUNS, SCATTERED, Shape, made_up
from bench_cpu_target import forget, read_directly
from kvdrive import abi
from kvdrive.kernels.native import scale_bits
from kvdrive.kvcache.session import Session
from kvdrive.nvme import commands
from kvdrive.perf import drives, hardware
from kvdrive.policies import make_policy
from kvdrive.policies.parameters import EVERYTHING, Parameters
from kvdrive.targets.base import Target
from kvdrive.targets.cpu import CpuDrive
from kvdrive.targets.emulator import Emulator
from kvdrive.targets.opening import drive_folder

PAGE = Path(__file__).parents[1] / "docs/performance.md"
CONTEXTS = (4096, 8192, 16384, 32768, 65536)
KNOWN = (4096, 32768)  # contexts whose times predict the others
GROUPS = (1, 4, 8)
POLICIES = ("exact", "sparf")
BOUND = 0.15
DRIVE_DEPTH = 16  # pieces that the drive has in flight
_SPARSE = int(abi.AppendOption.APPEND_SPARSE)
PRESETS = {"smartssd": hardware.SMARTSSD, "instcsd": hardware.INSTCSD}


@dataclass(frozen=True)
class Setting:
    """What is predicted. `place`: where K and V are; `data`: which made-up K and V."""

    target: str
    place: str
    policy: str
    group: int
    tokens: int
    data: str = IN_RUNS


@dataclass(frozen=True)
class Outcome:
    """Seconds of a step."""

    setting: Setting
    predicted: float
    measured: float

    @property
    def error(self) -> float:
        """Relative to what was measured."""
        return self.predicted / self.measured - 1


@dataclass(frozen=True)
class Timed:
    """A step: bytes that were read inside the drive, as it counts them, and seconds."""

    size: int
    seconds: float


def line(known: Sequence[Timed]) -> Callable[[int], float]:
    """Seconds by bytes: a fixed time and a rate through two measured points."""
    few, many = known
    each = (many.seconds - few.seconds) / (many.size - few.size)
    return lambda size: few.seconds + (size - few.size) * each


def how(policy: str, tokens: int, head_dim: int) -> Parameters:
    """The parameters of a query."""
    return EVERYTHING if policy == "exact" else make_policy("sparf", Fraction(1, 8)).parameters(tokens, head_dim)


class Stored:
    """Sessions of each context on a drive, with the same made-up K and V in all layers."""

    def __init__(self, target: Target, shape: Shape, data: str, contexts: Sequence[int]) -> None:
        self.shape, self.states = shape, made_up(shape, data)
        self.sessions: dict[int, int] = {}
        for tokens in contexts:
            session = Session(target, _SPARSE)
            for layer in range(shape.layers):
                session.append(layer, abi.KvKind.KEYS, 0, self.states.k[layer][:, :tokens])
                session.append(layer, abi.KvKind.VALUES, 0, self.states.v[layer][:, :tokens])
            self.sessions[tokens] = session.number
        target.execute(commands.flush())

    def step(self, target: Target, setting: Setting, clock: Callable[[], float] = time.perf_counter) -> Timed:
        """The attention of a decode step; by `clock`."""
        session = Session.existing(target, self.sessions[setting.tokens], _SPARSE)
        parameters = how(setting.policy, setting.tokens, self.shape.head_dim)
        scale = scale_bits(None, self.shape.head_dim)
        before, start = target.stats().kv_bytes_read, clock()
        for layer in range(self.shape.layers):
            queries = np.ascontiguousarray(self.states.q[layer, :, : setting.group])
            session.attend(layer, queries, setting.tokens, scale, parameters)
        seconds = clock() - start
        return Timed(target.stats().kv_bytes_read - before, seconds)


def cpu_target(path: Path, rounds: int) -> list[Outcome]:
    """Steps of the cpu target: the fastest of alternating rounds, which other work disturbs least."""
    shape, threads = Shape(layers=2, group=max(GROUPS), tokens=max(CONTEXTS)), os.cpu_count() or 1
    with CpuDrive(path, threads, 8 * shape.kv_bytes, format=True) as drive:
        stored = Stored(drive, shape, IN_RUNS, CONTEXTS)
    settings = [Setting("cpu", "page cache", p, g, t) for p in POLICIES for g in GROUPS for t in CONTEXTS]
    times: dict[Setting, list[Timed]] = {setting: [] for setting in settings}
    with CpuDrive(path, 1, cache_bytes=1 << 40) as drive:
        for number in range(rounds + 1):
            for setting in settings:
                timed = stored.step(drive, setting, time.process_time)
                if number:  # the first round warms up
                    times[setting].append(timed)
    fastest = {setting: min(found, key=lambda one: one.seconds) for setting, found in times.items()}
    return from_known(fastest) + around_the_cache(path, stored, threads, rounds)


def around_the_cache(path: Path, stored: Stored, threads: int, rounds: int) -> list[Outcome]:
    """Exact steps of a file that is not in the page cache.

    Predicted is the longer of two things that overlap. One is reading as many bytes of the same file, layer by layer,
    in pieces of the drive's size with as many in flight; that is measured just before and just after the step, since
    the rate of a disk that others use changes from second to second. The other is the engine's work, which is measured
    with the file in the page cache. Medians over the rounds.
    """
    settings = [Setting("cpu", "disk", "exact", 4, tokens) for tokens in CONTEXTS[-2:]]
    found: dict[Setting, list[tuple[float, float]]] = {setting: [] for setting in settings}
    with CpuDrive(path, threads, cache_bytes=1 << 40) as drive:
        work = {setting: min(stored.step(drive, setting).seconds for _ in range(rounds)) for setting in settings}
    for _ in range(rounds):
        for setting in settings:
            before = plain_reads(path, stored.shape, setting.tokens)
            forget(path)
            with CpuDrive(path, threads) as drive:
                seconds = stored.step(drive, setting).seconds
            reads = (before + plain_reads(path, stored.shape, setting.tokens)) / 2
            found[setting].append((max(reads, work[setting]), seconds))
    return [
        Outcome(setting, *(statistics.median(column) for column in zip(*pairs, strict=True)))
        for setting, pairs in found.items()
    ]


def plain_reads(path: Path, shape: Shape, tokens: int) -> float:
    """Seconds to read the bytes of a step's K and V as a drive asks for them: layer by layer."""
    forget(path)
    size = shape.kv_bytes * tokens // shape.tokens // shape.layers
    start = time.perf_counter()
    for layer in range(shape.layers):
        read_directly(path, size, DRIVE_DEPTH, skipped=layer * size)
    return time.perf_counter() - start


def from_known(times: Mapping[Setting, Timed]) -> list[Outcome]:
    """Outcomes at all contexts but KNOWN, from lines through those."""
    outcomes = []
    for setting, timed in times.items():
        if setting.tokens not in KNOWN:
            known = [times[replace(setting, tokens=tokens)] for tokens in KNOWN]
            outcomes.append(Outcome(setting, line(known)(timed.size), timed.seconds))
    return outcomes


def emulator(folder: Path, contexts: tuple[int, ...] = CONTEXTS) -> list[Outcome]:
    """Device times of steps; the same on every machine."""
    shape = Shape(layers=2, group=max(GROUPS), tokens=max(contexts))
    times: dict[Setting, Timed] = {}
    outcomes = []
    for preset, drive in PRESETS.items():
        for data in (IN_RUNS, SCATTERED):
            path = folder / f"{preset}-{data}.kv".replace(" ", "-")
            with Emulator(path, "fast", os.cpu_count() or 1, 8 * shape.kv_bytes, preset=preset) as target:
                stored = Stored(target, shape, data, contexts)
                policies = POLICIES if data == IN_RUNS else ("sparf",)
                for setting in (
                    Setting("emulator", preset, p, g, t, data) for p in policies for g in GROUPS for t in contexts
                ):
                    before = target.device_ns()
                    size = stored.step(target, setting).size
                    times[setting] = Timed(size, (target.device_ns() - before) / 1e9)
            path.unlink()
        outcomes += [
            Outcome(
                setting,
                shape.layers
                * drives.attention_seconds(drive, shape.kv_heads, setting.tokens, shape.head_dim, setting.group),
                timed.seconds,
            )
            for setting, timed in times.items()
            if setting.place == preset and setting.policy == "exact"
        ]
    return outcomes + from_known({setting: timed for setting, timed in times.items() if setting.policy == "sparf"})


HEAD = """\
# The performance model, measured

`scripts/validate_perf.py` predicts the attention of decode steps and compares: two layers of 4 KV heads, 128 elements,
4K to 64K tokens. It writes this page. The only format of K and V is binary16.

- **cpu target, page cache**: processor time of one thread, predicted from the bytes that the drive counts, with a rate
  and a fixed time that the steps at 4K and 32K tokens show; reported at 8K, 16K and 64K. The fastest of several
  alternating rounds. **disk**: wall time, around the page cache. Predicted is the longer of plain reads of as many
  bytes of the same file, right before and after the step, and of the engine's work. Medians of several rounds.
- **emulator**: modelled device time of a step through the runtime, with contents. *exact*: predicted by the drive
  library for one layer without contents. *sparf* 1/8: from the bytes that the drive counts, as above, for made-up K
  whose neighbours are similar (in runs) or not (scattered). These numbers are the same on every machine, and a test
  compares them.

"""


def page(outcomes: list[Outcome]) -> str:
    """Rows by target, place, policy and data; the error of each group and context."""
    lines = [
        HEAD + f"{summary(outcomes)}\n",
        "| target | where | policy | data | queries per head | error at each context |",
    ]
    lines.append("|---" * 6 + "|")
    rows: dict[tuple[str, str, str, str, int], list[Outcome]] = {}
    for one in outcomes:
        s = one.setting
        rows.setdefault((s.target, s.place, s.policy, s.data, s.group), []).append(one)
    for (target, place, policy, data, group), found in rows.items():
        cells = ", ".join(f"{o.setting.tokens // 1024}K {100 * o.error:+.1f} %" for o in found)
        lines.append(f"| {target} | {place} | {policy} | {data} | {group} | {cells} |")
    return "\n".join(lines) + "\n"


def summary(outcomes: list[Outcome]) -> str:
    """How many are within the bound, by target."""
    sentences = []
    for target in ("cpu", "emulator"):
        errors = [abs(one.error) for one in outcomes if one.setting.target == target]
        if errors:
            within = sum(error <= BOUND for error in errors)
            sentences.append(
                f"{target}: {within} of {len(errors)} settings within {100 * BOUND:.0f} %, median "
                f"{100 * statistics.median(errors):.1f} %, largest {100 * max(errors):.1f} %."
            )
    return " ".join(sentences)


def main() -> None:
    """Measure, compare, write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--json", type=Path, default=Path("out/validate_perf.json"))
    parser.add_argument("--page", type=Path, default=PAGE)
    given = parser.parse_args()
    with drive_folder(None) as folder, tempfile.TemporaryDirectory(dir=folder) as place:
        outcomes = cpu_target(Path(place) / "cpu.kv", given.rounds) + emulator(Path(place))
    given.json.parent.mkdir(parents=True, exist_ok=True)
    rows = [asdict(one) | {"error": one.error} for one in outcomes]
    given.json.write_text(json.dumps({"bound": BOUND, "cpus": os.cpu_count(), "rows": rows}, indent=1) + "\n")
    given.page.write_text(page(outcomes))
    print(page(outcomes)[len(HEAD) :])


if __name__ == "__main__":
    main()
