# SPDX-License-Identifier: Apache-2.0
"""What must happen before what in a block: accesses to one array, to one stream, and writes before later reads."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from openhls.analysis.affine import Affine, first_collision, may_meet, strides
from openhls.analysis.exclusive import exclusive
from openhls.analysis.storage import Kind, Storage, index_form
from openhls.ir import ARRAY_ACCESSES, Block, Carried, Dependence, Loop, Opcode, Operation, definitions_of


@dataclass(frozen=True)
class Edge:
    """Operation `later`, `distance` iterations on, starts at least `latency` cycles after `earlier`."""

    earlier: int
    later: int
    latency: int
    distance: int
    reason: str


@dataclass
class Body:
    """The operations of a block and, if it is the body of a loop, what the loop carries and promises."""

    operations: tuple[Operation, ...]
    storages: Mapping[str, Storage]
    carried: tuple[Carried, ...] = ()
    promises: tuple[Dependence, ...] = ()
    looped: bool = False
    definitions: dict[str, Operation] = field(init=False)

    def __post_init__(self) -> None:
        self.definitions = definitions_of(self.operations)

    @classmethod
    def of_loop(cls, loop: Loop, storages: Mapping[str, Storage]) -> Body:
        """The body of an innermost loop."""
        (block,) = loop.body
        assert isinstance(block, Block)
        return cls(block.operations, storages, loop.carried, loop.dependences, True)

    def apart(self, a: int, b: int) -> bool:
        """True if two accesses are in branches that exclude each other."""
        return exclusive(self.operations[a].predicate, self.operations[b].predicate, self.definitions)


def edges(body: Body) -> list[Edge]:
    """All ordering constraints that are not from a value to its use."""
    return stream_edges(body) + write_read_edges(body) + memory_edges(body) + array_edges(body)


def stream_edges(body: Body) -> list[Edge]:
    """Words of one stream in program order, also from one iteration to the next."""
    found: list[Edge] = []
    groups: dict[str, list[int]] = {}
    for number, operation in enumerate(body.operations):
        if operation.opcode in (Opcode.READ, Opcode.WRITE, Opcode.EMPTY, Opcode.FULL):
            groups.setdefault(operation.target, []).append(number)
    for stream, members in groups.items():
        reason = f"order of accesses to stream {stream}"
        for position, a in enumerate(members):
            # What was read or written shows a cycle later; asking alone changes nothing.
            after = 0 if body.operations[a].opcode in (Opcode.EMPTY, Opcode.FULL) else 1
            found += [Edge(a, b, after, 0, reason) for b in members[position + 1 :] if not body.apart(a, b)]
            if body.looped:
                found += [Edge(a, b, after, 1, reason) for b in members]
    return found


def write_read_edges(body: Body) -> list[Edge]:
    """A read waits. Everything that the program wrote before it must be on its way by then."""
    found: list[Edge] = []
    last_write: int | None = None
    for number, operation in enumerate(body.operations):
        if operation.opcode is Opcode.WRITE:
            last_write = number
        elif operation.opcode is Opcode.READ and last_write is not None:
            writes = [n for n in range(number) if body.operations[n].opcode is Opcode.WRITE]
            found += [Edge(n, number, 1, 0, "a write before a read") for n in writes]
    return found


# Streams of one pointer (openhls.ir.MemoryPort) whose accesses keep their order, and how many cycles lie between them:
# an element is read before it is written, and nothing is asked for before what was written is in memory.
MEMORY_ORDER = ((Opcode.READ, "_r", "_w", 0), (Opcode.READ, "_b", "_ar", 1))


def memory_edges(body: Body) -> list[Edge]:
    found: list[Edge] = []
    numbers = list(enumerate(body.operations))
    for opcode, first, second, latency in MEMORY_ORDER:
        for a, earlier in numbers:
            if earlier.opcode is not opcode or not earlier.target.endswith(first):
                continue
            pointer = earlier.target.removesuffix(first)
            reason = f"order of accesses to memory {pointer}"
            for b, later in numbers:
                if later.opcode is not Opcode.WRITE or later.target != f"{pointer}{second}":
                    continue
                if a < b and not body.apart(a, b):
                    found.append(Edge(a, b, latency, 0, reason))
                if body.looped and latency:
                    found.append(Edge(a, b, latency, 1, reason))
    return found


def recurrences(body: Body) -> dict[str, int]:
    """Memories in which an iteration may load what an earlier one has stored, with the least iterations in between."""
    found: dict[str, int] = {}
    for edge in array_edges(body):
        store, load = body.operations[edge.earlier], body.operations[edge.later]
        is_memory = body.storages[store.target].kind is Kind.RAM
        if edge.distance and (store.opcode, load.opcode) == (Opcode.STORE, Opcode.LOAD) and is_memory:
            found[store.target] = min(edge.distance, found.get(store.target, edge.distance))
    return found


LATENCY = {"RAW": 1, "WAR": 0, "WAW": 1}


def array_edges(body: Body) -> list[Edge]:
    groups: dict[str, list[int]] = {}
    for number, operation in enumerate(body.operations):
        if operation.opcode in ARRAY_ACCESSES and body.storages[operation.target].array.initial is None:
            groups.setdefault(operation.target, []).append(number)
    found: list[Edge] = []
    for array, members in groups.items():
        found += ArrayOrder(body, body.storages[array], members).edges()
    return found


@dataclass
class ArrayOrder:
    """Ordering of the accesses to one array."""

    body: Body
    storage: Storage
    members: list[int]

    def edges(self) -> list[Edge]:
        body = self.body
        self.forms: dict[int, Affine] = {
            n: index_form(body.operations[n].operands[0], self.storage, body.definitions) for n in self.members
        }
        self.steps = strides(body.carried, self.storage.index_bits, body.definitions)
        names = {item.value.name for item in body.carried} | set(body.definitions)
        self.variant = names - set(self.steps)
        found: list[Edge] = []
        for position, a in enumerate(self.members):
            for b in self.members[position + 1 :]:
                found += self.within(a, b)
            if body.looped:
                for b in self.members:
                    found += self.between(a, b)
        return found

    def kind(self, earlier: int, later: int) -> str | None:
        stores = [self.body.operations[n].opcode is Opcode.STORE for n in (earlier, later)]
        return {(True, False): "RAW", (False, True): "WAR", (True, True): "WAW"}.get((stores[0], stores[1]))

    def promised(self, kind: str, between: bool) -> list[Dependence]:
        return [
            promise
            for promise in self.body.promises
            if promise.array == self.storage.array.name
            and promise.between == between
            and promise.direction.upper() in (kind, "ALL")
        ]

    def within(self, a: int, b: int) -> list[Edge]:
        kind = self.kind(a, b)
        if kind is None or not may_meet(self.forms[a], self.forms[b]) or self.body.apart(a, b):
            return []
        if any(not promise.dependent for promise in self.promised(kind, False)):
            return []
        return [Edge(a, b, self.latency(kind), 0, self.reason(kind, a, b))]

    def between(self, a: int, b: int) -> list[Edge]:
        """From `a` to `b` of a later iteration."""
        kind = self.kind(a, b)
        if kind is None:
            return []
        distance = first_collision(self.forms[a], self.forms[b], self.steps, self.variant)
        if distance is None:
            return []
        for promise in self.promised(kind, True):
            if not promise.dependent:
                return []
            distance = max(distance, promise.distance)
        return [Edge(a, b, self.latency(kind), distance, self.reason(kind, a, b))]

    def latency(self, kind: str) -> int:
        """Two ports never meet at an element: not all memories return the old one to the port that reads."""
        return max(LATENCY[kind], int(self.storage.array.two_ports))

    def reason(self, kind: str, a: int, b: int) -> str:
        lines = [str(self.body.operations[n].location) for n in (a, b)]
        return f"{kind} on array {self.storage.array.name} ({lines[0]} to {lines[1]})"
