"""Blocks of bytes by key, within a bound: found again by later processes, and checked when they are read.

The order is bytes, then index, so the index names whole blocks. Nothing is synced: what a power cut takes back fails
its checksum and counts as not there.
"""

from __future__ import annotations

import itertools
import logging
import sqlite3
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from kvdrive.errors import InputError, KvdriveError
from kvdrive.prefix.blocks.buffers import Buffers, Bytes
from kvdrive.prefix.blocks.index import Block, BlockIndex
from kvdrive.prefix.blocks.medium import Medium, NoRoomError
from kvdrive.prefix.blocks.seal import HEADER_BYTES
from kvdrive.prefix.eviction import evict, make_eviction
from kvdrive.prefix.owner import this_process
from kvdrive.prefix.wear import Governor

READ_BYTES = 2 << 20  # of one read: long enough for an SSD, short enough that a request does not wait for others
Answer = TypeVar("Answer")
log = logging.getLogger(__name__)
_NUMBER = (1 << 63) - 1  # SQLite stores such integers
_stores = itertools.count()


@dataclass
class BlockStats:
    """Counts of this process, in blocks and bytes. `damaged`: read, and not what was promised."""

    written: int = 0
    bytes_written: int = 0
    failed_writes: int = 0
    read: int = 0
    bytes_read: int = 0
    damaged: int = 0
    evictions: int = 0


@dataclass(frozen=True)
class BlockOptions:
    """`capacity_bytes`: the most that all blocks may have. `model`: whose these are. `eviction`: a policy's name.
    `tenant`: has at most `tenant_bytes`. `daily_bytes`: written in a day before only prefixes that are wanted a second
    time are stored. 0: no bound.
    """

    capacity_bytes: int
    model: bytes = b""
    eviction: str = "lru"
    tenant: str = ""
    tenant_bytes: int = 0
    daily_bytes: int = 0


