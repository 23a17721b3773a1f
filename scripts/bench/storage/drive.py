"""What the software drive costs and how fast it is: validation of times, append beside fio, command rate, attention
beside the bare engine, memory, mounting, simulation speed.

Ratios are taken between runs that follow one another directly, and their median is reported.
"""

from __future__ import annotations

import json
import os
import shutil
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bench.rounds import Contender, take_turns
from bench.setup import Setup
from bench.table import Block, Table
from kvdrive import _native, abi
from kvdrive.kernels.job import JobMemory
from kvdrive.kernels.native import scale_bits

GB = 10**9


class Host:
    """Sends commands to a drive in this process, on a file."""

    def __init__(self, path: Path, capacity_bytes: int, **options: Any) -> None:
        self.drive = _native.Drive(path, "fast", 1, capacity_bytes, **options)
        self.sequence: dict[int, int] = {}

    def send(self, layout: np.dtype[Any], data: NDArray[np.uint8] | None = None, **fields: int) -> float:
        """Seconds that the command took."""
        entry = np.zeros((), layout)
        for name, value in fields.items():
            entry[name] = value
        start = time.perf_counter()
        reply, _ = self.drive.submit(entry.tobytes(), data)
        seconds = time.perf_counter() - start
        status = int(np.frombuffer(reply, abi.Cqe)[0]["status"]) >> abi.CQE_STATUS_SHIFT & 0x7FF
        if status:
            raise RuntimeError(f"a command failed: {abi.NvmeStatus(status)!r}")
        return seconds

    def append(
        self, session: int, heads: int, tokens: int, d: int, data: NDArray[np.uint8] | None, **fields: int
    ) -> float:
        number = self.sequence.get(session, 0)
        self.sequence[session] = number + 1
        crc = 0 if data is None else _native.crc32c(data)
        return self.send(
            abi.KvAppend,
            data,
            opcode=abi.Opcode.KV_APPEND,
            nsid=abi.Namespace.NVM,
            session=session,
            heads=heads,
            tokens=tokens,
            row_bytes=2 * d,
            sequence=number,
            crc32c=crc,
            **fields,
        )

    def flush(self) -> float:
        return self.send(abi.Sqe, opcode=abi.Opcode.FLUSH, nsid=abi.Namespace.NVM)

    def attend(self, session: int, q: NDArray[np.float16], tokens: int, **fields: int) -> float:
        """Attend from q [heads, g, d]. Results are fetched after the time was taken."""
        data = np.ascontiguousarray(q).reshape(-1).view(np.uint8)
        heads, group, d = q.shape
        seconds = self.send(
            abi.AttnSubmit,
            data,
            opcode=abi.Opcode.ATTN_SUBMIT,
            nsid=abi.Namespace.CP,
            session=session,
            heads=heads,
            group=group,
            tokens=tokens,
            crc32c=_native.crc32c(data),
            scale_log2e=scale_bits(None, d),
            **fields,
        )
        self.ticket = getattr(self, "ticket", 0) + 1
        size = heads * (abi.AttentionResult.itemsize + group * d * 2)
        self.send(
            abi.AttnFetch, opcode=abi.Opcode.ATTN_FETCH, nsid=abi.Namespace.CP, ticket=self.ticket, data_bytes=size
        )
        return seconds


@contextmanager
def scratch(folder: Path) -> Iterator[Path]:
    """A folder on the disk that is measured."""
    with tempfile.TemporaryDirectory(dir=folder) as path:
        yield Path(path)


def fio_rate(path: Path, size: int) -> float:
    """Bytes per second of sequential direct writes of 1 MiB, 8 in flight."""
    arguments = [
        "fio",
        "--name=append",
        f"--filename={path}",
        f"--size={size}",
        "--rw=write",
        "--bs=1m",
        "--direct=1",
        "--ioengine=io_uring",
        "--iodepth=8",
        "--end_fsync=1",
        "--output-format=json",
    ]
    report = json.loads(subprocess.run(arguments, check=True, capture_output=True, text=True).stdout)
    return float(report["jobs"][0]["write"]["bw_bytes"])


