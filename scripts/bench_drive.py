"""What the software drive costs and how fast it is: validation of times, append beside fio, command rate, attention
beside the bare engine, memory, mounting, simulation speed. Writes a JSON file and the tables of docs/drive.md.

Ratios are taken between runs that follow one another directly, and their median is reported: a machine that slows
down slows down both sides.
"""

from __future__ import annotations

import argparse
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

from kvdrive import _native, abi
from kvdrive.kernels.job import JobMemory
from kvdrive.kernels.native import scale_bits
from kvdrive.perf.kept import processor
from page_blocks import write_blocks

GB = 10**9
DOCS = Path(__file__).parents[1] / "docs/drive.md"


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


def fio_rate(path: Path, size: int) -> float | None:
    """GB/s of sequential direct writes of 1 MiB, 8 in flight; None where there is no fio."""
    if not shutil.which("fio"):
        return None
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
    return float(report["jobs"][0]["write"]["bw_bytes"]) / GB


def append_rate(folder: Path, rounds: int) -> dict[str, Any]:
    """Bulk appends with a flush after them, alternating with fio on the same disk."""
    heads, tokens, d, layers = 8, 8192, 128, 16
    rows = np.random.default_rng(1).standard_normal((heads, tokens, d), np.float32).astype(np.float16)
    data = rows.reshape(-1).view(np.uint8)
    ours, theirs = [], []
    for number in range(rounds + 1):
        with scratch(folder) as here:
            host = Host(here / "drive.kv", 3 * layers * data.nbytes)
            seconds = (
                sum(
                    host.append(1, heads, tokens, d, data, layer=layer, kind=kind)
                    for layer in range(layers)
                    for kind in (0, 1)
                )
                + host.flush()
            )
            del host
        with scratch(folder) as here:
            fio = fio_rate(here / "fio", 2 * layers * data.nbytes)
        if number:  # the first round warms up
            ours.append(2 * layers * data.nbytes / seconds / GB)
            theirs.append(fio)
    ratios = [a / b for a, b in zip(ours, theirs, strict=True) if b]
    return {
        "gb_per_s": statistics.median(ours),
        "fio_gb_per_s": statistics.median(theirs) if ratios else None,
        "of_fio": statistics.median(ratios) if ratios else None,
    }


def command_rate(folder: Path, rounds: int) -> list[dict[str, Any]]:
    """Commands without data through the rings: host and drive on one core, which take turns."""
    many, few = 1_000_000, 50_000
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


