"""Copies between a GPU and its host that a profile has seen, and how many of their bytes hide behind compute."""

from __future__ import annotations

import json
import tempfile
from bisect import bisect_right
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

Span = tuple[float, float]


@dataclass(frozen=True)
class Copies:
    """Copies in one direction: how many, their bytes, those that pass while a kernel runs, and their time."""

    count: int
    bytes: int
    hidden_bytes: int
    pageable_bytes: int
    milliseconds: float


def profiled(work: Callable[[], object], device: torch.device) -> dict[str, Any]:
    """Run `work` under torch's profiler: copies by direction, and the time in which at least one kernel ran."""
    if device.type != "cuda":  # there are no copies
        work()
        return copies_of([])
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        work()
        torch.cuda.synchronize(device)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json"
        profile.export_chrome_trace(str(path))
        return copies_of(json.loads(path.read_text())["traceEvents"])


def copies_of(events: Iterable[dict[str, Any]]) -> dict[str, Any]:
    """Copies by direction from a trace's events, whose times are in microseconds."""
    spans: list[Span] = []
    found: dict[str, list[dict[str, Any]]] = {"DtoH": [], "HtoD": []}
    for event in events:
        if event.get("cat") == "kernel":
            spans.append((event["ts"], event["ts"] + event["dur"]))
        elif event.get("cat") == "gpu_memcpy":
            for direction, mine in found.items():
                if direction in event["name"]:
                    mine.append(event)
    busy = _merged(spans)
    result: dict[str, Any] = {name: vars(_summed(mine, busy)) for name, mine in found.items()}
    return result | {"kernel_ms": sum(end - begin for begin, end in busy) / 1e3, "kernels": len(spans)}


def _summed(events: list[dict[str, Any]], busy: list[Span]) -> Copies:
    total = hidden = pageable = 0
    for event in events:
        size, begin, length = int(event["args"]["bytes"]), event["ts"], event["dur"]
        total += size
        hidden += int(size * _covered((begin, begin + length), busy) / length) if length else 0
        pageable += size if "Pageable" in event["name"] else 0
    return Copies(len(events), total, hidden, pageable, sum(event["dur"] for event in events) / 1e3)


def _merged(spans: list[Span]) -> list[Span]:
    """The same time as spans that do not touch, in order."""
    merged: list[Span] = []
    for begin, end in sorted(spans):
        if merged and begin <= merged[-1][1]:
            merged[-1] = merged[-1][0], max(end, merged[-1][1])
        else:
            merged.append((begin, end))
    return merged


def _covered(span: Span, busy: list[Span]) -> float:
    """How much of `span` lies in `busy`, spans that do not touch, in order."""
    covered = 0.0
    for begin, end in busy[max(bisect_right(busy, span) - 1, 0) :]:
        if begin >= span[1]:
            break
        covered += max(0.0, min(end, span[1]) - max(begin, span[0]))
    return covered
