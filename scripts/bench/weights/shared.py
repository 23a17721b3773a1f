"""K and V and experts on one disk: alone and together, and beside them on the modelled flash of one drive.

A step is one layer of a decode step whose experts are known one layer before: the attention of all KV heads over
the context, and as many bytes of experts as K and V have. `together` starts both at once and ends when both have ended.
On the cpu target all reads go around the page cache, K and V through the drive, experts through the reader of a file
of weights; the file lies on the drive's disk. The disk's rate is that of the same file with 64 reads of 512 KiB in
flight, measured in each round. Ratios are taken inside a round. On the emulator, experts are a value of namespace 4,
whose reads begin before attention and go on beside it in device time (RETRIEVE_AHEAD, RETRIEVE_URGENT).
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from bench.attention.states import IN_RUNS, Shape, made_up
from bench.rounds import seconds
from bench.setup import Setup
from bench.table import Block, Table
from kvdrive import abi
from kvdrive._native import PieceReader, crc32c
from kvdrive.kernels.native import scale_bits
from kvdrive.kvcache.session import Session
from kvdrive.nvme import values
from kvdrive.nvme.commands import flush
from kvdrive.targets.cpu import CpuDrive
from kvdrive.targets.emulator import Emulator
from kvdrive.targets.key_value import KeyValueNamespace
from kvdrive.weights.bundles import U8
from kvdrive.weights.file import DEPTH, aligned

PIECE = 512 << 10
EXPERT_PIECES = 16  # an expert of 8 MiB
NAMES = {"kv": "K and V alone", "experts": "experts alone", "together": "both at once"}
WAYS = tuple(NAMES)
DEVICE_WAYS = {
    "kv": "K and V alone",
    "experts": "experts alone",
    "together": "both at once, experts for this layer",
    "ahead": "both at once, experts for the next layer",
}
Beside = dict[str, float]


@dataclass(frozen=True)
class Work:
    """Sizes. `steps` of each way in a round, one layer each; `experts` in the file."""

    kv: Shape
    experts: int
    rounds: int
    steps: int

    @property
    def layer_bytes(self) -> int:
        """K and V of a layer."""
        return self.kv.kv_bytes // self.kv.layers

    @property
    def experts_of_a_step(self) -> int:
        """As many bytes of experts as of K and V, or one."""
        return max(self.layer_bytes // (PIECE * EXPERT_PIECES), 1)

    @property
    def expert_bytes(self) -> int:
        """Experts of a step."""
        return self.experts_of_a_step * PIECE * EXPERT_PIECES


FULL = Work(Shape(layers=4, kv_heads=8, group=4, head_dim=128, tokens=32768), experts=128, rounds=5, steps=24)
QUICK = Work(Shape(layers=2, kv_heads=2, group=2, head_dim=64, tokens=2048), experts=2, rounds=2, steps=3)


class Experts:
    """A file of random experts."""

    def __init__(self, path: Path, count: int, of_a_step: int) -> None:
        rng, sums = np.random.default_rng(7), []
        with path.open("wb") as file:
            for _ in range(count):
                expert = rng.integers(0, 256, PIECE * EXPERT_PIECES, np.uint8)
                sums.append([crc32c(expert[at : at + PIECE]) for at in range(0, expert.size, PIECE)])
                file.write(expert)
            os.fsync(file.fileno())
        self._sums = np.array(sums, np.uint32)
        self.reader = PieceReader(path, PIECE, DEPTH)
        self._rows = of_a_step
        self._to: U8 = aligned(2 * of_a_step * PIECE * EXPERT_PIECES).reshape(2 * of_a_step, -1)
        self._rng = np.random.default_rng(8)

    def start(self, half: int) -> list[int]:
        """Start to read experts that nothing foresees into one half of the memory."""
        chosen = self._rng.integers(0, len(self._sums), self._rows)
        places = np.arange(self._rows) + half * self._rows
        return self.reader.start_rows(chosen * self._to.shape[1], self._to, places, self._sums[chosen])

    def finish(self, tickets: list[int]) -> None:
        """Wait for them. Raises RuntimeError if one is damaged."""
        if (failed := self.reader.wait_all(tickets)) != (-1, 0, -1):
            raise RuntimeError(f"an expert could not be read: {failed}")

    def step(self) -> None:
        """The experts of a step."""
        self.finish(self.start(0))


class Attention:
    """K and V on a drive, and queries for the layers in turn."""

    def __init__(self, drive: CpuDrive | Emulator, shape: Shape) -> None:
        self._shape, self._states = shape, made_up(shape, IN_RUNS)
        self._session = Session(drive)
        for layer in range(shape.layers):
            self._session.append(layer, abi.KvKind.KEYS, 0, self._states.k[layer])
            self._session.append(layer, abi.KvKind.VALUES, 0, self._states.v[layer])
        drive.execute(flush())
        self._layer = 0
        self.expected: dict[int, bytes] = {}

    def step(self) -> None:
        """The attention of the next layer. Raises RuntimeError if a layer has other bits than before."""
        layer, self._layer = self._layer, (self._layer + 1) % self._shape.layers
        bits = scale_bits(None, self._shape.head_dim)
        found = self._session.attend(layer, self._states.q[layer], self._shape.tokens, bits).out.tobytes()
        if self.expected.setdefault(layer, found) != found:
            raise RuntimeError(f"the attention of layer {layer} has other bits than before")


def turns(work: Work, attention: Attention, experts: Experts) -> list[dict[str, Any]]:
    """Rounds in which the disk's rate and all ways take turns. Seconds of each step by way."""
    rounds = []
    with ThreadPoolExecutor(1) as beside:

        def together() -> tuple[float, float]:
            began = time.perf_counter()
            reads = beside.submit(seconds, experts.step)
            kv = seconds(attention.step)
            return max(reads.result(), time.perf_counter() - began), kv

        for _ in range(work.rounds + 1):  # the first round warms up
            found: dict[str, Any] = {"disk": disk_rate(work, experts)}
            found["kv"] = [seconds(attention.step) for _ in range(work.steps)]
            found["experts"] = [seconds(experts.step) for _ in range(work.steps)]
            both = [together() for _ in range(work.steps)]
            found["together"], found["kv_beside"] = ([pair[i] for pair in both] for i in range(2))
            rounds.append(found)
    return rounds[1:]


