"""Timelines as JSON trace events, which Perfetto (https://ui.perfetto.dev) and chrome://tracing open.

There are two clocks: wall time of the host and modelled device time of the drives. Both begin at 0. Only the names of
steps connect them. The events inside a drive (channels, dies, buses, engine, queues) are the latest record.KEPT_EVENTS;
steps are complete. Where the drive is a file on a disk, its events are transfers with the disk, in wall time.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

from kvdrive import private
from kvdrive.report.record import Recorder

HOST, DRIVE = 1, 2
_INSIDES, _MOST_KINDS = 10, 10  # process number of the first drive's first kind of track; process numbers per drive
_STEPS, _LAYERS, _COMMANDS = 1, 2, 3  # track numbers; the commands of each further drive have the next one
_MINI_BATCHES = 1000  # the layers of the second mini-batch; those of each further one have the next one

Event = dict[str, Any]


def host_events(record: Recorder) -> list[Event]:
    """Steps, layers and the commands of each drive in wall time."""
    events = [_name("process", HOST, 0, "host (wall time)"), _name("thread", HOST, _STEPS, "steps")]
    events.append(_name("thread", HOST, _LAYERS, "layers"))
    for number, (before, after) in enumerate(pairwise(record.marks)):
        events.append(_span(HOST, _STEPS, _step(number), before.seconds * 1e6, after.seconds * 1e6))
    for span in record.layers:
        track = _MINI_BATCHES + span.mini_batch - 1 if span.mini_batch else _LAYERS
        events.append(_span(HOST, track, f"layer {span.layer}", span.begin * 1e6, span.end * 1e6, step=span.step))
    for number in sorted({span.mini_batch for span in record.layers} - {0}):
        events.append(_name("thread", HOST, _MINI_BATCHES + number - 1, f"layers of mini-batch {number + 1}"))
    for number in range(len(record.drives.drives)):
        events.append(_name("thread", HOST, _COMMANDS + number, f"commands of drive {number}"))
    for command in record.commands:
        begin, end = ((moment - record.start) * 1e6 for moment in (command.begin, command.end))
        events.append(_span(HOST, _COMMANDS + command.drive, command.name, begin, end))
    return events


def drive_events(record: Recorder) -> list[Event]:
    """Steps in modelled device time with what the drive counted; empty where the target models no time."""
    events = [_name("process", DRIVE, 0, "drive (modelled time)"), _name("thread", DRIVE, _STEPS, "steps")]
    origin = record.marks[0].device_ns
    if origin is None:
        return []
    for number, (before, after) in enumerate(pairwise(record.marks)):
        begin, end = ((mark.device_ns or 0) - origin for mark in (before, after))
        counted = {name: value - before.counters[name] for name, value in after.counters.items()}
        events.append(_span(DRIVE, _STEPS, _step(number), begin / 1e3, end / 1e3, **counted))
    return events


def inside_events(record: Recorder) -> list[Event]:
    """What each drive kept of its insides: a process for each kind of track."""
    events = []
    for number, (text, origin) in enumerate(zip(record.traces, record.origins, strict=True)):
        name = "drive" if len(record.origins) == 1 else f"drive {number}"
        found = json.loads(text)
        for event in found["traceEvents"]:
            event["pid"] += _INSIDES + _MOST_KINDS * number
            if event["name"] == "process_name":
                event["args"]["name"] = f"{name}: {event['args']['name']} ({_clock(found)})"
            if event["ph"] == "X":
                event["ts"] -= origin / 1e3
            events.append(event)
    return events


def write(path: Path, record: Recorder) -> None:
    """Both timelines into one file. Its otherData say which time each of them covers."""
    events = host_events(record) + drive_events(record) + inside_events(record)
    covers = dict(covered(record))
    private.write_text(path, json.dumps({"otherData": covers, "traceEvents": events, "displayTimeUnit": "ms"}))


def covered(record: Recorder) -> Iterator[tuple[str, str]]:
    """For each clock of a timeline its name, and the time that the events cover."""
    yield "host, wall time", f"0 to {record.marks[-1].seconds:.3f} s"
    steps = drive_events(record)
    if steps:
        yield "drive, modelled device time", f"{extent(steps)} (steps)"
    for number, text in enumerate(record.traces):
        found = json.loads(text)
        kept = [event for event in found["traceEvents"] if event["ph"] == "X"]
        if kept:
            which = f"{len(kept):,} of {found['otherData']['events_in_all']:,} events"
            yield f"inside drive {number}, {_clock(found)}", f"{extent(kept, record.origins[number])} ({which})"


def extent(events: Iterable[Event], origin_ns: int = 0) -> str:
    """The time from the first event's start to the last one's end, since `origin_ns`."""
    spans = [event for event in events if event["ph"] == "X"]
    begin, end = min(event["ts"] for event in spans), max(event["ts"] + event["dur"] for event in spans)
    return f"{begin / 1e3 - origin_ns / 1e6:,.3f} to {end / 1e3 - origin_ns / 1e6:,.3f} ms"


def _clock(timeline: dict[str, Any]) -> str:
    """The clock of a drive's timeline."""
    return str(timeline["otherData"]["clock"])


def _step(number: int) -> str:
    return f"token {number}" if number else "prefill"


def _name(what: str, process: int, thread: int, name: str) -> Event:
    return {"ph": "M", "name": f"{what}_name", "pid": process, "tid": thread, "args": {"name": name}}


def _span(process: int, thread: int, name: str, begin_us: float, end_us: float, **arguments: int) -> Event:
    return {
        "ph": "X",
        "name": name,
        "pid": process,
        "tid": thread,
        "ts": begin_us,
        "dur": end_us - begin_us,
        "args": arguments,
    }
