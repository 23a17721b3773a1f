"""The cpu target beside its own disk: attention over K and V in a file on it.

Measured is the attention of a decode step, all layers of a 426M-parameter Llama's shape, nothing else of the model.
In every round the disk reads as many bytes of the same file in pieces of 1 MiB, several at once, without kvdrive.
Before each cold measurement the drive is opened anew and the kernel is told to forget the file. What has K and V in
memory is warmed up for a second; then the drive, which finds them in the page cache, and packed SDPA take turns, and
the median of several steps counts. SparF sees two kinds of made-up K: independent rows, where the chosen tokens lie
anywhere, and runs of similar rows, where they lie together; and what a model keeps of source code. A last part compares
prefills of a whole model.
"""

from __future__ import annotations

import mmap
import os
import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction
from pathlib import Path

import torch

from bench.attention.states import IN_RUNS, SCATTERED, Shape, States, made_up, of_a_model
from bench.decode.prefill import Prefill, measure_prefill
from bench.decode.random_models import load
from bench.machine import forget, memory_bandwidth
from bench.rounds import Contender, Counts, Rounds, seconds, take_turns
from bench.setup import Setup
from bench.table import Block, Table, milliseconds
from kvdrive import abi
from kvdrive.kernels.native import scale_bits
from kvdrive.kvcache.session import Session
from kvdrive.policies import make_policy
from kvdrive.policies.parameters import EVERYTHING, Parameters
from kvdrive.targets.cpu import CpuDrive

