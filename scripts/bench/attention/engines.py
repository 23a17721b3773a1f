"""How fast the engines attend: GB/s of KV consumed, beside this machine's memory bandwidth and torch's SDPA.

All contenders attend to the same keys and values, several KV heads whose total size is far beyond the last-level cache.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from bench.machine import cache_bytes
from bench.rounds import Contender, Rounds, seconds, take_turns
from bench.setup import Setup
from bench.table import Block, Table
from kvdrive import _native, abi
from kvdrive.kernels.job import JobMemory
from kvdrive.kernels.native import scale_bits

FAST = "fast"
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


def sdpa(data: Data, dtype: torch.dtype, packed: bool) -> Callable[[], object]:
    """torch's attention. Packed: the query heads of a group as queries of one head, so that K and V are read once."""
    q, k, v = data.tensors(dtype)
    if not packed:
        q = q.reshape(1, data.shape.heads * data.shape.g, 1, data.shape.d)
    grouped = not packed and data.shape.g > 1
    return lambda: torch.nn.functional.scaled_dot_product_attention(q, k, v, enable_gqa=grouped)


def contenders(data: Data, threads: int, pool: ThreadPoolExecutor) -> Iterator[Contender]:
    """Everything that runs in a round."""
    yield Contender("memory read", lambda: read_all(data.images, pool, threads))
    engine = _native.Engine("fast", threads=threads)
    yield Contender(FAST, lambda: data.attend(engine))
    assert isinstance(engine, _native.FastEngine)
    yield Contender("multiply-adds alone", lambda: multiply_adds(data, engine, pool, threads))
    for dtype in (torch.float16, torch.bfloat16, torch.float32):
        for packed in (False, True) if data.shape.g > 1 else (False,):  # one query head: both are the same call
            name = f"torch {str(dtype).removeprefix('torch.')} {'packed' if packed else 'stock'}"
            yield Contender(name, sdpa(data, dtype, packed))


def check_same_work(data: Data) -> float:
    """Largest difference between the fast engine's outputs and float32 SDPA on the same numbers."""
    data.attend(_native.Engine("fast"))
    expected = sdpa(data, torch.float32, packed=True)()
    assert isinstance(expected, torch.Tensor)
    return float(np.abs(data.outputs().astype(np.float32) - expected[0].numpy()).max())


def measure(data: Data, threads: int, rounds: int) -> Rounds:
    """All contenders, after one round that does not count."""
    torch.set_num_threads(threads)
    with ThreadPoolExecutor(threads) as pool:
        return take_turns(contenders(data, threads, pool), rounds, warm_up=1)


def rate_of_hls(shape: Shape) -> float:
    """GB/s of the compiled kernels on one head, once. They are made for checking hardware, not for speed."""
    data, engine = Data(shape), _native.Engine("hls")
    return shape.kv_bytes / seconds(lambda: data.attend(engine)) / 1e9


def run(setup: Setup) -> list[Block]:
    """A column for each group of query heads and number of threads."""
    heads, tokens, slow = setup.size((8, 32768, 1024), (2, 1024, 64))
    shapes = [Shape(heads, g, tokens, 128) for g in (1, 4)]
    if not setup.quick and shapes[0].kv_bytes < 4 * cache_bytes():
        setup.say("K and V are below four times the last-level cache: the rates are not those of memory")
    columns: dict[str, Rounds] = {}
    for shape in shapes:
        data = Data(shape)
        setup.say(f"g = {shape.g}: largest difference from float32 SDPA {check_same_work(data):.2e}")
        for threads in sorted({1, setup.threads}):
            name = f"g = {shape.g}, {threads} thread{'s' if threads > 1 else ''}"
            columns[name] = measure(data, threads, setup.size(7, 1))
            setup.say(name)
    hls = {g: rate_of_hls(Shape(1, g, slow, 128)) for g in (1, 4)}
    return [
        Block("engines", [table(columns, shapes[0], hls, slow)], {name: one.rounds for name, one in columns.items()})
    ]


def table(columns: dict[str, Rounds], shape: Shape, hls: dict[int, float], slow: int) -> Table:
    """A row for each contender."""
    rows = []
    for name in dict.fromkeys(name for found in columns.values() for name in found.names):
        cells = []
        for found in columns.values():
            if name not in found.names:
                cells.append("-")
                continue
            rate = f"{shape.kv_bytes / found.median(name) / 1e9:.3g}"
            cells.append(rate if name == FAST else f"{rate} ({found.faster(name, FAST):.3g}x)")
        rows.append([name, *cells])
    compiled = ", ".join(f"{rate:.2g} GB/s at g = {g}" for g, rate in hls.items())
    note = (
        f"{_native.Engine('fast').isa}; s = {shape.s}, d = {shape.d}, {shape.heads} KV heads streamed from memory. "
        "`memory read` only reads as many bytes, `multiply-adds alone` only computes as many products and sums of "
        "binary64 numbers, in registers: no exact sum of this kind is faster. "
        f"The compiled kernels (`hls`, s = {slow}): {compiled}."
    )
    legend = "GB/s of K and V; in brackets: how many times as fast as `fast`, median of the rounds' ratios."
    return Table(["GB/s of K and V", *columns], rows, note, legend)
