"""The cpu target beside its own disk: attention over K and V in a file on it.

Measured is the attention of a decode step, all layers of a 426M-parameter Llama's shape, nothing else of the model.
In every round the disk reads as many bytes of the same file in pieces of 1 MiB, several at once, without kvdrive;
ratios are taken inside a round and their median is reported. Before each cold measurement the drive is opened anew and
the kernel is told to forget the file. What has K and V in memory is warmed up for a second; then the drive, which finds
them in the page cache, and packed SDPA take turns, and the median of several steps counts. SparF sees two kinds of
made-up K: independent rows, where the chosen tokens lie anywhere, and runs of similar rows, where they lie together;
and what a model keeps of source code. A last part compares prefills of a whole model.
"""

from __future__ import annotations

import argparse
import json
import math
import mmap
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from fractions import Fraction
from pathlib import Path

import torch
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from attention_states import IN_RUNS, SCATTERED, Shape, States, made_up, of_a_model
from bench_attention import machine
from bench_decode import load, measure_prefill, memory_bandwidth
from kvdrive import abi
from kvdrive.kernels.native import scale_bits
from kvdrive.kvcache.session import Session
from kvdrive.policies import make_policy
from kvdrive.policies.parameters import EVERYTHING, Parameters
from kvdrive.targets.cpu import CpuDrive
from kvdrive.targets.opening import drive_folder

PIECE = 1 << 20  # size of the disk's own reads
QUEUE_DEPTH = 8
WARM_UP = 1.0  # seconds
STEPS = 7  # steps per round, after the warm-up, of a contender with K and V in memory
EVEN = 16384  # tokens; a disk's rate differs more from one short read to the next: shorter contexts have more rounds
REAL = "mini"  # the model whose K and V are measured as well
DISK, EXACT, CACHED, PACKED = "disk alone", "exact", "exact, cached", "packed sdpa"
SPARSE = tuple(f"SparF 1/8, {data}" for data in (SCATTERED, IN_RUNS))


@dataclass
class Row:
    """A contender at one context, a number per round; `ratio`: its bytes per second over the disk's."""

    contender: str
    tokens: int
    kv_bytes: int
    seconds: list[float] = field(default_factory=list)
    file_bytes: list[int] = field(default_factory=list)
    file_reads: list[int] = field(default_factory=list)
    of_disk: float = math.nan  # bytes of the file per second, relative to the disk alone
    over_exact: float = math.nan  # times as fast as exact attention
    over_floor: float = math.nan  # its time, relative to a plain read of K and V from memory

    @property
    def median(self) -> float:
        return statistics.median(self.seconds)


