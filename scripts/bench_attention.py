"""How fast the engines attend: GB/s of KV consumed, beside this machine's memory bandwidth and torch's SDPA.

All contenders of a round run one after the other on the same keys and values, several KV heads whose total size is far
beyond the last-level cache. Ratios are taken inside a round, and their median over the rounds is reported, so that a
machine that slows down for a while slows down both sides. `--json` writes every median with the raw times.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from kvdrive import _native, abi
from kvdrive.kernels.job import JobMemory
from kvdrive.kernels.native import scale_bits
from kvdrive.perf.kept import processor

Run = Callable[[], object]
SEED = 1


@dataclass(frozen=True)
class Shape:
    """Decode attention of `heads` KV heads, each with `g` query heads, `s` tokens and `d` numbers per row."""

    heads: int
    g: int
    s: int
    d: int

    @property
    def kv_bytes(self) -> int:
        """Bytes of K and V in binary16. Every contender's rate counts these bytes, whatever its own dtype."""
        return 2 * self.heads * self.s * self.d * 2


@dataclass
class Row:
    """One contender on one shape. Ratios compare within a round; medians over the rounds."""

    contender: str
    shape: Shape
    threads: int
    seconds: list[float] = field(default_factory=list)
    of_bandwidth: float = math.nan  # KV bytes per second, relative to a plain read
    slower_than_fast: float = math.nan

    @property
    def gb_per_s(self) -> float:
        """Median GB/s of binary16 KV."""
        return self.shape.kv_bytes / statistics.median(self.seconds) / 1e9

    def record(self) -> dict[str, object]:
        """All fields, for the JSON file."""
        return asdict(self) | {"gb_per_s": self.gb_per_s}


