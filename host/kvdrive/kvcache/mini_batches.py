"""A batch in mini-batches: while the drives attend to one of them, the host computes the layers of another one.

This is a schedule for one call of the model, and nothing of it outlives the call. Each mini-batch runs the model in a
thread of its own; the threads take turns, and pass on when their queries are with the drives. Every such run has all
rows of the batch, of which a mini-batch uses its own: a product of fewer rows may round otherwise. So each row has the
bits that it has in one run for all.
"""

from __future__ import annotations

import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import pairwise
from statistics import median
from typing import Any

import torch

from kvdrive.kvcache.batch import Batch
from kvdrive.kvcache.parts import PartsCache, RowsOf
from kvdrive.kvcache.slices import gather
from kvdrive.kvcache.turns import Turns
from kvdrive.targets.queue import WorkQueue

Clock = Callable[[], float]
Run = Callable[[Any], Any]  # calls the model with a cache
_FIRST = 3  # calls with so many rows that run in one piece, and are measured, before two mini-batches may pay
_AGAIN = 64  # every so many calls, one runs in one piece: the context grows
_GAIN = 1.1  # times as fast that two mini-batches have to promise


class Pace:
    """Chooses by what calls have taken. `clock` gives seconds.

    A call in one piece takes what the host computes and what the drives do then, while the host waits. In two
    mini-batches the host computes twice, beside the drives.
    """

    def __init__(self, clock: Clock = time.perf_counter) -> None:
        self.clock = clock
        self._calls: defaultdict[int, int] = defaultdict(int)  # by rows
        self._taken: defaultdict[int, deque[tuple[float, float]]] = defaultdict(lambda: deque(maxlen=_FIRST))

    def count(self, rows: int) -> int | None:
        """Mini-batches for the next call of so many rows; None: it is to run in one piece, and to be measured."""
        self._calls[rows] += 1
        taken = self._taken[rows]
        if len(taken) < _FIRST or self._calls[rows] % _AGAIN == 0:
            return None
        host, drives = (median(seconds) for seconds in zip(*taken, strict=True))
        return 2 if host + drives >= _GAIN * max(2 * host, drives) else 1

    def took(self, rows: int, host: float, drives: float) -> None:
        """What was measured, in seconds: the host computed, and waited for the drives."""
        self._taken[rows].append((host, drives))


class MiniBatches:
    """The schedule of an attachment. `count`: of each batch that has enough rows, unless a `pace` chooses.

    It is for calls behind the first one of a sequence, in which the drives attend. With a pace, these are decode steps.
    """

    def __init__(self, count: int = 1, pace: Pace | None = None) -> None:
        self._count = count
        self._pace = pace
        self._threads: list[WorkQueue[None]] = []  # of mini-batches, but for the first one

    def run(self, batch: Batch, cache: Any, run: Run, shape: tuple[int, int]) -> Any:
        """`run(cache)`, which is a call of the model for `batch`. `shape`: rows and tokens of the call.

        Returns the model's output for all rows. Raises what `run` raises; then the batch is as it was before the call,
        or has lost its tokens.
        """
        rows = len(batch.sequences)
        scheduled = batch.placement.drives_attend and not batch.part.in_prompt and batch.is_on_drives
        count = self._count_for(*shape) if scheduled and shape[0] == rows else 1
        if count is None:
            return self._measured(rows, [batch], partial(run, cache))
        if count == 1:
            return run(cache)
        shares, tokens = _shares(rows, count), batch.part.tokens(batch.drive_layers[0])
        parts = [batch.part.split(share) for share in shares]
        views = [[batch.placement.layer(part, stored) for stored in part.layers] for part in parts]
        try:
            output = self._in_turns([[one] for one in zip(shares, views, strict=True)], run, rows, cache)
        except BaseException:
            batch.undo_parts(parts, tokens)
            raise
        batch.part.join(parts)
        return output

    def run_joined(self, batches: Sequence[Batch], parts: Sequence[RowsOf], run: Run) -> Any:
        """As `run`, for the next tokens of several batches with one row each, whose tokens are rows of the call; the
        caller undoes a call that fails.
        """
        count = self._count_for(len(parts), 1) if any(one.placement.drives_attend for one in batches) else 1
        if count is None:
            return self._measured(len(parts), batches, partial(run, PartsCache(parts, alike=False)))
        if count == 1:
            return run(PartsCache(parts, alike=False))
        rows = parts[-1][0].stop
        return self._in_turns([parts[share] for share in _shares(len(parts), count)], run, rows)

    def close(self) -> None:
        """End the threads."""
        for thread in self._threads:
            thread.close()
        self._threads.clear()

    def _count_for(self, rows: int, new_tokens: int) -> int | None:
        if rows < 2 or (self._pace is not None and new_tokens > 1):
            return 1
        return min(self._count, rows) if self._pace is None else self._pace.count(rows)

    def _measured(self, rows: int, batches: Sequence[Batch], call: Callable[[], Any]) -> Any:
        """A call in one piece."""
        assert self._pace is not None
        waited: list[float] = []
        for batch in batches:
            batch.part.shared.waited = waited.append
        began = self._pace.clock()
        try:
            output = call()
        finally:
            for batch in batches:
                batch.part.shared.waited = None
        self._pace.took(rows, self._pace.clock() - began - sum(waited), sum(waited))
        return output

    def _in_turns(self, groups: Sequence[Sequence[RowsOf]], run: Run, rows: int, cache: Any = None) -> Any:
        """Run the model for each group in a thread; returns the output for all `rows`, with `cache`.

        Parts of one batch, which is that of `cache`, have equally many tokens.
        """
        turns, settings = Turns(len(groups)), _thread_settings()
        while len(self._threads) < len(groups) - 1:
            self._threads.append(WorkQueue(None, "kvdrive-mini-batch"))

        def work(number: int, _: None = None) -> Any:
            turns.wait(number)
            try:
                meanwhile = partial(turns.pass_on, number)
                with settings():
                    output = run(PartsCache(groups[number], alike=cache is not None, meanwhile=meanwhile))
                for _share, views in groups[number]:
                    views[0].part.writeback.land()
                return output
            finally:
                turns.end(number)

        others = [thread.start(partial(work, i)) for i, thread in enumerate(self._threads[: len(groups) - 1], 1)]
        try:
            first = work(0)
        finally:
            rest = gather(others)
        return _merged([first, *rest], [slice(one[0][0].start, one[-1][0].stop) for one in groups], rows, cache)


def _shares(rows: int, count: int) -> list[slice]:
    """`count` neighbouring shares of rows, as equal as possible."""
    return [slice(*part) for part in pairwise(rows * i // count for i in range(count + 1))]


def _merged(outputs: Sequence[Any], shares: Sequence[slice], rows: int, cache: Any) -> Any:
    """What the outputs say of each row, from the row's own mini-batch, and `cache`; lists are left out."""
    first = outputs[0]
    found = {
        name: torch.cat([output[name][share] for output, share in zip(outputs, shares, strict=True)])
        for name, value in first.items()
        if isinstance(value, torch.Tensor) and value.ndim and len(value) == rows
    }
    return type(first)(**found, past_key_values=cache)


def _thread_settings() -> Callable[[], Any]:
    """This thread's settings of torch, as a context for other threads."""
    threads, gradients = torch.get_num_threads(), torch.is_grad_enabled()
    inference = torch.is_inference_mode_enabled()

    @contextmanager
    def settings() -> Iterator[None]:
        torch.set_num_threads(threads)
        with torch.inference_mode(inference), torch.set_grad_enabled(gradients):
            yield

    return settings