def append_rate(folder: Path, rounds: int, layers: int) -> dict[str, Any]:
    """Bulk appends with a flush after them, beside fio on the same disk."""
    heads, tokens, d = 8, 8192, 128
    rows = np.random.default_rng(1).standard_normal((heads, tokens, d), np.float32).astype(np.float16)
    data = rows.reshape(-1).view(np.uint8)
    size = 2 * layers * data.nbytes

    def append() -> dict[str, float]:
        with scratch(folder) as here:
            host = Host(here / "drive.kv", 3 * layers * data.nbytes)
            places = [(layer, kind) for layer in range(layers) for kind in (0, 1)]
            seconds = sum(host.append(1, heads, tokens, d, data, layer=layer, kind=kind) for layer, kind in places)
            return {"seconds": seconds + host.flush()}

    def fio() -> dict[str, float]:
        with scratch(folder) as here:
            return {"seconds": size / fio_rate(here / "fio", size)}

    both = [Contender("append", append)] + ([Contender("fio", fio)] if shutil.which("fio") else [])
    found = take_turns(both, rounds, warm_up=1)
    rate = {name: size / found.median(name) / GB for name in found.names}
    return {
        "gb_per_s": rate["append"],
        "fio_gb_per_s": rate.get("fio"),
        "of_fio": found.faster("append", "fio") if "fio" in rate else None,
    }


def command_rate(folder: Path, rounds: int, many: int, few: int) -> list[dict[str, Any]]:
    """Commands without data through the rings: host and drive on one core, which take turns."""
    entry = np.zeros((), abi.Sqe)
    entry["opcode"], entry["nsid"] = abi.Opcode.FLUSH, abi.Namespace.NVM  # a flush without pending data
    found: dict[str, list[float]] = {"C++, as many in flight as fit": [], "Python, one at a time": []}
    with scratch(folder) as here:
        drive = _native.Drive(here / "drive.kv", "fast", 1, 1 << 26)
        pairs = _native.QueuePairs(_native.Subsystem(drive), 1 << 24, threaded=False)
        before = os.sched_getaffinity(0)
        os.sched_setaffinity(0, {min(before)})
        try:
            for _ in range(rounds):
                start = time.perf_counter()
                pairs.repeat(1, entry.tobytes(), many)
                cpp = time.perf_counter()
                for _ in range(few):
                    pairs.execute(1, entry.tobytes())
                python = time.perf_counter()
                for name, count, seconds in zip(found, (many, few), (cpp - start, python - cpp), strict=True):
                    found[name].append(count / seconds)
        finally:
            os.sched_setaffinity(0, before)
        del pairs, drive
    targets = (500_000, 30_000)
    return [
        {"host": name, "command": "FLUSH", "commands_per_s": statistics.median(rates), "wanted": target}
        for (name, rates), target in zip(found.items(), targets, strict=True)
    ]


def attention_rate(folder: Path, rounds: int, tokens: int) -> dict[str, Any]:
    """ATTN_SUBMIT over 8 heads from the page cache, and the engine on the same rows in memory."""
    heads, d, g, at_once = 8, 128, 4, min(tokens, 16384)
    rng = np.random.default_rng(2)
    rows = rng.standard_normal((heads, tokens, d), np.float32).astype(np.float16)
    q = rng.standard_normal((heads, g, d)).astype(np.float16)
    engine, images = _native.Engine("fast", threads=1), []
    for head in range(heads):
        job = JobMemory(abi.Mode.EXACT, g, d, tokens=tokens, scale_log2e=scale_bits(None, d))
        for name, array in (("q", q[head]), ("k", rows[head]), ("v", rows[head])):
            job.place(name, array)
        job.reserve("result", abi.AttentionResult.itemsize)
        job.reserve("out", q[head].nbytes)
        images.append(job.image())
    with scratch(folder) as here:
        host = Host(here / "drive.kv", 4 * rows.nbytes)
        for kind in (0, 1):
            for first in range(0, tokens, at_once):
                part = np.ascontiguousarray(rows[:, first : first + at_once]).reshape(-1).view(np.uint8)
                host.append(1, heads, at_once, d, part, kind=kind, first_token=first)
        host.flush()

        def bare() -> None:
            for image in images:
                engine.attention(image, 0)

        drive = Contender("drive", lambda: {"seconds": host.attend(1, q, tokens)})
        found = take_turns([drive, Contender("bare", bare)], rounds, warm_up=1)
    return {
        "gb_per_s": 2 * rows.nbytes / found.median("drive") / GB,
        "bare_gb_per_s": 2 * rows.nbytes / found.median("bare") / GB,
        "of_bare": found.faster("drive", "bare"),
    }


