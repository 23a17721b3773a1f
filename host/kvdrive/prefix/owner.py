"""Which process may still append to a session. A dead one's sessions stay as they were saved last."""

from __future__ import annotations

import os
from pathlib import Path


def this_process(number: int = 0) -> str:
    """A name for this process that no later one has; `number` tells stores of one process apart."""
    return f"{_boot()}:{os.getpid()}:{_started(os.getpid())}:{number}"


def is_alive(owner: str) -> bool:
    """True if the process with this name runs on this machine; "" stands for none."""
    try:
        boot, pid, started, _ = owner.split(":")
        return boot == _boot() and _started(int(pid)) == started != ""
    except ValueError:
        return False


def _boot() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return "unknown"


def _started(pid: int) -> str:
    """When a process started, in ticks since the machine did; "" without such a process."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    except (OSError, IndexError):
        return ""
