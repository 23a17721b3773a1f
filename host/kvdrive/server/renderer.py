"""Renders texts in a process of its own, which is ended when a text takes too long.

Some texts take minutes: time that grows with the square of their length, or expressions of a language that go back and
forth. In the server's own process they would also keep everything else waiting.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Sequence
from contextlib import suppress

_COMMAND = [sys.executable, "-m", "kvdrive.server.rendering"]


class Renderer:
    """`each`, `together`: seconds for a text, and for the texts of a call. For one thread at a time."""

    def __init__(self, each: float = 2, together: float = 5) -> None:
        self._each, self._together = each, together
        self._process: subprocess.Popen[str] | None = None

    def render(self, texts: Sequence[str]) -> list[str | None]:
        """The HTML of each text; None for one that takes too long."""
        until = time.monotonic() + self._together
        return [self._one(text, min(self._each, until - time.monotonic())) for text in texts]

    def _one(self, text: str, seconds: float) -> str | None:
        if seconds <= 0:
            return None
        process = self._process = self._process or self._begun()
        late = threading.Timer(seconds, process.kill)
        late.start()
        answer = _exchange(process, json.dumps(text))
        late.cancel()
        if not answer.endswith("\n"):
            self._process = None
            _end(process)
            return None
        return str(json.loads(answer))

    def _begun(self) -> subprocess.Popen[str]:
        """A process that is ready. It ends with this object, and with this process however that ends."""
        process = subprocess.Popen(
            _COMMAND, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, encoding="ascii", start_new_session=True
        )
        weakref.finalize(self, _end, process)
        assert process.stdout is not None
        process.stdout.readline()
        return process


def _exchange(process: subprocess.Popen[str], line: str) -> str:
    """The line that answers `line`; "" or a part of it if the process has ended."""
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        process.stdin.write(line + "\n")
        process.stdin.flush()
        return process.stdout.readline()
    except BrokenPipeError:
        return ""


def _end(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.wait()
    for pipe in (process.stdin, process.stdout):
        with suppress(BrokenPipeError):  # of what was not written
            if pipe is not None:
                pipe.close()