def disk_rate(work: Work, experts: Experts) -> float:
    """Bytes per second of the disk with DEPTH reads of PIECE in flight all the time, without attention."""
    before = experts.reader.counters()
    tickets = experts.start(0)
    for number in range(1, work.steps):
        following = experts.start(number % 2)
        experts.finish(tickets)
        tickets = following
    experts.finish(tickets)
    after = experts.reader.counters()
    return (after["bytes"] - before["bytes"]) * 1e9 / (after["busy_ns"] - before["busy_ns"])


def device_times(work: Work, path: Path, threads: int) -> dict[str, list[Beside]]:
    """Each step on a drive with modelled flash that holds both, by way; `beside`: attention of `together`."""
    key, found = b"experts", {way: [] for way in (*DEVICE_WAYS, "beside")}
    with Emulator(path, "fast", threads, 2 * (work.kv.kv_bytes + work.expert_bytes) + (64 << 20)) as drive:
        KeyValueNamespace(drive).store(key, np.random.default_rng(9).bytes(work.expert_bytes))
        attention = Attention(drive, work.kv)

        def retrieve(urgent: bool, meanwhile: Callable[[], None] = lambda: None) -> None:
            parts = range(0, work.expert_bytes, PIECE)
            for at in parts:
                drive.execute(values.retrieve(key, PIECE, at, ahead=True, urgent=urgent))
            meanwhile()
            for at in parts:  # wait
                drive.execute(values.retrieve(key, 0, at, ahead=True))

        steps: dict[str, Callable[[], None]] = {
            "kv": attention.step,
            "experts": lambda: retrieve(True),
            "together": lambda: retrieve(True, lambda: found["beside"].append(device_step(drive, attention.step))),
            "ahead": lambda: retrieve(False, attention.step),
        }
        for _ in range(work.kv.layers):
            for way, step in steps.items():
                found[way].append(device_step(drive, step))
    return found


def device_step(drive: Emulator, step: Callable[[], None]) -> Beside:
    """Device time of a step, and how long the drive's parts were busy."""
    before = drive.busy()
    step()
    after = drive.busy()
    return {name: after[name] - before[name] for name in after}


def compare(work: Work, folder: Path, threads: int) -> dict[str, Any]:
    """Measure on the disk of `folder`."""
    capacity = 2 * work.kv.kv_bytes + (64 << 20)
    with CpuDrive(folder / "drive.kv", threads, capacity, format=True) as drive:
        attention = Attention(drive, work.kv)
        experts = Experts(folder / "experts", work.experts, work.experts_of_a_step)
        (before,) = drive.transfers().values()
        rounds = turns(work, attention, experts)
        (after,) = drive.transfers().values()
        transfers = {
            kind: {name: value - before[kind][name] for name, value in counts.items()} for kind, counts in after.items()
        }
        direct = drive.read_stats()
        found = {
            "work": asdict(work),
            "layer_bytes": work.layer_bytes,
            "expert_bytes": work.expert_bytes,
            "threads": threads,
            "around_cache": direct.around_cache and experts.reader.around_cache,
            "asynchronous": direct.asynchronous and experts.reader.asynchronous,
            "rounds": rounds,
            "transfers": transfers,
        }
    return found


