"""One run of the check: its size, its time, and a file that has every result as soon as it is known."""

from __future__ import annotations

import json
import signal
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

import torch


@dataclass(frozen=True)
class Size:
    """How large the models, prompts and contexts of a run are, and how often steps are repeated.

    `loaded`: tokens that are loaded from a drive, or rebuilt; `rows`: sequences of a batch in mini-batches.
    """

    small: bool
    prompt: int
    new_tokens: int
    contexts: tuple[int, ...]
    first_token: int
    steps: int
    rounds: int
    link_bytes: int
    loaded: int
    rows: int


LARGE = Size(False, 512, 32, (4096, 16384, 32768), 16384, 6, 2, 256 << 20, 8192, 8)
SMALL = Size(True, 48, 6, (96, 160), 128, 2, 1, 1 << 20, 300, 4)


@dataclass
class Run:
    """`results` are written to `out` after each part. No part begins when `seconds` have passed."""

    device: torch.device
    size: Size
    out: Path
    seconds: float
    results: dict[str, Any] = field(default_factory=dict)
    began: float = field(default_factory=time.perf_counter)

    def left(self) -> float:
        """Seconds until no part begins any more."""
        return self.seconds - (time.perf_counter() - self.began)

    def wait(self) -> None:
        """Return when the device has done all of its work."""
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)

    def timed(self, work: Callable[[], object]) -> float:
        """Seconds of `work`, with all that it starts on the device."""
        self.wait()
        began = time.perf_counter()
        work()
        self.wait()
        return time.perf_counter() - began

    def part(self, name: str, work: Callable[[], Any], seconds: float) -> None:
        """Add what `work` returns, or its error. It is interrupted after `seconds`."""
        begun = time.perf_counter()
        if self.left() <= 0:
            found: Any = {"error": "not begun: the time of the check had passed"}
        else:
            try:
                with _limit(min(seconds, self.left())):
                    found = work()
            except Exception as error:
                where = traceback.format_exc().strip().splitlines()[-7:]
                found = {"error": f"{type(error).__name__}: {error}", "where": where}
        took = time.perf_counter() - begun
        *folders, last = name.split("/")
        place = self.results
        for folder in folders:
            place = place.setdefault(folder, {})
        place[last] = found
        self.results.setdefault("seconds", {})[name] = round(took, 2)
        self.write()
        if self.device.type == "cuda":
            torch.cuda.empty_cache()
        print(f"[{time.perf_counter() - self.began:6.1f} s] {name} ({took:.1f} s): {_short(found)}", flush=True)

    def write(self) -> None:
        """Write the results so far."""
        self.out.parent.mkdir(parents=True, exist_ok=True)
        self.out.write_text(json.dumps(self.results, indent=1) + "\n")

    def failed(self) -> list[str]:
        """The names of parts that ended in an error."""
        return list(_errors(self.results, ""))


def _errors(found: Any, name: str) -> Iterator[str]:
    if isinstance(found, dict):
        if "error" in found:
            yield name
        for key, value in found.items():
            yield from _errors(value, f"{name}/{key}".strip("/"))


def _short(found: Any) -> str:
    text = json.dumps(found)
    return text if len(text) < 600 else text[:600] + "..."


@contextmanager
def _limit(seconds: float) -> Iterator[None]:
    """Raises TimeoutError in the block after `seconds`."""

    def stop(signum: int, frame: FrameType | None) -> None:
        raise TimeoutError(f"it was stopped after {seconds:.0f} s")

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
