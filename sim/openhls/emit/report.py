# SPDX-License-Identifier: Apache-2.0
"""What the scheduler did: one line per loop and block, and the longest path of each, in C++ lines.

Times are estimates from the platform's table of delays; no place and route was done.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass

from openhls.emit.control import Scheduled
from openhls.emit.process import Built
from openhls.ir import Loop, Opcode, Value
from openhls.schedule.target import Target


@dataclass(frozen=True)
class Link:
    """One operation of a path: where it ends, in nanoseconds after the clock edge."""

    operation: str
    place: str
    at_ns: float


@dataclass(frozen=True)
class RegionReport:
    """A loop (`interval` set) or a block. `wish` is the interval asked for; `met` whether the slowest step fits.

    `name` is the label of a loop in the C++, `label` what its hardware is called.
    """

    process: str
    label: str
    name: str
    place: str
    interval: int | None
    wish: int | None
    depth: int
    trips: tuple[int, int] | None
    limit: str
    slowest_ns: float
    met: bool
    chain: tuple[Link, ...]

    @property
    def missed(self) -> bool:
        """True if the interval is longer than the pragma asks for."""
        return self.wish is not None and self.interval is not None and self.interval > self.wish


def report(built: list[Built], target: Target) -> list[RegionReport]:
    """Regions in the order of the hardware, callees first."""
    return [region_report(item, one, target) for one in built for item in one.scheduled]


def region_report(item: Scheduled, one: Built, target: Target) -> RegionReport:
    region, schedule = item.region, item.schedule
    chain = longest_chain(item)
    slowest = chain[-1].at_ns if chain else target.delays.clock_to_q
    loop = region if isinstance(region, Loop) else None
    trips = loop.trip_count if loop is not None else None
    return RegionReport(
        process=one.process.name,
        label=region.label,
        name="" if loop is None else loop.name,
        place=str(region.location),
        interval=schedule.interval,
        wish=None if loop is None else loop.pipeline.interval,
        depth=schedule.depth,
        trips=None if trips is None else (trips.least, trips.most),
        limit=schedule.limit,
        slowest_ns=round(slowest, 2),
        met=slowest <= target.budget + 1e-6,
        chain=chain,
    )


def longest_chain(item: Scheduled) -> tuple[Link, ...]:
    """The operations on the longest path within a step."""
    schedule, operations = item.schedule, item.body.operations
    if not schedule.ends:
        return ()
    number: int | None = max(range(len(operations)), key=lambda n: schedule.ends[n].offset)
    numbers = {op.result.name: n for n, op in enumerate(operations) if op.result is not None}
    links: list[Link] = []
    while number is not None:
        operation = operations[number]
        links.append(Link(describe(item, number), operation.location.chain(), round(schedule.ends[number].offset, 2)))
        start, cause = schedule.starts[number], None
        for operand in operation.inputs():
            if isinstance(operand, Value) and operand.name in numbers:
                ready = schedule.ready[operand.name]
                if ready.step == start.step and abs(ready.offset - start.offset) < 1e-9:
                    cause = numbers[operand.name]
        number = cause if cause is not None and schedule.steps[cause] == start.step else None
    return tuple(link for link in reversed(links) if not link.operation.startswith("wiring"))


def describe(item: Scheduled, number: int) -> str:
    operation = item.body.operations[number]
    if operation.opcode in (Opcode.ZEXT, Opcode.SEXT, Opcode.EXTRACT, Opcode.CONCAT):
        return f"wiring {operation.opcode.value}"
    if operation.target:
        return f"{operation.opcode.value} {operation.target}"
    return f"{operation.opcode.value} of {operation.operands[-1].width} bits"


def as_json(regions: list[RegionReport]) -> list[dict[str, object]]:
    return [asdict(region) for region in regions]


def as_text(regions: list[RegionReport], target: Target) -> str:
    """A table for people."""
    lines = [
        f"Clock {target.clock_mhz:g} MHz, {target.budget:.2f} ns of logic in a step. All times are estimates: no "
        "place and route was done.",
        *(
            f"MISSED: {one.place}: {one.label} asks for II {one.wish} and gets {one.interval}: {one.limit}"
            for one in regions
            if one.missed
        ),
        f"{'process':24} {'region':28} {'II':>4} {'asked':>5} {'depth':>5} {'trips':>13} {'ns':>5}  place, limit",
    ]
    for region in regions:
        trips = "" if region.trips is None else "..".join(str(n) for n in dict.fromkeys(region.trips))
        interval = "" if region.interval is None else str(region.interval)
        wish = "" if region.wish is None else str(region.wish)
        limit = f"; II limited by: {region.limit}" if region.limit else ""
        late = "" if region.met else " (exceeds the clock)"
        lines.append(
            f"{region.process[-24:]:24} {region.label[-28:]:28} {interval:>4} {wish:>5} {region.depth:>5} {trips:>13} "
            f"{region.slowest_ns:>5.2f}{late}  {region.place}{limit}"
        )
        path = " -> ".join(
            f"{link.operation} ({link.place.split(' in ')[0].rsplit('/', 1)[-1]}) {link.at_ns}" for link in region.chain
        )
        if path:
            lines.append(f"{'':24} longest path: {path}")
    return "\n".join(lines)
