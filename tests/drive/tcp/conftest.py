"""A target on loopback, and queues of the independent initiator."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import pytest
from tcp.initiator import Queue

from kvdrive._native import Drive, Subsystem, TcpServer

T = TypeVar("T")

NQN = "nqn.2026-01.org.kvdrive:tcp-test"


class Target:
    """A drive with one subsystem and a server; queues that it opened are closed with it."""

    def __init__(self, path: Path, **options: Any) -> None:
        self.nqn = NQN
        self.drive = Drive(path, "fast", 1, 1 << 26)
        self.subsystem = Subsystem(self.drive, serial="TCP0001", nqn=NQN)
        self.server = TcpServer(self.subsystem, "127.0.0.1", 0, **options)
        self.queues: list[Queue] = []

    @property
    def counters(self) -> dict[str, int]:
        return self.server.counters()

    def open(self, **options: Any) -> Queue:
        queue = Queue(self.server.port, **options)
        self.queues.append(queue)
        return queue

    def admin(self, nqn: str = NQN, digests: int = 0, alignment: int = 0, **connect: Any) -> tuple[Queue, int]:
        """An enabled controller's admin queue, and the controller's identifier."""

        def connected() -> tuple[Queue, int]:
            queue = self.open(digests=digests, alignment=alignment)
            reply = queue.connect(nqn, **connect)
            assert reply.status == 0, hex(reply.status)
            queue.enable()
            return queue, reply.result & 0xFFFF

        return self.patiently(connected)

    def io(self, controller: int, number: int = 1, digests: int = 0, alignment: int = 0, **connect: Any) -> Queue:
        def connected() -> Queue:
            queue = self.open(digests=digests, alignment=alignment)
            reply = queue.connect(NQN, number, controller, **connect)
            assert reply.status == 0, hex(reply.status)
            return queue

        return self.patiently(connected)

    def patiently(self, connected: Callable[[], T]) -> T:
        """What `connected` returns. It is repeated where this machine paused for longer than the target's limits."""
        while True:
            before = self.counters["timeouts"]
            try:
                return connected()
            except (EOFError, ConnectionError):
                if self.counters["timeouts"] == before:
                    raise

    def close(self) -> None:
        for queue in self.queues:
            queue.close()
        del self.server, self.subsystem, self.drive


@pytest.fixture
def make_target(tmp_path: Path) -> Iterator[Callable[..., Target]]:
    made: list[Target] = []

    def make(**options: Any) -> Target:
        made.append(Target(tmp_path / f"{len(made)}.kv", **options))
        return made[-1]

    yield make
    for target in made:
        target.close()


@pytest.fixture
def target(make_target: Callable[..., Target]) -> Target:
    return make_target()