class Data:
    """The keys, values and queries of a shape, as jobs in memory images and as torch tensors."""

    def __init__(self, shape: Shape) -> None:
        rng = np.random.default_rng(SEED)
        self.shape = shape
        size = (shape.heads, shape.s, shape.d)
        self.q = rng.standard_normal((shape.heads, shape.g, shape.d), np.float32).astype(np.float16)
        self.k, self.v = (rng.standard_normal(size, np.float32).astype(np.float16) for _ in range(2))
        self.jobs = [self._job(head) for head in range(shape.heads)]
        self.images = [job.image() for job in self.jobs]

    def _job(self, head: int) -> JobMemory:
        scale = scale_bits(None, self.shape.d)
        job = JobMemory(abi.Mode.EXACT, self.shape.g, self.shape.d, tokens=self.shape.s, scale_log2e=scale)
        for name, array in (("q", self.q), ("k", self.k), ("v", self.v)):
            job.place(name, array[head])
        job.reserve("result", abi.AttentionResult.itemsize)
        job.reserve("out", self.q[head].nbytes)
        return job

    def attend(self, engine: _native.Engine) -> None:
        """Run the job of every head."""
        for image in self.images:
            status = engine.attention(image, 0)
            if status:
                raise RuntimeError(f"a job failed with status {abi.Status(status)!r}")

    def outputs(self) -> NDArray[np.float16]:
        """The outputs of the last run, [heads, g, d]."""
        read = [job.read(image, "out", np.float16) for job, image in zip(self.jobs, self.images, strict=True)]
        return np.stack(read).reshape(self.q.shape)

    def tensors(self, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """q [1, heads, g, d] and k, v [1, heads, s, d]."""
        q, k, v = (torch.from_numpy(x).to(dtype).unsqueeze(0) for x in (self.q, self.k, self.v))
        return q, k, v


def read_all(images: list[NDArray[np.uint8]], pool: ThreadPoolExecutor, threads: int) -> None:
    """Read every byte of the images once: each thread sums its share of every image."""

    def share(worker: int) -> int:
        total = 0
        for image in images:
            words = image[: image.size // 8 * 8].view(np.uint64)
            total += int(words[words.size * worker // threads : words.size * (worker + 1) // threads].sum())
        return total

    list(pool.map(share, range(threads)))


def multiply_adds(data: Data, engine: _native.FastEngine, pool: ThreadPoolExecutor, threads: int) -> None:
    """As many multiply-adds as exact attention needs, in registers: what is left if nothing is read or converted."""
    shape = data.shape
    count = 2 * shape.heads * shape.g * shape.s * shape.d
    list(pool.map(engine.multiply_adds, [count // threads] * threads))


def sdpa(data: Data, dtype: torch.dtype, packed: bool) -> Run:
    """torch's attention. Packed: the query heads of a group as queries of one head, so that K and V are read once."""
    q, k, v = data.tensors(dtype)
    if not packed:
        q = q.reshape(1, data.shape.heads * data.shape.g, 1, data.shape.d)
    grouped = not packed and data.shape.g > 1
    return lambda: torch.nn.functional.scaled_dot_product_attention(q, k, v, enable_gqa=grouped)


def contenders(data: Data, threads: int, pool: ThreadPoolExecutor) -> Iterator[tuple[str, Run]]:
    """Name and call of everything that runs in a round; the first two are the references of the ratios."""
    yield "memory read", lambda: read_all(data.images, pool, threads)
    engine = _native.Engine("fast", threads=threads)
    yield "fast", lambda: data.attend(engine)
    assert isinstance(engine, _native.FastEngine)
    yield "multiply-adds alone", lambda: multiply_adds(data, engine, pool, threads)
    for dtype in (torch.float16, torch.bfloat16, torch.float32):
        for packed in (False, True) if data.shape.g > 1 else (False,):  # one query head: both are the same call
            name = f"torch {str(dtype).removeprefix('torch.')} {'packed' if packed else 'stock'}"
            yield name, sdpa(data, dtype, packed)


def measure(data: Data, threads: int, rounds: int, tick: Callable[[], None]) -> list[Row]:
    """All contenders, interleaved, `rounds` times after one warm-up."""
    torch.set_num_threads(threads)
    with ThreadPoolExecutor(threads) as pool:
        runs = list(contenders(data, threads, pool))
        rows = [Row(name, data.shape, threads) for name, _ in runs]
        for turn in range(rounds + 1):
            for row, (_, run) in zip(rows, runs, strict=True):
                start = time.perf_counter()
                run()
                if turn:
                    row.seconds.append(time.perf_counter() - start)
                tick()
    memory, fast = rows[0].seconds, rows[1].seconds
    for row in rows:
        row.of_bandwidth = statistics.median(m / t for m, t in zip(memory, row.seconds, strict=True))
        row.slower_than_fast = statistics.median(t / f for f, t in zip(fast, row.seconds, strict=True))
    return rows


def check_same_work(data: Data) -> float:
    """Largest difference between the fast engine's outputs and float32 SDPA on the same numbers."""
    data.attend(_native.Engine("fast"))
    expected = sdpa(data, torch.float32, packed=True)()
    assert isinstance(expected, torch.Tensor)
    return float(np.abs(data.outputs().astype(np.float32) - expected[0].numpy()).max())


def measure_hls(g: int, s: int, d: int) -> Row:
    """Time the compiled kernels on one head, once. They are made for checking hardware, not for speed."""
    data = Data(Shape(1, g, s, d))
    row = Row("hls", data.shape, 1)
    start = time.perf_counter()
    data.attend(_native.Engine("hls"))
    row.seconds.append(time.perf_counter() - start)
    return row


def cache_bytes() -> int:
    """Size of the last-level cache in bytes; 0 if the system does not report it."""
    sizes = Path("/sys/devices/system/cpu/cpu0/cache").glob("index*/size")
    return max((int(size.read_text().strip().removesuffix("K")) * 1024 for size in sizes), default=0)


def machine(threads: int, bandwidth: float) -> dict[str, object]:
    """What a benchmark's report says of this machine; `bandwidth` of its memory in bytes/s."""
    said = {"processor": processor(), "cpus": os.cpu_count(), "bytes_per_second": bandwidth}
    return said | {"threads": threads, "torch": torch.__version__}


def show(rows: list[Row]) -> Table:
    """The measurements as a table."""
    table = Table(title="decode attention: binary16 KV consumed")
    for name in ("contender", "g", "tokens", "d", "threads", "GB/s", "of memory bandwidth", "time / fast"):
        table.add_column(name, justify="left" if name == "contender" else "right")
    for row in rows:
        shape = row.shape
        ratios = [f"{x:.3g}" if math.isfinite(x) else "" for x in (row.of_bandwidth, row.slower_than_fast)]
        sizes = (str(n) for n in (shape.g, shape.s, shape.d, row.threads))
        table.add_row(row.contender, *sizes, f"{row.gb_per_s:.3g}", *ratios)
    return table


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tokens", type=int, default=32768)
    parser.add_argument("--head-dim", type=int, default=128)
    parser.add_argument("--heads", type=int, default=8, help="KV heads")
    parser.add_argument("--groups", type=int, nargs="+", default=[1, 4], help="query heads per KV head")
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--hls-tokens", type=int, default=1024, help="tokens for the slow engine, 0: leave it out")
    parser.add_argument("--json", type=Path, help="write the measurements to this file")
    return parser.parse_args()


def main() -> None:
    """Measure, print the table and write the file."""
    args, console = arguments(), Console()
    shapes = [Shape(args.heads, g, args.tokens, args.head_dim) for g in args.groups]
    if shapes[0].kv_bytes < 4 * cache_bytes():
        console.print("[yellow]KV is below four times the last-level cache: take more --heads or --tokens")
    runs = sum(9 if g > 1 else 6 for g in args.groups) * len(args.threads) * (args.rounds + 1)
    rows: list[Row] = []
    differences = {}
    with Progress(console=console, transient=True) as progress:
        task = progress.add_task("attention", total=runs)
        for shape in shapes:
            data = Data(shape)
            differences[shape.g] = check_same_work(data)
            for threads in args.threads:
                rows += measure(data, threads, args.rounds, lambda: progress.advance(task))
    if args.hls_tokens:
        rows += [measure_hls(g, args.hls_tokens, args.head_dim) for g in args.groups]
    console.print(show(rows))
    for g, difference in differences.items():
        console.print(f"g = {g}: largest difference from float32 SDPA {difference:.2e}")
    if args.json:
        isa = _native.Engine("fast").isa
        machine = {"processor": processor(), "cpus": os.cpu_count(), "cache_bytes": cache_bytes(), "isa": isa}
        report = {"machine": machine, "torch": torch.__version__, "rows": [row.record() for row in rows]}
        args.json.parent.mkdir(parents=True, exist_ok=True)
        args.json.write_text(json.dumps(report, indent=2) + "\n")


if __name__ == "__main__":
    main()