def bytes_of(result: dict[str, Any], way: str) -> int:
    """What a step reads."""
    kv, experts = result["layer_bytes"], result["expert_bytes"]
    return int({"kv": kv, "experts": experts}.get(way, kv + experts))


def summary(result: dict[str, Any], way: str) -> dict[str, float]:
    """Mean and p99 of the steps in seconds, and the bytes of a step against the disk's rate (median of rounds)."""
    size = bytes_of(result, way)
    steps = [seconds for found in result["rounds"] for seconds in found[way]]
    shares = [size * len(found[way]) / sum(found[way]) / found["disk"] for found in result["rounds"]]
    return {
        "mean": statistics.fmean(steps),
        "p99": float(np.quantile(steps, 0.99)),
        "rate": size / statistics.fmean(steps),
        "share": statistics.median(shares),
    }


def run(setup: Setup) -> list[Block]:
    """Steps on the disk, and the same in device time, which is the same on every machine."""
    work = setup.size(FULL, QUICK)
    needed = 4 * work.kv.kv_bytes + work.experts * PIECE * EXPERT_PIECES + (1 << 30)
    with setup.folder(needed) as folder:
        result = compare(work, folder, setup.threads)
        device = device_times(work, folder / "emulated.kv", setup.threads)
    return [
        Block("shared", [table(result)], result),
        Block("shared-device", [device_table(work, device)], device),
    ]


def table(result: dict[str, Any]) -> Table:
    """Steps on the disk."""
    rows = []
    for way in WAYS:
        found = summary(result, way)
        rows.append(
            [
                NAMES[way],
                f"{bytes_of(result, way) / 1e6:,.0f}",
                f"{1e3 * found['mean']:,.1f}",
                f"{1e3 * found['p99']:,.1f}",
                f"{found['p99'] / found['mean']:.2f}",
                f"{found['rate'] / 1e9:.2f}",
                f"{found['share']:.0%}",
            ]
        )
    shape, rounds = result["work"]["kv"], result["rounds"]
    disk = statistics.median(found["disk"] for found in rounds)
    waited = ", ".join(
        f"{counts['waited'] / counts['transfers']:.0%} of the transfers of kind {kind} for "
        f"{counts['waited_ns'] / max(counts['waited'], 1) / 1e6:.1f} ms"
        for kind, counts in result["transfers"].items()
        if counts["transfers"]
    )
    note = (
        f"{shape['tokens']:,} tokens, {shape['kv_heads']} KV heads of {shape['head_dim']}, {shape['group']} query "
        f"heads each; {len(rounds)} rounds of {result['work']['steps']} steps. The disk reads {disk / 1e9:.2f} GB/s "
        f"with {DEPTH} reads of 512 KiB in flight. In these rounds waited for their turn: {waited}."
    )
    return Table(["step", "MB", "mean, ms", "p99, ms", "p99 / mean", "GB/s", "of the disk"], rows, note)


def device_table(work: Work, device: dict[str, list[Beside]]) -> Table:
    """Steps in device time."""
    means = {way: statistics.fmean(one["device_ns"] for one in steps) for way, steps in device.items()}
    sizes = {"kv": work.layer_bytes, "experts": work.expert_bytes}
    rows = []
    for way, name in DEVICE_WAYS.items():
        longest = max(one["device_ns"] for one in device[way]) / means[way]
        busy = (
            f"{statistics.fmean(one[part] for one in device[way]) / means[way]:.0%}"
            for part in ("channel_busy_ns", "host_link_busy_ns")
        )
        rate = sizes.get(way, work.layer_bytes + work.expert_bytes) / means[way]
        rows.append([name, f"{means[way] / 1e6:,.2f}", f"{longest:.2f}", f"{rate:.2f}", *busy])
    note = (
        f"Both at once, for this layer, take {means['together'] / (means['kv'] + means['experts']):.0%} of the time "
        f"that they take one after the other, and {means['together'] / max(means['kv'], means['experts']):.2f} times "
        "that of the slower one alone. Attention takes "
        f"{means['beside'] / means['kv']:.2f} times as long as alone meanwhile."
    )
    head = [
        "step, modelled device time",
        "mean, ms",
        "longest / mean",
        "GB/s",
        "channels busy",
        "link to the host busy",
    ]
    return Table(head, rows, note)