class Bench:
    """A file with a session for each kind of data, and what is measured on it."""

    def __init__(self, folder: Path, shape: Shape, threads: int, states: Mapping[str, States]) -> None:
        self.path, self.shape, self.threads = folder / "cpu.kv", shape, threads
        self.q = {data: of.q for data, of in states.items()}
        self.sessions: dict[str, int] = {}
        self.options = int(abi.AppendOption.APPEND_SPARSE)
        with CpuDrive(self.path, threads, 4 * shape.kv_bytes + (1 << 28), format=True) as drive:
            for data, of in states.items():
                session = Session(drive, self.options)
                for layer in range(shape.layers):
                    session.append(layer, abi.KvKind.KEYS, 0, of.k[layer])
                    session.append(layer, abi.KvKind.VALUES, 0, of.v[layer])
                self.sessions[data] = session.number

    def step(self, drive: CpuDrive, data: str, how: Parameters) -> None:
        """The attention of one decode step."""
        session = Session.existing(drive, self.sessions[data], self.options)
        for layer in range(self.shape.layers):
            session.attend(layer, self.q[data][layer], self.shape.tokens, scale_bits(None, self.shape.head_dim), how)

    def cold(self, row: Row, data: str, how: Parameters) -> None:
        """A step of a drive that was just opened, without the file in the page cache."""
        forget(self.path)
        with CpuDrive(self.path, self.threads) as drive:
            start = time.perf_counter()
            self.step(drive, data, how)
            row.seconds.append(time.perf_counter() - start)
            stats = drive.stats()
        row.file_bytes.append(stats.file_bytes_read)
        row.file_reads.append(stats.file_reads)

    def in_memory(self, data: str, states: States, cached: Row, packed: Row) -> None:
        """Steps of the drive with K and V in the page cache and steps of torch with tensors, alternating."""
        with CpuDrive(self.path, self.threads, cache_bytes=1 << 40) as drive:
            sdpa = packed_sdpa(states)
            drive_step = lambda: self.step(drive, data, EVERYTHING)  # noqa: E731
            end = time.perf_counter() + WARM_UP
            while time.perf_counter() < end:
                drive_step(), sdpa()
            times = [(seconds(drive_step), seconds(sdpa)) for _ in range(STEPS)]
        for row, of in zip((cached, packed), zip(*times, strict=True), strict=True):
            row.seconds.append(statistics.median(of))

    def disk(self, row: Row) -> None:
        """Read as many bytes of the file as exact attention does, by plain direct reads."""
        forget(self.path)
        start = time.perf_counter()
        row.file_bytes.append(read_directly(self.path, self.shape.kv_bytes))
        row.seconds.append(time.perf_counter() - start)
        row.file_reads.append(self.shape.kv_bytes // PIECE)


def forget(path: Path) -> None:
    """Remove the file from the kernel's page cache."""
    file = os.open(path, os.O_RDONLY)
    try:
        os.fsync(file)
        os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(file)


def read_directly(path: Path, size: int, depth: int = QUEUE_DEPTH, skipped: int = 0) -> int:
    """Read `size` bytes before the last `skipped` written ones, `depth` pieces at once. Returns the bytes read."""
    file = os.open(path, os.O_RDONLY | os.O_DIRECT)
    try:
        pieces = list(data_pieces(file))
        end = len(pieces) - skipped // PIECE
        pieces = pieces[end - size // PIECE : end]
        turns = iter(pieces)

        def work(_: int) -> int:
            with mmap.mmap(-1, PIECE) as buffer:
                return sum(os.preadv(file, [buffer], offset) for offset in turns)

        with ThreadPoolExecutor(depth) as pool:
            return sum(pool.map(work, range(depth)))
    finally:
        os.close(file)


def data_pieces(file: int) -> Iterator[int]:
    """Offsets of the whole pieces that are not holes."""
    end, at = os.fstat(file).st_size, 0
    while at < end:
        try:
            first = os.lseek(file, at, os.SEEK_DATA)
        except OSError:  # no data after this offset
            return
        at = os.lseek(file, first, os.SEEK_HOLE)
        yield from range(first, at - PIECE + 1, PIECE)


def packed_sdpa(states: States) -> Callable[[], None]:
    """The same attention by torch over K and V in memory: query heads of a group are queries of one KV head."""
    half = lambda x: torch.from_numpy(x)[None].to(torch.bfloat16)  # noqa: E731
    layers = [tuple(half(x).clone() for x in of) for of in zip(states.q, states.k, states.v, strict=True)]

    def step() -> None:
        for q, k, v in layers:
            torch.nn.functional.scaled_dot_product_attention(q, k, v)

    return step


def seconds(run: Callable[[], None]) -> float:
    """Seconds that a call takes."""
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def measure(
    folder: Path, shape: Shape, rounds: int, threads: int, bandwidth: float, tick: Callable[[], None]
) -> list[Row]:
    """Measure all contenders at one context, alternating."""
    states = {data: made_up(shape, data) for data in (SCATTERED, IN_RUNS)}
    bench = Bench(folder, shape, threads, states)
    sparf = make_policy("sparf", Fraction(1, 8)).parameters(shape.tokens, shape.head_dim)
    rows = {name: Row(name, shape.tokens, shape.kv_bytes) for name in (DISK, EXACT, *SPARSE, CACHED, PACKED)}
    work = (
        lambda: bench.disk(rows[DISK]),
        lambda: bench.cold(rows[EXACT], SCATTERED, EVERYTHING),
        lambda: bench.cold(rows[SPARSE[0]], SCATTERED, sparf),
        lambda: bench.cold(rows[SPARSE[1]], IN_RUNS, sparf),
        lambda: bench.in_memory(SCATTERED, states[SCATTERED], rows[CACHED], rows[PACKED]),
    )
    return in_rounds(rows, work, rounds, bandwidth, tick)


def measure_real(folder: Path, rounds: int, threads: int, bandwidth: float, tick: Callable[[], None]) -> list[Row]:
    """Measure with K, V and queries of a model that read source code, at its longest context."""
    shape, states = of_a_model(REAL)
    bench = Bench(folder, shape, threads, {REAL: states})
    sparf = make_policy("sparf", Fraction(1, 8)).parameters(shape.tokens, shape.head_dim)
    name = f"SparF 1/8, {REAL}'s own"
    rows = {name: Row(name, shape.tokens, shape.kv_bytes) for name in (DISK, EXACT, name)}
    work = (
        lambda: bench.disk(rows[DISK]),
        lambda: bench.cold(rows[EXACT], REAL, EVERYTHING),
        lambda: bench.cold(rows[name], REAL, sparf),
    )
    return in_rounds(rows, work, rounds, bandwidth, tick)


def in_rounds(
    rows: dict[str, Row], work: Sequence[Callable[[], None]], rounds: int, bandwidth: float, tick: Callable[[], None]
) -> list[Row]:
    """The rows, with one measurement per round, and their ratios."""
    for _ in range(rounds):
        for run in work:
            run()
            tick()
    disk, exact = rows[DISK], rows[EXACT]
    for row in rows.values():
        row.over_exact = statistics.median(e / s for e, s in zip(exact.seconds, row.seconds, strict=True))
        row.over_floor = row.median / (row.kv_bytes / bandwidth)
        if row.file_bytes:
            rates = [size / seconds for size, seconds in zip(row.file_bytes, row.seconds, strict=True)]
            own = [size / seconds for size, seconds in zip(disk.file_bytes, disk.seconds, strict=True)]
            row.of_disk = statistics.median(rate / alone for rate, alone in zip(rates, own, strict=True))
    return list(rows.values())


def show(rows: list[Row], real: list[Row]) -> Table:
    """The measurements as tables."""
    table = Table(title="attention of a decode step, wall time; cold: around the page cache")
    for column in ("context", "contender", "ms", "GB/s of K and V", "MB read", "of disk", "x exact", "x memory floor"):
        table.add_column(column, justify="left" if column == "contender" else "right")
    for row in rows + real:
        if row.contender == DISK:
            table.add_section()
        read = f"{statistics.median(row.file_bytes) / 1e6:.4g}" if row.file_bytes else ""
        share = f"{row.of_disk:.0%}" if row.file_bytes else ""
        rate = f"{row.kv_bytes / row.median / 1e9:.3g}"
        numbers = (f"{row.median * 1e3:.4g}", rate, read, share, f"{row.over_exact:.2f}", f"{row.over_floor:.2f}")
        table.add_row(f"{row.tokens:,}", row.contender, *numbers)
    return table


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--contexts", type=int, nargs="+", default=[4096, 16384, 65536])
    parser.add_argument("--layers", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--model", default="426m", help="of the prefill: 426m (random weights) or mini")
    parser.add_argument("--prefill-tokens", type=int, default=2048)
    parser.add_argument("--quick", action="store_true", help="one round of a short context: does it run?")
    parser.add_argument("--json", type=Path, help="write the measurements to this file")
    args = parser.parse_args()
    if args.quick:
        args.contexts, args.layers, args.rounds, args.model, args.prefill_tokens = [EVEN], 2, 1, "mini", 128
    return args


def main() -> None:
    """Measure, print the table and write the file."""
    args, console = arguments(), Console()
    torch.set_num_threads(args.threads)
    bandwidth = memory_bandwidth(args.threads)
    rows: list[Row] = []
    rounds = {tokens: args.rounds * max(1, EVEN // tokens) for tokens in args.contexts}
    steps = 5 * sum(rounds.values()) + 4 * args.rounds
    with Progress(console=console, transient=True) as progress, drive_folder(None) as folder:
        task = progress.add_task("cpu target", total=steps)
        tick = lambda: progress.advance(task)  # noqa: E731
        for tokens in args.contexts:
            with tempfile.TemporaryDirectory(dir=folder) as place:
                shape = Shape(layers=args.layers, tokens=tokens)
                rows += measure(Path(place), shape, rounds[tokens], args.threads, bandwidth, tick)
        with tempfile.TemporaryDirectory(dir=folder) as place:
            real = measure_real(Path(place), args.rounds, args.threads, bandwidth, tick)
        model, _ = load(args.model)
        prefill = measure_prefill(
            args.model, model, args.prefill_tokens, args.rounds, args.threads, folder, tick, target="cpu"
        )
    (console if console.is_terminal else Console(width=110)).print(show(rows, real))
    stock, drive = (statistics.median(seconds) for seconds in (prefill.stock, prefill.drive))
    console.print(
        f"time to the first token of {prefill.tokens} ({args.model}): {drive:.3g} s with K and V to the file, "
        f"{stock:.3g} s without: {prefill.overhead:+.1%}"
    )
    if args.json:
        report = {
            "machine": machine(args.threads, bandwidth),
            "rows": [asdict(row) | {"median_seconds": row.median} for row in rows],
            "real": [asdict(row) | {"median_seconds": row.median} for row in real],
            "prefill": asdict(prefill) | {"overhead": prefill.overhead},
        }
        args.json.parent.mkdir(parents=True, exist_ok=True)
        args.json.write_text(json.dumps(report, indent=2) + "\n")


if __name__ == "__main__":
    main()
