"""What the benchmarks of weights share: processes of bounded memory, and the kernel's counts."""

from __future__ import annotations

import json
import os
import re
import resource
import subprocess
import sys
import time
from collections.abc import Iterable
from importlib import import_module
from pathlib import Path
from typing import Any

import torch

from bench.weights.mapped_files import on_disk

PROMPT = 16  # tokens before those that count
WORKSPACE = 512 << 20  # bytes beside the weights: activations, buffers, stacks of threads
Result = dict[str, Any]


def alone(module: str, function: str, *arguments: Any) -> Result:
    """What a function of a module returns in a process of its own, so that its memory is its own."""
    command = [sys.executable, "-m", __name__, module, function, json.dumps(arguments)]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    if done.returncode:
        raise RuntimeError(f"{module}.{function}{arguments} failed:\n{done.stderr}")
    found: Result = json.loads(done.stdout.splitlines()[-1])
    return found


def bound_memory(count: int, mapped: Path | None = None) -> None:
    """Let this process allocate `count` bytes from here on, and WORKSPACE; more is an error (RLIMIT_DATA).

    The limit counts private memory that can be written. `mapped`: a folder whose *.safetensors the process maps; torch
    maps them as such memory, so their size is added, and the contender drops their pages itself.
    """
    files = sum(path.stat().st_size for path in mapped.glob("*.safetensors")) if mapped else 0
    limit = _status("VmData") + count + files + WORKSPACE
    resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))


def peak_memory() -> int:
    """The most bytes that this process has had in memory, with pages of mapped files.

    Not `ru_maxrss`: a process begins with that of its parent.
    """
    return _status("VmHWM")


def _status(name: str) -> int:
    found = re.search(rf"^{name}:\s+(\d+) kB", Path("/proc/self/status").read_text(), re.M)
    assert found, f"the kernel has no {name}"
    return int(found[1]) << 10


def require_reads(name: str, path: Path, counted: float, by_kernel: float) -> None:
    """Raises RuntimeError if the kernel has read less from the disk than counted: the page cache has served reads."""
    if on_disk(path) and by_kernel < 0.9 * counted:
        raise RuntimeError(f"{name}: of {counted:,.0f} bytes that were read, {by_kernel:,.0f} came from the disk")


def kernel_reads() -> int:
    """What this process has read from disks, by the kernel's own count."""
    lines = Path("/proc/self/io").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("read_bytes"))


def time_in(modules: Iterable[torch.nn.Module]) -> list[float]:
    """One number: the seconds that calls of these modules take from here on.

    Without what other hooks do, if they were there before: those behind a call come after the clock has stopped.
    """
    spent, began = [0.0], [0.0]

    def before(module: Any, inputs: Any) -> None:
        began[0] = time.perf_counter()

    def after(module: Any, inputs: Any, out: Any) -> None:
        spent[0] += time.perf_counter() - began[0]

    for module in modules:
        module.register_forward_pre_hook(before)
        module.register_forward_hook(after, prepend=True)
    return spent


def as_cells(parts: Iterable[float | None]) -> list[str]:
    """Numbers of a table's row; None: not measured."""
    return ["-" if part is None else f"{part:,.1f}" for part in parts]


if __name__ == "__main__":
    print(json.dumps(getattr(import_module(sys.argv[1]), sys.argv[2])(*json.loads(sys.argv[3]))))
