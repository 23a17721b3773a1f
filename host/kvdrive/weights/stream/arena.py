"""The memory through which the units of a step pass, one after the other: while one computes, the next one is read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import torch

from kvdrive.errors import TargetError
from kvdrive.weights.file import aligned
from kvdrive.weights.stream.files import CheckpointFiles, Read
from kvdrive.weights.stream.units import Unit


@dataclass(frozen=True)
class _Fetch:
    """A unit in the arena: its memory begins at byte `begin`, and its reads may be in flight."""

    unit: int
    begin: int
    reads: list[Read]


def least_bytes(units: Sequence[Unit]) -> int:
    """What an arena has at least: room for each unit, and for every two layers that follow each other.

    The last unit is the head. It may be larger than two layers; then it is read when the last layer has computed.
    """
    sizes = [unit.bytes for unit in units]
    return max([*sizes, *(a + b for a, b in pairwise(sizes[:-1]))])


def full_bytes(units: Sequence[Unit]) -> int:
    """The arena in which every unit is read while the one before computes."""
    sizes = [unit.bytes for unit in units]
    return max(a + b for a, b in zip(sizes, [*sizes[1:], sizes[0]], strict=True))


class Arena:
    """Memory of `size` bytes for `units`, which are taken in their order, again and again. Not thread-safe.

    One unit lies at the beginning of the memory and the next one at its end, in turn.
    """

    def __init__(self, files: CheckpointFiles, units: Sequence[Unit], size: int) -> None:
        self._files, self._units = files, list(units)
        self._memory = aligned(size)
        self._bytes = torch.from_numpy(self._memory)
        self._held: _Fetch | None = None
        self._ahead: _Fetch | None = None

    def take(self, number: int) -> torch.Tensor:
        """The memory of a unit, uint8 [bytes], which stays until `release`; the next unit's read begins.

        Raises TargetError; the unit is not taken then, and can be asked for again.
        """
        if self._held is not None:
            raise TargetError(f"{self._units[self._held.unit].name} is computing: call the model from one thread")
        fetch = self._awaited(number)
        self._held = fetch
        self._fetch_next()
        return self._bytes[fetch.begin : fetch.begin + self._units[number].bytes]

    def release(self) -> None:
        """The unit that was taken has computed. A next unit that had no room beside it is read now."""
        held, self._held = self._held, None
        if held is not None and self._ahead is None:
            self._ahead = self._start((held.unit + 1) % len(self._units), 0)

    def drain(self) -> None:
        """Wait for what is read ahead, and forget it."""
        ahead, self._ahead = self._ahead, None
        if ahead is not None:
            self._files.wait(ahead.reads, noted=True)

    def _awaited(self, number: int) -> _Fetch:
        """A unit when its reads have ended: those that are in flight, or new ones if another unit was expected."""
        if self._ahead is not None and self._ahead.unit != number:
            self.drain()
        fetch, self._ahead = self._ahead or self._start(number, 0), None
        self._files.wait(fetch.reads, noted=True)
        return fetch

    def _fetch_next(self) -> None:
        """Begin to read the unit behind the one that is held, if both fit."""
        assert self._held is not None
        following = (self._held.unit + 1) % len(self._units)
        size = self._units[following].bytes
        if self._units[self._held.unit].bytes + size <= len(self._memory):
            self._ahead = self._start(following, 0 if self._held.begin else len(self._memory) - size)

    def _start(self, number: int, begin: int) -> _Fetch:
        """Begin to read a unit."""
        extents = self._units[number].extents
        memory = self._memory[begin : begin + self._units[number].bytes]
        return _Fetch(number, begin, [self._files.start(one, memory[one.at : one.at + one.bytes]) for one in extents])
