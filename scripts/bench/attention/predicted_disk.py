"""Steps of the cpu target from a disk, predicted from plain reads of the same file and from the engine's own work."""

from __future__ import annotations

import mmap
import os
import statistics
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from types import TracebackType

from bench.attention.disk import PIECE, data_pieces
from bench.attention.predicted_steps import Outcome, Setting, Stored
from bench.attention.states import IN_RUNS, Shape
from bench.machine import forget
from kvdrive.targets.cpu import CpuDrive

DEPTH = 16  # pieces that the drive has in flight
CONTEXTS = (32768, 65536)


class PlainReads:
    """Direct reads of a file in pieces of PIECE bytes, DEPTH of them at once, without a drive.

    The file, the threads and their buffers are there before the clock starts, as those of a drive are.
    """

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_RDONLY | os.O_DIRECT)
        self._pieces = list(data_pieces(self._file))
        self._buffers = [mmap.mmap(-1, PIECE) for _ in range(DEPTH)]
        self._pool = ThreadPoolExecutor(DEPTH)
        self._read(self._pieces[:DEPTH])

    def seconds(self, layers: int, size: int) -> float:
        """Seconds to read `size` bytes of each layer, one layer after the other, at the end of the file's data."""
        count = size // PIECE
        chosen = self._pieces[-count * layers :]
        assert len(chosen) == count * layers, "the file has the bytes of a step"
        start = time.perf_counter()
        for layer in range(layers):
            self._read(chosen[layer * count : (layer + 1) * count])
        return time.perf_counter() - start

    def _read(self, offsets: Sequence[int]) -> None:
        turns = iter(offsets)

        def work(buffer: mmap.mmap) -> None:
            for offset in turns:
                if os.preadv(self._file, [buffer], offset) != PIECE:
                    raise OSError("the file ended in the middle of a piece")

        list(self._pool.map(work, self._buffers))

    def __enter__(self) -> PlainReads:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._pool.shutdown()
        for buffer in self._buffers:
            buffer.close()
        os.close(self._file)


def disk(path: Path, threads: int, rounds: int, contexts: Sequence[int] = CONTEXTS) -> list[Outcome]:
    """Exact steps of a file that is not in the page cache. Medians over the rounds of what was measured and predicted.

    Predicted is reading and computing at the same time (`_both`), just before and just after the step, since the rate
    of a disk that others use changes from second to second.
    """
    shape = Shape(layers=2, group=4, tokens=max(contexts))
    settings = [Setting("cpu", "disk", "exact", 4, tokens, IN_RUNS) for tokens in sorted(contexts)]
    warm_up = replace(settings[0], tokens=min(4096, settings[0].tokens))  # makes the drive's buffers and its ring
    with CpuDrive(path, threads, 6 * shape.kv_bytes, format=True) as drive:
        stored = Stored(drive, shape, IN_RUNS, [warm_up, *settings])
    found: dict[Setting, list[tuple[float, float]]] = {setting: [] for setting in settings}
    with PlainReads(path) as plain:
        for _ in range(rounds):
            for setting in settings:
                layer = shape.kv_bytes * setting.tokens // shape.tokens // shape.layers
                before = _both(path, threads, plain, stored, setting, layer)
                forget(path)
                with CpuDrive(path, threads) as drive:
                    stored.step(drive, warm_up)
                    seconds = stored.step(drive, setting).seconds
                after = _both(path, threads, plain, stored, setting, layer)
                found[setting].append(((before + after) / 2, seconds))
    return [
        Outcome(setting, *(statistics.median(column) for column in zip(*pairs, strict=True)))
        for setting, pairs in found.items()
    ]


def _both(path: Path, threads: int, plain: PlainReads, stored: Stored, setting: Setting, layer: int) -> float:
    """Seconds of a step of layers of `layer` bytes, from reads without a drive and a drive without reads.

    The reads are of as many bytes of the same file, layer by layer, in pieces of the drive's size with as many in
    flight. Beside them the engine works on the step with the file in the page cache: they share the processors and the
    memory.
    """
    with CpuDrive(path, threads, cache_bytes=1 << 40) as drive, ThreadPoolExecutor(1) as beside:
        stored.step(drive, setting)  # fills the cache
        start = time.perf_counter()
        working = beside.submit(stored.step, drive, setting)
        plain.seconds(stored.shape.layers, layer)
        working.result()
        return time.perf_counter() - start