def anonymous_bytes() -> int:
    """Anonymous memory of this process in bytes."""
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("RssAnon"))
    return int(line.split()[1]) * 1024


def metadata(folder: Path, gigabytes: int) -> list[dict[str, Any]]:
    """Memory and mount time of a 1 TB drive, by how the cache was written. Maps are the same without contents."""
    results = []
    ways = [
        ("prefill in one go", 4096),
        ("prefill in chunks of 512 tokens", 512),
        ("a group of each head at a time", 16),
    ]
    heads, d, length = 8, 128, 16384
    for name, tokens in ways:
        before = anonymous_bytes()
        with scratch(folder) as here:
            host = Host(here / "drive.kv", 1000 * GB, payload=False)
            per_layer = 2 * heads * length * 2 * d
            for layer in range(int(gigabytes * GB / per_layer)):
                session, place = layer // 64 + 1, layer % 64
                for first in range(0, length, tokens):
                    for kind in (0, 1):
                        host.append(session, heads, tokens, d, None, layer=place, kind=kind, first_token=first)
            host.flush()
            stats = host.drive.flash_stats()
            resident = anonymous_bytes() - before
            host.drive = None
            start = time.perf_counter()
            host.drive = _native.Drive(here / "drive.kv", "fast", 1)
            mount = time.perf_counter() - start
            mapped = stats["groups_live"] * abi.PAGE_BYTES / GB
            host.drive = None
        results.append(
            {
                "written": name,
                "mapped_gb": mapped,
                "bytes_per_gb": stats["metadata_bytes"] / mapped,
                "mb_per_tb": stats["metadata_bytes"] / mapped * 1000 / 1e6,
                "budget_mb": stats["metadata_budget"] / 1e6,
                "staged_mb": stats["staged_bytes"] / 1e6,
                "resident_mb": resident / 1e6,
                "mount_s": mount,
                "mount_s_per_100_gb": mount / mapped * 100,
            }
        )
    return results


SHAPES = (
    ("InstInfer, OPT-13B", "instcsd", 40, 40, 128, 2048, 4),
    ("HILOS, OPT-66B", "smartssd", 64, 72, 128, 32768, 1),
)


def simulation(folder: Path, layers_at_most: int) -> list[dict[str, Any]]:
    """Device seconds per second of this machine: prefill of one sequence, then decode steps over all layers."""
    results = []
    for name, preset, all_layers, heads, d, tokens, steps in SHAPES:
        layers = min(all_layers, layers_at_most)
        size = 2 * layers * heads * tokens * d * 2
        with scratch(folder) as here:
            host = Host(here / "drive.kv", int(size * 1.2), preset=preset, payload=False)
            start = time.perf_counter()
            for layer in range(layers):
                for kind in (0, 1):
                    for first in range(0, tokens, 2048):
                        host.append(1, heads, 2048, d, None, layer=layer, kind=kind, first_token=first)
            prefill_wall, prefill = time.perf_counter() - start, host.drive.flash_stats()["device_ns"] / 1e9
            start = time.perf_counter()
            q = np.zeros((heads, 1, d), np.float16)
            for step in range(steps):
                for layer in range(layers):
                    for kind in (0, 1):
                        host.append(1, heads, 1, d, None, layer=layer, kind=kind, first_token=tokens + step)
                    host.attend(1, q, tokens + step + 1, layer=layer)
            wall = time.perf_counter() - start
            stats = host.drive.flash_stats()
            device = stats["device_ns"] / 1e9 - prefill
            channels = stats["channel_bytes"]
            host.drive = None
        results.append(
            {
                "shape": name,
                "preset": preset,
                "kv_gb": size / GB,
                "prefill_wall_s": prefill_wall,
                "steps": steps,
                "device_s_per_step": device / steps,
                "wall_s_per_step": wall / steps,
                "device_s_per_wall_s": device / wall,
                "channel_balance": max(channels) / min(channels),
            }
        )
    return results