class BlockStore:
    """Blocks of one size under keys of 32 bytes on `medium`, named in the index `index`; ":memory:": for this run.

    Calls from several threads are safe, and several processes may use one file at once. Closes `medium`. Raises
    InputError.
    """

    def __init__(self, medium: Medium, index: Path | str, options: BlockOptions) -> None:
        self._medium = medium
        self.slot_bytes = medium.slot_bytes
        self.slots = options.capacity_bytes // self.slot_bytes
        self.stats = BlockStats()
        self._options = options
        self._policy = make_eviction(options.eviction)
        self._writer = this_process(next(_stores))
        self._uses: Counter[bytes] = Counter()  # -1: being written; > 0: being read; 0, absent: evictable
        self._gone: list[bytes] = []  # evicted, and still on the medium
        self._full = False  # the medium refused a block
        self._uncounted = 0  # bytes that were written and that the governor does not know
        self._lock = threading.Lock()
        try:
            if self.slots == 0:
                raise InputError(
                    f"a block takes {self.slot_bytes} bytes and the bound is {options.capacity_bytes}: raise it"
                )
            self._index = BlockIndex(index, medium.block_bytes, self.slot_bytes, medium.found)
        except BaseException:
            medium.close()
            raise
        self.governor = Governor(self._index.accounts, options.daily_bytes)
        with self._index.transaction():
            self._index.remove_unfinished()
            self._gone += self._index.remove_beyond(self.slots)  # the bound may have been higher before

    def close(self) -> None:
        """Close file and index. What was not written completely is removed."""
        unfinished = [name for name, uses in self._uses.items() if uses < 0]
        self._change(lambda: self._index.remove_all(unfinished))
        self._index.close()
        self._medium.close()

    # ---- looking up ----

    def holds(self, key: bytes) -> bool:
        """True if the block is written completely, as far as this process knows. Does not wait."""
        found = self._find(key)
        return found is not None and found[1]

    def uses(self, key: bytes) -> int:
        """-1 if this process writes the block, the number of its readers if it reads it, 0 otherwise."""
        return self._uses[self._medium.name_of(key)]

    def count(self) -> int:
        """Number of blocks, those that are being written included."""
        return self._index.count()

    def read(self, keys: Sequence[bytes], buffers: Sequence[Bytes]) -> list[bool]:
        """Read each of the blocks `keys` into its buffer. False for one that is not there or damaged: it is removed.

        Neighbours in the order of their keys' storing are read together, so a prefix is best read by one call.
        """
        names = [self._medium.name_of(key) for key in keys]
        with self._lock:
            blocks: dict[bytes, Block] = self._asked(lambda: self._index.whole(names), {})
            self._uses.update(blocks.keys())
            self._index.pinned.update(block.id for block in blocks.values())
        there = [place for place, name in enumerate(names) if name in blocks]
        wanted = [blocks[names[place]] for place in there]
        done = self._medium.read(wanted, [keys[place] for place in there], [buffers[place] for place in there])
        whole = [False] * len(keys)
        for place, good in zip(there, done, strict=True):
            whole[place] = good
        with self._lock:
            self._uses.subtract(blocks.keys())
            for name, block in blocks.items():
                if not self._uses[name]:
                    del self._uses[name]
                    self._index.pinned.discard(block.id)
            self.stats.read += sum(whole)
            self.stats.bytes_read += sum(whole) * self.slot_bytes
            if lost := [names[place] for place in there if not whole[place]]:
                self.stats.damaged += len(lost)
                self._change(lambda: self._index.remove_all(lost))
        self._medium.remove(lost)
        return whole

    def touch(self, keys: Sequence[bytes]) -> None:
        """Note that blocks were used; the first of `keys` is evicted last."""
        names = [self._medium.name_of(key) for key in keys]
        self._change(lambda: self._index.use(names))

    # ---- changing ----

    def reserve(self, keys: Sequence[bytes]) -> list[bytes]:
        """Make room for blocks, the first ones first. Returns those that have to be written: `finish` follows.

        Blocks that are there or being written are not among them, and none for which no other block can be evicted.
        """
        reserved: list[bytes] = []
        gone: list[bytes] = []
        with self._lock:
            if not self._change(lambda: self._reserve(keys, reserved, gone)):
                return []
            self._uses.update({self._medium.name_of(key): -1 for key in reserved})
            self._gone += gone
            self.stats.evictions += len(gone)
        return reserved

    def write(self, key: bytes, buffer: Bytes) -> bool:
        """Write a reserved block from `buffer`. False if that failed: call `finish` then.

        Evicted blocks are removed from the medium here, by the thread that writes, not by the one that reserves.
        """
        with self._lock:
            gone, self._gone = self._gone, []
        self._medium.remove(gone)
        found = self._find(key)
        if found is None:
            return False
        try:
            fresh = self._medium.write(found[0], key, buffer)
        except (OSError, NoRoomError, KvdriveError) as error:
            with self._lock:
                self.stats.failed_writes += 1
                if isinstance(error, NoRoomError) and not self._full:
                    log.warning("%s: %s; from now on new blocks take the place of old ones", self._medium.place, error)
                elif not isinstance(error, NoRoomError):
                    log.warning("a block cannot be written to %s: %s", self._medium.place, error)
                self._full |= isinstance(error, NoRoomError)
            return False
        with self._lock:
            self.stats.written += fresh
            self.stats.bytes_written += fresh * self.slot_bytes
            self._uncounted += fresh * self.slot_bytes
        return True

    def finish(self, written: Sequence[bytes], failed: Sequence[bytes]) -> None:
        """Reserved blocks are written, or will not be."""
        names, others = ([self._medium.name_of(key) for key in keys] for keys in (written, failed))

        def work() -> None:
            self._index.written(names)
            self._index.remove_all(others)
            self.governor.wrote(self._uncounted)

        with self._lock:
            if self._change(work):
                self._uncounted = 0
            for name in (*names, *others):
                self._uses.pop(name, None)
            if self._full:
                self.slots = max(min(self.slots, self.count()), 1)
                self._full = False

    def write_all(self, keys: Sequence[bytes], buffers: Buffers, fill: Callable[[int, Bytes], None]) -> set[bytes]:
        """Write reserved blocks through one of `buffers`, and `finish` them whatever happens. Returns those written.

        `fill(place, block)` copies the block `keys[place]` to the beginning of `block`.
        """
        written: list[bytes] = []
        buffer = buffers.wait()
        try:
            for place, key in enumerate(keys):
                fill(place, buffers[buffer][HEADER_BYTES:])
                if self.write(key, buffers[buffer]):
                    written.append(key)
        finally:
            buffers.give(buffer)
            there = set(written)
            self.finish(written, [key for key in keys if key not in there])
        return there

    def forget_model(self) -> None:
        """Remove all written blocks of this model."""
        gone: list[bytes] = []
        self._change(lambda: gone.extend(self._index.remove_model(self._options.model)))
        self._medium.remove(gone)

    # ---- parts ----

    def _change(self, work: Callable[[], object]) -> bool:
        """Change the index. False if the disk has no room for that: nothing has changed, and the engine goes on."""
        try:
            with self._index.transaction():
                work()
        except sqlite3.Error as error:
            log.warning("the index of %s cannot be changed: %s", self._medium.place, error)
            return False
        return True

    def _find(self, key: bytes) -> tuple[Block, bool] | None:
        return self._asked(lambda: self._index.find(self._medium.name_of(key)), None)

    def _asked(self, question: Callable[[], Answer], otherwise: Answer) -> Answer:
        """What the index answers; `otherwise` where it cannot be read."""
        try:
            return question()
        except sqlite3.Error as error:
            log.warning("the index of %s cannot be read: %s", self._medium.place, error)
            return otherwise

    def _reserve(self, keys: Sequence[bytes], reserved: list[bytes], gone: list[bytes]) -> None:
        index, options = self._index, self._options
        if options.daily_bytes and not self.governor.admits(
            [int.from_bytes(key[:8], "little") & _NUMBER for key in keys]
        ):
            return
        slots: dict[bytes, int] = {}
        for key in keys:
            name = self._medium.name_of(key)
            if name in slots or index.find(name) is not None:
                continue
            slot = self._room(len(slots), gone)
            if slot is None:
                break
            slots[name] = slot
            reserved.append(key)
        index.add(slots, options.model, options.tenant, self._writer)

    def _room(self, more: int, gone: list[bytes]) -> int | None:
        """A slot for a block, beside `more` that were found room for before; evictable blocks make room for it."""
        bytes_of, size, options = self._index.accounts.bytes, self.slot_bytes, self._options
        slot: int | None = None

        def over_quota() -> bool:
            return bool(options.tenant_bytes) and bytes_of(options.tenant) + (more + 1) * size > options.tenant_bytes

        def no_slot() -> bool:
            nonlocal slot
            if bytes_of() // size + more < self.slots:
                slot = self._index.take_slot(self.slots)
            return slot is None

        evicted = evict(self._policy, self._index, over_quota, options.tenant)
        if not over_quota():
            evicted += evict(self._policy, self._index, no_slot)
        gone += [block.name for block in evicted]
        return slot
