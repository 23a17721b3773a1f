# SPDX-License-Identifier: Apache-2.0
"""Operations to clock cycles.

Every operation starts as early as its operands, the clock and its resources allow; operations chain within a cycle. In
a loop, step `s` of an iteration shares its resources with step `s + II` of the one before it (modulo scheduling), and
what an iteration hands on must be there when the next one needs it. Those demands only ever move operations later, so
repeating them ends at the earliest schedule or shows that the interval is too short; the smallest interval wins. Where
later starts save registers, `sink` then makes them.

A read after step 0 may find its stream empty when younger words are already under way. With an interval of one, the
steps before it wait and those behind it run on. With a longer one, iterations would then meet in a resource that they
were meant to share in turn, so such a loop runs one iteration at a time.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from openhls.analysis.exclusive import exclusive
from openhls.analysis.storage import Kind, ports_of
from openhls.errors import Unsupported
from openhls.ir import UNKNOWN, Carried, Opcode, Operand, Operation, Value
from openhls.schedule.delays import Cost
from openhls.schedule.dependence import Body, Edge, edges
from openhls.schedule.sink import Sink, used
from openhls.schedule.target import Target

ROUNDS = 300
MOST_INTERVAL = 10000
MARGIN = 64  # steps beyond the depth of one iteration after which an interval counts as too short


@dataclass(frozen=True)
class Time:
    """A step, and nanoseconds into it."""

    step: int
    offset: float

    def latest(self, other: Time) -> Time:
        return max(self, other, key=lambda time: (time.step, time.offset))


@dataclass
class Schedule:
    """When the operations of a block start, in steps of an iteration.

    `ready` tells when a value of the block can be used first. `phi` are the steps at which carried values are taken
    over (first use) and `commit` those at whose end they get their next value. `interval` is None without a loop.
    """

    steps: list[int]
    ready: dict[str, Time]
    depth: int
    interval: int | None
    phi: dict[str, int] = field(default_factory=dict)
    commit: dict[str, int] = field(default_factory=dict)
    again: int = 0
    limit: str = ""
    ends: list[Time] = field(default_factory=list)  # of each operation's logic: nanoseconds into its first step
    starts: list[Time] = field(default_factory=list)

    @property
    def overlapped(self) -> bool:
        return self.interval is not None and self.interval < self.depth


@dataclass
class TooShort(Exception):
    """An interval that cannot be reached, and what stands against it."""

    reason: str


@dataclass
class Attempt:
    """The search for the earliest schedule at one interval (None: no iteration follows)."""

    body: Body
    edges: list[Edge]
    again: Operand | None
    interval: int | None
    target: Target

    def __post_init__(self) -> None:
        self.delays, self.budget = self.target.delays, self.target.budget
        count = len(self.body.operations)
        self.least = [0] * count
        self.phi = {item.value.name: 0 for item in self.body.carried}
        self.incoming: list[list[Edge]] = [[] for _ in range(count)]
        for edge in self.edges:
            if edge.distance == 0:
                self.incoming[edge.later].append(edge)
        self.ports = [self.ports_used(operation) for operation in self.body.operations]
        self.costs = [self.cost_of(operation) for operation in self.body.operations]
        self.rising = ""

    def ports_used(self, operation: Operation) -> tuple[tuple[str, str, int], ...]:
        match operation.opcode:
            case Opcode.READ | Opcode.WRITE:
                return ((operation.target, operation.opcode.value, 0),)
            case Opcode.LOAD | Opcode.STORE:
                return ports_of(operation, self.body.storages[operation.target], self.body.definitions)
        return ()

    def cost_of(self, operation: Operation) -> Cost:
        delays = self.delays
        match operation.opcode:
            case Opcode.READ:
                return Cost(delays.fifo_data, arrive=delays.handshake)
            case Opcode.EMPTY | Opcode.FULL:
                return Cost(delays.fifo_data)
            case Opcode.WRITE | Opcode.STORE:
                return Cost(0.0, arrive=delays.ram_address)
            case Opcode.LOAD:
                storage = self.body.storages[operation.target]
                if storage.kind is Kind.RAM:
                    return Cost(delays.memory(storage.words), 1, delays.ram_address)
                select = delays.logic(storage.array.length + storage.index_bits)
                if storage.load_latency:
                    return Cost(delays.clock_to_q, 1, min(select, self.budget - delays.clock_to_q))
                return Cost(select)
        active = tuple(significant_width(operand, self.body.definitions) for operand in operation.operands)
        return delays.cost(operation, active)

    def begin(self, step: int) -> Time:
        """When a register has its value in a step."""
        return Time(step, self.delays.clock_to_q)

    # ---- one iteration ----

    def run(self) -> Schedule:
        for _ in range(ROUNDS):
            self.joined = False
            self.place()
            depth = max([time.step for time in self.finish], default=0) + 1
            bound = self.bound = getattr(self, "bound", 2 * depth + MARGIN)
            if not self.joined and not self.raise_bounds():
                return self.result()
            if max([*self.least, *self.phi.values()], default=0) > bound:
                break
        raise TooShort(self.rising)

    def place(self) -> None:
        """Every operation at its earliest, in program order."""
        self.start: list[Time] = []
        self.finish: list[Time] = []
        self.ready: dict[str, Time] = {name: self.begin(step) for name, step in self.phi.items()}
        taken: dict[tuple[object, int], list[int]] = {}
        for number, operation in enumerate(self.body.operations):
            at = self.fit(self.earliest(number, operation), self.costs[number])
            at = self.reserve(number, at, taken)
            cost = self.costs[number]
            self.start.append(at)
            end = self.end(operation, at, cost)
            self.finish.append(end)
            if operation.result is not None:
                self.ready[operation.result.name] = end

    def end(self, operation: Operation, at: Time, cost: Cost) -> Time:
        if operation.opcode is Opcode.READ:
            return Time(at.step, cost.through)
        if cost.latency:
            return Time(at.step + cost.latency, cost.through)
        return Time(at.step, at.offset + cost.through)

    def earliest(self, number: int, operation: Operation) -> Time:
        at = self.begin(self.least[number])
        for operand in operation.inputs():
            if isinstance(operand, Value) and operand.name in self.ready:
                at = at.latest(self.ready[operand.name])
        for edge in self.incoming[number]:
            at = at.latest(self.begin(self.start[edge.earlier].step + edge.latency))
        return at

    def fit(self, at: Time, cost: Cost) -> Time:
        """Within the clock period, or at the start of the next step."""
        if at.offset > self.delays.clock_to_q and at.offset + used(cost) > self.budget + 1e-9:
            return self.begin(at.step + 1)
        return at

    def reserve(self, number: int, at: Time, taken: dict[tuple[object, int], list[int]]) -> Time:
        """The first step from `at` on in which the ports are free, or used by accesses of other branches only."""
        ports, earliest = self.ports[number], at
        for _ in range(self.interval or 1 << 30):
            slot = at.step if self.interval is None else at.step % self.interval
            keys = [(port, slot) for port in ports]
            if all(self.shares(number, at.step, other) for key in keys for other in taken.get(key, ())):
                for key in keys:
                    taken.setdefault(key, []).append(number)
                return at
            at = self.begin(at.step + 1)
        if self.join(number, earliest, taken):
            return earliest
        name, access, _ = ports[0]
        kind = "stream" if self.is_stream(number) else f"{access} port of array"
        if access.isdecimal():
            kind = f"port {access} of array"
        raise TooShort(f"{kind} {name}: {sum(p == ports for p in self.ports)} accesses in an iteration")

    def shares(self, number: int, step: int, other: int) -> bool:
        """True if two accesses can use a port in the same step of an iteration."""
        a, b = self.body.operations[number], self.body.operations[other]
        if Opcode.LOAD in (a.opcode, b.opcode) or self.start[other].step != step:
            return False
        return exclusive(a.predicate, b.predicate, self.body.definitions)

    def join(self, number: int, at: Time, taken: dict[tuple[object, int], list[int]]) -> bool:
        """Lets a store and those of other branches that have its ports wait for the last one of them: in the same step
        they can share the ports. False if that does not help."""
        slot = at.step % (self.interval or 1)
        others = {other for port in self.ports[number] for other in taken.get((port, slot), ())}
        a = self.body.operations[number]
        for b in (self.body.operations[other] for other in others):
            if {a.opcode, b.opcode} != {Opcode.STORE} or not exclusive(a.predicate, b.predicate, self.body.definitions):
                return False
        last = max([at.step, *(self.start[other].step for other in others)])
        early = [each for each in (number, *others) if self.least[each] < last]
        for each in early:
            self.least[each] = last
        self.rising = f"stores of several branches to array {a.target}"
        self.joined = self.joined or bool(early)
        return bool(early)

    def is_stream(self, number: int) -> bool:
        return self.body.operations[number].opcode in (Opcode.READ, Opcode.WRITE)

    # ---- from one iteration to the next ----

    def raise_bounds(self) -> bool:
        """Move what the iteration before does not let happen so early. Returns whether anything moved."""
        if self.interval is None:
            return False
        moved = False
        for item in self.body.carried:
            wanted = self.available(item) + 1 - self.interval
            if wanted > self.phi[item.value.name]:
                self.phi[item.value.name] = wanted
                self.rising = f"recurrence through {item.value.name} ({self.where(item)})"
                moved = True
        for edge in self.edges:
            if edge.distance == 0:
                continue
            wanted = self.start[edge.earlier].step + edge.latency - self.interval * edge.distance
            if wanted > self.start[edge.later].step and wanted > self.least[edge.later]:
                self.least[edge.later] = wanted
                self.rising = edge.reason
                moved = True
        if self.decision() > self.interval - 1:
            self.rising = "the exit condition is known too late"
            raise TooShort(self.rising)
        return moved

    def where(self, item: Carried) -> str:
        operation = self.body.definitions.get(item.following.name) if isinstance(item.following, Value) else None
        return str(operation.location) if operation is not None else item.value.name

    def available(self, item: Carried) -> int:
        """The step at whose end the next value can be taken over."""
        following = item.following
        return self.ready[following.name].step if isinstance(following, Value) and following.name in self.ready else 0

    def decision(self) -> int:
        """The step in which the loop decides whether to go on."""
        if not isinstance(self.again, Value) or self.again.name not in self.ready:
            return 0
        time = self.ready[self.again.name]
        late = time.offset + self.delays.handshake > self.budget + 1e-9 and time.offset > self.delays.clock_to_q
        return time.step + late

    # ---- the result ----

    def sink(self) -> None:
        """Later starts where they save registers."""
        handed_on = [item.following for item in self.body.carried] + [self.again]
        sink = Sink(
            self.body,
            self.edges,
            self.costs,
            self.target,
            {operand.name for operand in handed_on if isinstance(operand, Value)},
            [time.step for time in self.start],
            [time.offset for time in self.start],
            {name: (time.step, time.offset) for name, time in self.ready.items()},
        )
        sink.run()
        self.start = [Time(step, offset) for step, offset in zip(sink.steps, sink.offsets, strict=True)]
        self.ready = {name: Time(step, offset) for name, (step, offset) in sink.ready.items()}

    def result(self) -> Schedule:
        if self.interval == 1:
            self.sink()
        steps = [time.step for time in self.start]
        self.delay_phis(steps)
        commit = {}
        for item in self.body.carried:
            name = item.value.name
            following = item.following
            known = self.phi[following.name] if isinstance(following, Value) and following.name in self.phi else None
            commit[name] = max(self.phi[name], self.available(item) if known is None else known)
        last = [*steps, *(time.step for time in self.ready.values()), *commit.values(), self.decision()]
        ready = {**self.ready, **{name: self.begin(step) for name, step in self.phi.items()}}
        ends = [Time(at.step, at.offset + used(cost)) for at, cost in zip(self.start, self.costs, strict=True)]
        return Schedule(
            steps,
            ready,
            max(last) + 1,
            self.interval,
            self.phi,
            commit,
            self.decision(),
            ends=ends,
            starts=self.start,
        )

    def delay_phis(self, steps: list[int]) -> None:
        """Take carried values over where they are first used: until then they wait in their own register."""
        uses: dict[str, list[int]] = {name: [] for name in self.phi}
        for operation, step in zip(self.body.operations, steps, strict=True):
            for operand in operation.inputs():
                if isinstance(operand, Value) and operand.name in uses:
                    uses[operand.name].append(step)
        if isinstance(self.again, Value) and self.again.name in uses:
            uses[self.again.name].append(0)
        moved = self.interval is not None
        while moved:
            moved = False
            for item in self.body.carried:
                name = item.value.name
                heirs = [other.value.name for other in self.body.carried if other.following == item.value]
                latest = [*uses[name], *(self.phi[heir] + (self.interval or 1) - 1 for heir in heirs if heir != name)]
                if latest and min(latest) > self.phi[name]:
                    self.phi[name] = min(latest)
                    moved = True


def significant_width(operand: Operand, definitions: dict[str, Operation], deep: int = 3) -> int:
    """Bits of a value below those that only extend it."""
    if not isinstance(operand, Value):
        return max(1, operand.bits.bit_length())
    operation = definitions.get(operand.name)
    if operation is None or deep == 0:
        return operand.width
    if operation.opcode in (Opcode.ZEXT, Opcode.SEXT):
        return operation.operands[0].width
    if operation.opcode is Opcode.ADD:
        inner = (significant_width(each, definitions, deep - 1) for each in operation.operands)
        return min(operand.width, max(inner) + 1)
    return operand.width


def late_reads(body: Body, schedule: Schedule) -> Iterator[int]:
    """Reads after step 0."""
    for operation, step in zip(body.operations, schedule.steps, strict=True):
        if operation.opcode is Opcode.READ and step > 0:
            yield step


def schedule_block(body: Body, target: Target) -> Schedule:
    """The schedule of operations that run once."""
    return Attempt(body, edges(body), None, None, target).run()


def schedule_loop(
    body: Body, again: Operand, least: int, overlap: bool, target: Target, most: int | None = None
) -> Schedule:
    """The schedule with the smallest interval of `least` or more; without `overlap`, one iteration at a time.

    Raises TooShort if the interval would be longer than `most`.
    """
    found = edges(body)
    interval, limit = least, ""
    while interval < MOST_INTERVAL:
        if most is not None and interval > most:
            raise TooShort(limit)
        try:
            schedule = Attempt(body, found, again, interval, target).run()
        except TooShort as short:
            limit, interval = short.reason, interval + 1
            continue
        late = any(late_reads(body, schedule))
        if interval >= schedule.depth or (overlap and (not late or interval == 1)):
            schedule.limit = limit
            return schedule
        limit = "a read that depends on an earlier step" if late and overlap else limit
        interval = max(interval + 1, schedule.depth)
    place = body.operations[0].location if body.operations else UNKNOWN
    raise Unsupported(place, f"this loop has no schedule ({limit})", "use a smaller II, or split its body")
