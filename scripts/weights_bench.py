"""What the benchmarks of weights share: options, processes of bounded memory, the kernel's counts, the page."""

from __future__ import annotations

import argparse
import json
import os
import re
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import torch

from kvdrive.private import cache_folder
from mapped_files import on_disk
from page_blocks import write_blocks

PAGE = Path(__file__).resolve().parent.parent / "docs" / "weights.md"
PROMPT = 16  # tokens before those that count
WORKSPACE = 512 << 20  # bytes beside the weights: activations, buffers, stacks of threads
Result = dict[str, Any]


def arguments(description: str, parts: Sequence[str] = ()) -> argparse.Namespace:
    """The options. `one`: what the script computes in this process, None for the whole benchmark.

    `only`: one of `parts`, None for all of them.
    """
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--quick", action="store_true", help="a tiny model: says only that it works")
    parser.add_argument("--json", type=Path, help="file for the numbers")
    parser.add_argument("--tokens", type=int, default=32)
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    if parts:
        parser.add_argument("--only", choices=parts, help="measure this part; the page keeps the others")
    parser.add_argument("--one", type=json.loads, help=argparse.SUPPRESS)
    return parser.parse_args()


def alone(script: str, name: str, one: Result) -> Result:
    """What `script` prints as JSON when it computes `one`, in a process of its own, so that its memory is its own."""
    done = subprocess.run(
        [sys.executable, script, "--one", json.dumps(one)], capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise RuntimeError(f"{name} failed:\n{done.stderr}")
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


def publish(
    given: argparse.Namespace,
    name: str,
    needed: int,
    run: Callable[[Path], Result],
    table: Callable[[Result], str],
) -> None:
    """Run a benchmark in a folder with `needed` bytes of room. Its table is the block `name` of docs/weights.md."""
    cache_folder().mkdir(parents=True, exist_ok=True)
    if shutil.disk_usage(cache_folder()).free < needed:
        raise SystemExit(f"{name} needs {needed / 2**30:.0f} GiB in {cache_folder()}")
    with tempfile.TemporaryDirectory(prefix=f"{name}-", dir=cache_folder()) as scratch:
        result = run(Path(scratch))
    print(table(result))
    if given.json:
        given.json.parent.mkdir(parents=True, exist_ok=True)
        given.json.write_text(json.dumps(result, indent=1) + "\n")
    if not given.quick:
        write_blocks(PAGE, {name: table(result)})