def collection(folder: Path, sessions: int) -> dict[str, Any]:
    """Write amplification for sessions that are created and deleted on a drive that is 80 % full."""
    capacity, heads, d = 256 << 20, 8, 128
    rng = np.random.default_rng(3)
    with scratch(folder) as here:
        host = Host(here / "drive.kv", capacity, payload=False, pages_per_block=8, staged_bytes=1 << 30)
        sizes: dict[int, int] = {}
        growing: dict[int, int] = {}  # session: its tokens so far
        for number in range(1, sessions + 1):
            tokens = int(rng.choice([1024, 2048, 4096]))
            while sum(sizes.values()) + tokens > 0.8 * capacity / (2 * heads * d * 2):
                gone = int(rng.choice([session for session in sizes if session not in growing]))
                del sizes[gone]
                host.send(abi.SessionTrim, opcode=abi.Opcode.SESSION_TRIM, nsid=abi.Namespace.NVM, session=gone)
            sizes[number] = tokens
            growing[number] = 0
            while len(growing) == 6 or (number == sessions and growing):  # several sessions grow at the same time
                session = int(rng.choice(list(growing)))
                for kind in (0, 1):
                    host.append(session, heads, 256, d, None, kind=kind, first_token=growing[session])
                growing[session] += 256
                if growing[session] == sizes[session]:
                    del growing[session]
        stats = host.drive.flash_stats()
        host.drive = None
    return {
        "groups_written": stats["groups_written"],
        "groups_moved": stats["groups_moved"],
        "waf": stats["units_programmed"] / stats["groups_written"],
        "channel_balance": max(stats["channel_bytes"]) / min(stats["channel_bytes"]),
        "erases_least": stats["least_erases"],
        "erases_most": stats["most_erases"],
    }


def run(setup: Setup) -> list[Block]:
    """A table for each part."""
    rounds, layers, many, few = setup.size((3, 16, 1_000_000, 50_000), (1, 1, 1000, 50))
    tokens, gigabytes, most, sessions = setup.size((32768, 100, 1000, 599), (512, 1, 1, 60))
    parts: dict[str, Callable[[Path], Any]] = {
        "Times against published and measured drives (modelled)": lambda folder: _native.timing_cases(),
        "Sequential append to the backing file, beside fio (measured)": lambda folder: append_rate(
            folder, rounds, layers
        ),
        "Commands through the rings, on one core (measured)": lambda folder: command_rate(folder, rounds, many, few),
        "Attention through the command path, beside the bare engine (measured)": lambda folder: attention_rate(
            folder, 20 * rounds, tokens
        ),
        "Drive memory and mounting (measured)": lambda folder: metadata(folder, gigabytes),
        "Simulation speed without contents (measured; device times modelled)": lambda folder: simulation(folder, most),
        "Collection: sessions come and go on a drive that is 80 % full (modelled)": lambda folder: collection(
            folder, sessions
        ),
    }
    tables, kept = [], {}
    for title, measure in parts.items():
        setup.say(title)
        with setup.folder() as folder:
            found = measure(folder)
        kept[title] = found if isinstance(found, list) else [found]
        tables.append(table(title, kept[title]))
    return [Block("drive", tables, kept)]


def table(title: str, records: list[dict[str, Any]]) -> Table:
    """Records with equal fields."""
    head = [name.replace("_", " ") for name in records[0]]
    return Table(head, [[cell(value) for value in one.values()] for one in records], title=title, align="l" * len(head))


def cell(value: Any) -> str:
    """A number or a name."""
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"
    return f"{value:,}" if isinstance(value, int) else str(value)