def attention_rate(folder: Path, rounds: int) -> dict[str, Any]:
    """ATTN_SUBMIT over 8 heads of 32768 tokens from the page cache, and the engine on the same rows in memory."""
    heads, tokens, d, g = 8, 32768, 128, 4
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
            for first in range(0, tokens, 16384):
                part = np.ascontiguousarray(rows[:, first : first + 16384]).reshape(-1).view(np.uint8)
                host.append(1, heads, 16384, d, part, kind=kind, first_token=first)
        host.flush()
        host.attend(1, q, tokens)
        ours, bare = [], []
        for _ in range(rounds * 20):
            ours.append(host.attend(1, q, tokens))
            start = time.perf_counter()
            for image in images:
                engine.attention(image, 0)
            bare.append(time.perf_counter() - start)
    return {
        "gb_per_s": 2 * rows.nbytes / statistics.median(ours) / GB,
        "bare_gb_per_s": 2 * rows.nbytes / statistics.median(bare) / GB,
        "of_bare": statistics.median(b / a for a, b in zip(ours, bare, strict=True)),
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


def simulation(folder: Path) -> list[dict[str, Any]]:
    """Device seconds per second of this machine: prefill of one sequence, then decode steps over all layers."""
    shapes = [
        ("InstInfer, OPT-13B", "instcsd", 40, 40, 128, 2048, 4),
        ("HILOS, OPT-66B", "smartssd", 64, 72, 128, 32768, 1),
    ]
    results = []
    for name, preset, layers, heads, d, tokens, steps in shapes:
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


def collection(folder: Path) -> dict[str, Any]:
    """Write amplification for sessions that are created and deleted on a drive that is 80 % full."""
    capacity, heads, d = 256 << 20, 8, 128
    rng = np.random.default_rng(3)
    with scratch(folder) as here:
        host = Host(here / "drive.kv", capacity, payload=False, pages_per_block=8, staged_bytes=1 << 30)
        sizes: dict[int, int] = {}
        growing: dict[int, int] = {}  # session: its tokens so far
        for number in range(1, 600):
            tokens = int(rng.choice([1024, 2048, 4096]))
            while sum(sizes.values()) + tokens > 0.8 * capacity / (2 * heads * d * 2):
                gone = int(rng.choice([session for session in sizes if session not in growing]))
                del sizes[gone]
                host.send(abi.SessionTrim, opcode=abi.Opcode.SESSION_TRIM, nsid=abi.Namespace.NVM, session=gone)
            sizes[number] = tokens
            growing[number] = 0
            while len(growing) == 6 or (number == 599 and growing):  # several sessions grow at the same time
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


def number(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"
    return f"{value:,}" if isinstance(value, int) else str(value)


def table(rows: list[dict[str, Any]]) -> str:
    """A list of records with equal fields as a Markdown table."""
    names = list(rows[0])
    lines = ["| " + " | ".join(name.replace("_", " ") for name in names) + " |", "|" + "---|" * len(names)]
    return "\n".join(lines + ["| " + " | ".join(number(row[name]) for name in names) + " |" for row in rows])


def report(results: dict[str, Any]) -> str:
    """The generated part of docs/drive.md."""
    titles = {
        "validation": "Times against published and measured drives (modelled)",
        "append": "Sequential append to the backing file, beside fio (measured)",
        "commands": "Commands through the rings, on one core (measured)",
        "attention": "Attention through the command path, beside the bare engine (measured)",
        "metadata": "Drive memory and mounting (measured)",
        "simulation": "Simulation speed without contents (measured; device times modelled)",
        "collection": "Collection: sessions come and go on a drive that is 80 % full (modelled)",
    }
    parts = [
        f"### {title}\n\n{table(results[key] if isinstance(results[key], list) else [results[key]])}"
        for key, title in titles.items()
        if key in results
    ]
    return "\n\n".join([f"Machine: {results['machine']}", *parts])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", type=Path, default=Path("out/bench_drive.json"))
    parser.add_argument("--folder", type=Path, default=Path("out"), help="on the disk to measure")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--gigabytes", type=int, default=100, help="mapped KV of the mount measurement")
    parser.add_argument("--only", nargs="+", help="some of: append commands attention metadata simulation collection")
    args = parser.parse_args()
    args.folder.mkdir(parents=True, exist_ok=True)
    steps: dict[str, Callable[[], Any]] = {
        "validation": _native.timing_cases,
        "append": lambda: append_rate(args.folder, args.rounds),
        "commands": lambda: command_rate(args.folder, args.rounds),
        "attention": lambda: attention_rate(args.folder, args.rounds),
        "metadata": lambda: metadata(args.folder, args.gigabytes),
        "simulation": lambda: simulation(args.folder),
        "collection": lambda: collection(args.folder),
    }
    results: dict[str, Any] = json.loads(args.json.read_text()) if args.only and args.json.exists() else {}
    results["machine"] = f"{os.cpu_count()} cores, {processor()}"
    for name, step in steps.items():
        if args.only and name not in args.only:
            continue
        print(f"{name} ...", flush=True)
        results[name] = step()
        args.json.parent.mkdir(parents=True, exist_ok=True)
        args.json.write_text(json.dumps(results, indent=2) + "\n")
    write_blocks(DOCS, {"bench-drive": report(results)})
    print(report(results))


if __name__ == "__main__":
    main()
