"""What the open sessions of one store share."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cached_property
from typing import TypeVar

import torch

from kvdrive import abi
from kvdrive.nvme.errors import CommandError
from kvdrive.prefix.evictor import Evictor
from kvdrive.prefix.memory_tier import MemoryTier
from kvdrive.prefix.owner import this_process
from kvdrive.prefix.resume import Costs
from kvdrive.prefix.stored import StoredSessions
from kvdrive.prefix.wear import Governor

Result = TypeVar("Result")
_stores = itertools.count()


@dataclass
class Context:
    """`every`: tokens between two saves of a running sequence. `check_model` raises where the model is not the one
    whose identity names sessions; it is on `device`. `eviction`: the name of the policy by which copies of idle
    sessions leave their `memory_bytes` bytes of memory; 0: there are none. `owner`: the name of this store among all
    processes. `saver`: the thread that saves in the background. `on_step` is called with the name of each step of a
    save, for tests.
    """

    stored: StoredSessions
    evictor: Evictor
    governor: Governor
    costs: Costs
    every: int
    check_model: Callable[[], None]
    eviction: str = "lru"
    memory_bytes: int = 0
    device: Callable[[], torch.device] = lambda: torch.device("cpu")
    owner: str = field(default_factory=lambda: this_process(next(_stores)))
    saver: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(1, "kvdrive-saver"))
    on_step: Callable[[str], None] = lambda step: None

    @cached_property
    def memory(self) -> MemoryTier | None:
        """Copies of idle sessions in memory."""
        return MemoryTier(self.stored, self.memory_bytes, self.eviction) if self.memory_bytes else None

    def making_room(self, work: Callable[[], Result]) -> Result:
        """`work`, again after sessions were evicted if a drive is full. Raises CommandError, and what `work` raises."""
        try:
            return work()
        except CommandError as error:
            if error.status != abi.NvmeStatus.CAPACITY_EXCEEDED or not self.evictor.make_room():
                raise
            return work()