PIECE = 1 << 20  # size of the disk's own reads
QUEUE_DEPTH = 8
WARM_UP = 1.0  # seconds
STEPS = 7  # steps per round, after the warm-up, of a contender with K and V in memory
EVEN = 16384  # tokens; a disk's rate differs more from one short read to the next: shorter contexts have more rounds
REAL = "mini"  # the model whose K and V are measured as well
DISK, EXACT, CACHED, PACKED = "disk alone", "exact", "exact, cached", "packed sdpa"
SPARSE = tuple(f"SparF 1/8, {data}" for data in (SCATTERED, IN_RUNS))


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

    def cold(self, data: str, how: Parameters) -> Counts:
        """A step of a drive that was just opened, without the file in the page cache."""
        forget(self.path)
        with CpuDrive(self.path, self.threads) as drive:
            took = seconds(lambda: self.step(drive, data, how))
            stats = drive.stats()
        return {"seconds": took, "bytes": stats.file_bytes_read, "reads": stats.file_reads}

    def disk(self) -> Counts:
        """Read as many bytes of the file as exact attention does, by plain direct reads."""
        forget(self.path)
        began = time.perf_counter()
        count = read_directly(self.path, self.shape.kv_bytes)
        return {"seconds": time.perf_counter() - began, "bytes": count, "reads": count // PIECE}

    def in_memory(self, data: str, states: States) -> tuple[Contender, Contender]:
        """The drive with K and V in the page cache, and torch with tensors: both are measured when the first runs."""
        latest: list[float] = []

        def cached() -> Counts:
            sdpa = packed_sdpa(states)
            with CpuDrive(self.path, self.threads, cache_bytes=1 << 40) as drive:
                own = lambda: self.step(drive, data, EVERYTHING)  # noqa: E731
                end = time.perf_counter() + WARM_UP
                while time.perf_counter() < end:
                    own(), sdpa()
                times = [(seconds(own), seconds(sdpa)) for _ in range(STEPS)]
            latest[:] = (statistics.median(one) for one in zip(*times, strict=True))
            return {"seconds": latest[0]}

        return Contender(CACHED, cached), Contender(PACKED, lambda: {"seconds": latest[1]})


def read_directly(path: Path, size: int) -> int:
    """Read the last `size` bytes that were written, QUEUE_DEPTH pieces at once. Returns the bytes read."""
    file = os.open(path, os.O_RDONLY | os.O_DIRECT)
    try:
        pieces = list(data_pieces(file))
        turns = iter(pieces[len(pieces) - size // PIECE :])

        def work(_: int) -> int:
            with mmap.mmap(-1, PIECE) as buffer:
                return sum(os.preadv(file, [buffer], offset) for offset in turns)

        with ThreadPoolExecutor(QUEUE_DEPTH) as pool:
            return sum(pool.map(work, range(QUEUE_DEPTH)))
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


def measure(folder: Path, shape: Shape, rounds: int, threads: int) -> Rounds:
    """All contenders at one context."""
    states = {data: made_up(shape, data) for data in (SCATTERED, IN_RUNS)}
    bench = Bench(folder, shape, threads, states)
    sparf = make_policy("sparf", Fraction(1, 8)).parameters(shape.tokens, shape.head_dim)
    found = [
        Contender(DISK, bench.disk),
        Contender(EXACT, lambda: bench.cold(SCATTERED, EVERYTHING)),
        *(
            Contender(name, lambda data=data: bench.cold(data, sparf))
            for name, data in zip(SPARSE, states, strict=True)
        ),
        *bench.in_memory(SCATTERED, states[SCATTERED]),
    ]
    return take_turns(found, rounds)


def measure_real(folder: Path, rounds: int, threads: int, tokens: int | None) -> tuple[Rounds, int]:
    """With K, V and queries of a model that read so much source code, None: its context; its tokens."""
    shape, states = of_a_model(REAL, tokens)
    bench = Bench(folder, shape, threads, {REAL: states})
    sparf = make_policy("sparf", Fraction(1, 8)).parameters(shape.tokens, shape.head_dim)
    found = [
        Contender(EXACT, lambda: bench.cold(REAL, EVERYTHING)),
        Contender(f"SparF 1/8, {REAL}'s own", lambda: bench.cold(REAL, sparf)),
    ]
    return take_turns(found, rounds), shape.tokens


def run(setup: Setup) -> list[Block]:
    """A row for each context."""
    torch.set_num_threads(setup.threads)
    layers, contexts = setup.size((8, (4096, 16384, 65536)), (2, (1024,)))
    model = setup.size("426m", "mini")
    found: dict[int, Rounds] = {}
    for tokens in contexts:
        rounds = setup.size(5, 1) * (1 if setup.quick else max(1, EVEN // tokens))
        with setup.folder() as folder:
            found[tokens] = measure(folder, Shape(layers=layers, tokens=tokens), rounds, setup.threads)
        setup.say(f"{tokens:,} tokens")
    with setup.folder() as folder:
        real, tokens = measure_real(folder, setup.size(5, 1), setup.threads, setup.size(None, 512))
    with setup.folder() as folder:
        prefill = measure_prefill(setup, model, load(model)[0], folder, "cpu")
    kept = {str(tokens): one.rounds for tokens, one in found.items()} | {"real": real.rounds, "prefill": vars(prefill)}
    bandwidth = setup.size(memory_bandwidth, lambda threads: 0.0)(setup.threads)
    return [Block("disk", [table(found, real, tokens, prefill, bandwidth)], kept)]


def table(found: dict[int, Rounds], real: Rounds, real_tokens: int, prefill: Prefill, bandwidth: float) -> Table:
    """A column for each contender, and for each comparison with the disk."""
    names = next(iter(found.values())).names
    beside = {DISK: ["GB/s"], EXACT: ["share of the disk's rate"]}
    rows = []
    for tokens, one in found.items():
        cells = [f"{tokens:,}"]
        for name in names:
            ratio = f" ({one.faster(name, EXACT):.2g}x)" if name in SPARSE else ""
            cells.append(milliseconds(one.median(name)) + ratio)
            if name == DISK:
                cells.append(f"{one.median(DISK, 'bytes') / one.median(DISK) / 1e9:.3g}")
            if name == EXACT:  # as many bytes
                cells.append(f"{one.faster(EXACT, DISK):.0%}")
        rows.append(cells)
    exact, sparf = real.names
    note = (
        "426m's 8 layers, K and V in a file on this machine's disk; but for `cached` the page cache does not hold the "
        "file. `disk alone`: as many bytes of the file in direct reads of 1 MiB. The tokens that SparF chooses are "
        "scattered (independent random rows), or lie in runs of similar rows. `cached` and `packed sdpa`: warm, in "
        f"turns. {sparf} K and V of {real_tokens:,} tokens of source code: "
        f"{real.median(sparf, 'bytes') / real.median(exact, 'bytes'):.0%} of the bytes, "
        f"{real.faster(sparf, exact):.2g}x. Time to the first token with K and V on their way to the file: {prefill}. "
        f"Memory is read at {bandwidth / 1e9:.3g} GB/s."
    )
    legend = "ms for the attention of a decode step; in brackets: how many times as fast as `exact`."
    head = ["context", *(column for name in names for column in [name, *beside.get(name, [])])]
    return Table(head, rows, note, legend, align="r" * len(head))
