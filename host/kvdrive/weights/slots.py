"""Memory for some of the experts, allocated once. An expert that is needed takes the slot of one that is not."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass

import torch

from kvdrive.errors import TargetError
from kvdrive.weights.bundles import Array
from kvdrive.weights.eviction import Eviction, Key
from kvdrive.weights.file import aligned
from kvdrive.weights.reader import Reader


@dataclass
class SlotCounters:
    """Experts that tokens were routed to, each counted once per call of a layer.

    `hits` were in memory, `ahead_hits` were there or in flight because they were prefetched, `misses` had to be
    read. `ahead`: experts whose read began ahead; `withdrawn`: those of them whose read was cancelled, because their
    module did not need them.
    """

    hits: int = 0
    ahead_hits: int = 0
    misses: int = 0
    ahead: int = 0
    withdrawn: int = 0

    @property
    def hit_rate(self) -> float:
        """Share of the experts that were in memory already."""
        return self.hits / max(1, self.hits + self.ahead_hits + self.misses)


class Slots:
    """`count` experts in memory, of any module. Not safe to call concurrently.

    `arrays`: the modules with experts, whose bundles are alike. `tensors[name]` is the part `name` of all slots, as
    `Part.view` says: a view of the memory into which bundles are read.
    """

    def __init__(self, file: Reader, arrays: Sequence[Array], count: int, eviction: Eviction) -> None:
        self._file, self._arrays, self._eviction = file, arrays, eviction
        self.count = count
        self.stride = arrays[0].stride
        self._memory = aligned(count * self.stride)
        self._slots = self._memory.reshape(count, self.stride)
        self.tensors = {part.name: part.view(torch.from_numpy(self._slots)) for part in arrays[0].parts}
        self._slot_of: dict[Key, int] = {}
        self._free = list(range(count))
        self._tickets: dict[Key, int] = {}  # reads that were not awaited
        self._ahead: set[Key] = set()  # prefetched and not used yet
        self._leaving: list[tuple[int, int]] = []  # tickets of cancelled reads, and the slots that they still write
        self.counters = SlotCounters()

    def __contains__(self, key: Key) -> bool:
        return key in self._slot_of

    def fetch(self, keys: Sequence[Key]) -> None:
        """Slots for these experts, at most `count`; `arrived` says when they are there. Raises TargetError."""
        for key in keys:
            self._eviction.used(key)
            if key not in self._slot_of:
                self.counters.misses += 1
            elif key in self._ahead:
                self.counters.ahead_hits += 1
                if key in self._tickets:
                    self._file.hurry(self._tickets[key])
            else:
                self.counters.hits += 1
            self._ahead.discard(key)
        self._withdraw(self._tickets.keys() - set(keys))
        for key in keys:
            if key not in self._slot_of:
                self._start(key, self._slot(keeping=keys), ahead=False)

    def arrived(self, keys: Sequence[Key]) -> list[Key]:
        """Those of these experts that are in memory; waits for the first one if none is. Raises TargetError."""
        there = [key for key in keys if key not in self._tickets or self._file.has_ended(self._tickets[key])]
        there = there or list(keys[:1])
        for key in there:
            self._settle(key)
        return there

    def places(self, keys: Sequence[Key]) -> list[int]:
        """The slots of experts in memory."""
        return [self._slot_of[key] for key in keys]

    def read_ahead(self, keys: Sequence[Key], keeping: Sequence[Key]) -> None:
        """Start to read experts that will probably be needed, in place of others but those of `keeping`.

        Experts that do not fit are left out. Raises TargetError.
        """
        wanted = keys[: max(0, self.count - len(keeping))]
        for key in wanted:
            if key in self._slot_of:
                continue
            self._start(key, self._slot(keeping=[*keeping, *wanted]), ahead=True)
            self._ahead.add(key)
            self.counters.ahead += 1

    def close(self) -> None:
        """Wait for reads in flight; errors of unneeded reads are dropped."""
        for key in list(self._tickets):
            self._drop(key)
        while self._leaving:
            self._left()

    def _start(self, key: Key, slot: int, *, ahead: bool) -> None:
        module, expert = key
        self._tickets[key] = self._file.start(self._arrays[module], expert, self._slots[slot], ahead=ahead)
        self._slot_of[key] = slot
        self._eviction.came(key)

    def _slot(self, keeping: Sequence[Key]) -> int:
        """A free slot, by evicting an expert if there is none.

        A read in flight does not pin an expert: awaited and expected ones are in `keeping`. The other reads
        are wrong guesses, and those that an error has left behind. They may have ended long ago.
        """
        if not self._free and self._leaving:
            self._left()
        if not self._free:
            kept = set(keeping)
            leaves = self._eviction.victim(lambda key: key not in kept)
            assert leaves is not None, "more experts are kept than there are slots"
            self._drop(leaves)
        return self._free.pop()

    def _withdraw(self, keys: Iterable[Key]) -> None:
        """Nobody needs these reads: those that have not quite begun are cancelled, and their experts leave."""
        for key in keys:
            if self._file.cancel(self._tickets[key]):
                self._leaving.append((self._tickets.pop(key), self._slot_of.pop(key)))
                self.counters.withdrawn += key in self._ahead
                self._ahead.discard(key)
                self._eviction.left(key)

    def _left(self) -> None:
        """Wait until the oldest cancelled read writes no more: its slot is free."""
        ticket, slot = self._leaving.pop(0)
        with suppress(TargetError):
            self._file.wait(ticket, self._arrays[0], 0)
        self._free.append(slot)

    def _drop(self, key: Key) -> None:
        """Evict the expert from its slot. Its read, if one is in flight, ends first."""
        with suppress(TargetError):  # what was read is not needed
            self._settle(key)
        if key in self._slot_of:
            self._free_slot(key)

    def _settle(self, key: Key) -> None:
        """Wait for the read of an expert. One that fails leaves its slot. Raises TargetError."""
        ticket = self._tickets.pop(key, None)
        if ticket is None:
            return
        module, expert = key
        try:
            self._file.wait(ticket, self._arrays[module], expert)
        except BaseException:
            self._free_slot(key)
            raise

    def _free_slot(self, key: Key) -> None:
        self._free.append(self._slot_of.pop(key))
        self._ahead.discard(key)
        self._eviction.left(key)
