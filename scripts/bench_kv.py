"""Stores and retrieves of values per second over loopback NVMe/TCP, beside fio and a folder of files on the same file
system. Writes a JSON file and the table of docs/key-value.md.

The drive is a process of its own without a flash model. Each round stores, makes everything durable, and retrieves in
random order, for the drive, the folder and fio in turn; ratios are taken within a round, and their median is reported.
The drive checks CRC-32C of every page; the folder keeps CRC-32C behind each value, writes to a temporary name, syncs
and renames. Nothing is read from the page cache.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from kvdrive._native import Drive, crc32c
from kvdrive.nvme.fabrics.association import RemoteOptions
from kvdrive.perf.kept import processor
from kvdrive.targets.key_value import KeyValueNamespace
from kvdrive.targets.remote import TcpDrive
from page_blocks import write_blocks

DOCS = Path(__file__).parents[1] / "docs/key-value.md"
SIZES = {4096: 1024, 65536: 256, 2 << 20: 24}  # bytes of a value: values in a round
FLIGHTS = (1, 4)  # threads, and fio's jobs
CHECKSUM_BYTES = 4

Values = dict[bytes, bytes]
Seconds = tuple[float, float]  # of all stores with what makes them durable, of all retrieves


@contextmanager
def served(folder: Path, capacity: int) -> Iterator[tuple[str, int]]:
    """The address of a new drive that another process serves."""
    path = folder / "drive.kv"
    Drive(path, "fast", 1, capacity, preset="plain")
    command = [sys.executable, "-m", "kvdrive", "drive", "serve", str(path), "--nvme-tcp", "127.0.0.1:0"]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert server.stdout is not None
        found = re.search(r"nvme-tcp ([\d.]+):(\d+)", server.stdout.readline())
        if found is None:
            raise RuntimeError("the drive is not served")
        yield found[1], int(found[2])
    finally:
        server.terminate()
        server.wait()


def timed(work: Callable[[bytes], None], keys: Sequence[bytes], threads: int) -> float:
    """Seconds to do the work for every key."""
    start = time.perf_counter()
    if threads == 1:
        for key in keys:
            work(key)
    else:
        with ThreadPoolExecutor(threads) as pool:
            list(pool.map(work, keys))
    return time.perf_counter() - start


def of_drive(namespace: KeyValueNamespace, values: Values, order: Sequence[bytes], threads: int) -> Seconds:
    def check(key: bytes) -> None:
        if namespace.retrieve(key) != values[key]:
            raise RuntimeError("the drive returned another value")

    start = time.perf_counter()
    timed(lambda key: namespace.store(key, values[key]), list(values), threads)
    namespace.flush()
    stored = time.perf_counter() - start
    retrieved = timed(check, order, threads)
    for key in values:
        namespace.delete(key)
    return stored, retrieved


def of_folder(folder: Path, values: Values, order: Sequence[bytes], threads: int) -> Seconds:
    def store(key: bytes) -> None:
        temporary = folder / f"{key.decode()}.new"
        with temporary.open("wb") as file:
            file.write(values[key])
            file.write(crc32c(np.frombuffer(values[key], np.uint8)).to_bytes(CHECKSUM_BYTES, "little"))
            file.flush()
            os.fdatasync(file.fileno())
        temporary.rename(folder / key.decode())

    def check(key: bytes) -> None:
        stored = (folder / key.decode()).read_bytes()
        value, checksum = stored[:-CHECKSUM_BYTES], stored[-CHECKSUM_BYTES:]
        sound = crc32c(np.frombuffer(value, np.uint8)) == int.from_bytes(checksum, "little")
        if not sound or value != values[key]:
            raise RuntimeError("the folder returned another value")

    start = time.perf_counter()
    timed(store, list(values), threads)
    directory = os.open(folder, os.O_RDONLY)
    os.fsync(directory)
    os.close(directory)
    stored = time.perf_counter() - start
    for key in values:  # the page cache would answer, and no disk
        file = os.open(folder / key.decode(), os.O_RDONLY)
        os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(file)
    return stored, timed(check, order, threads)


def of_fio(folder: Path, size: int, count: int, jobs: int) -> Seconds:
    """Direct writes with a sync at the end, then direct reads in random order; one at a time in each job."""

    def run(kind: str) -> float:
        arguments = [
            "fio", "--name=values", f"--directory={folder}", f"--size={size * count // jobs}", f"--rw={kind}",
            f"--bs={size}", "--direct=1", "--ioengine=psync", f"--numjobs={jobs}", "--group_reporting",
            "--end_fsync=1", "--output-format=json",
        ]  # fmt: skip
        report = json.loads(subprocess.run(arguments, check=True, capture_output=True, text=True).stdout)
        return count / float(report["jobs"][0]["write" if kind == "write" else "read"]["iops"])

    return run("write"), run("randread")


def measure(folder: Path, rounds: int) -> list[dict[str, Any]]:
    """One row for each size, number of threads and direction."""
    rng = np.random.default_rng(1)
    capacity = 4 * max(size * count for size, count in SIZES.items())
    rows = []
    options = RemoteOptions(io_queues=max(FLIGHTS))
    with served(folder, capacity) as address, TcpDrive(address, options) as target:
        namespace = KeyValueNamespace(target)
        for size, count in SIZES.items():
            values = {f"{number:06}".encode(): rng.bytes(size) for number in range(count)}
            for threads in FLIGHTS:
                times: dict[str, list[Seconds]] = {"drive": [], "folder": [], "fio": []}
                for _ in range(rounds):
                    order = [list(values)[i] for i in rng.permutation(count)]
                    times["drive"].append(of_drive(namespace, values, order, threads))
                    with tempfile.TemporaryDirectory(dir=folder) as here:
                        times["folder"].append(of_folder(Path(here), values, order, threads))
                    if shutil.which("fio"):
                        with tempfile.TemporaryDirectory(dir=folder) as here:
                            times["fio"].append(of_fio(Path(here), size, count, threads))
                for place, direction in enumerate(("store", "retrieve")):
                    rows.append(
                        row(size, count, threads, direction, {k: [t[place] for t in v] for k, v in times.items()})
                    )
                    print(rows[-1], flush=True)
    return rows


def row(size: int, count: int, threads: int, direction: str, seconds: dict[str, list[float]]) -> dict[str, Any]:
    found: dict[str, Any] = {"bytes": size, "threads": threads, "direction": direction}
    found["per_s"] = count / statistics.median(seconds["drive"])
    found["mb_per_s"] = found["per_s"] * size / 1e6
    for other in ("folder", "fio"):
        ratios = [theirs / ours for ours, theirs in zip(seconds["drive"], seconds[other], strict=False)]
        found[f"of_{other}"] = statistics.median(ratios) if ratios else None
    return found


def table(results: dict[str, Any]) -> str:
    lines = [
        "| value | in flight | | per second | MB/s | times a folder of files | times fio |",
        "| ---: | ---: | --- | ---: | ---: | ---: | ---: |",
    ]
    for one in results["rows"]:
        size = f"{one['bytes'] >> 20} MiB" if one["bytes"] >= 1 << 20 else f"{one['bytes'] >> 10} KiB"
        of_fio = "-" if one["of_fio"] is None else f"{one['of_fio']:.2f}"
        lines.append(
            f"| {size} | {one['threads']} | {one['direction']} | {one['per_s']:,.0f} | {one['mb_per_s']:,.0f} "
            f"| {one['of_folder']:.2f} | {of_fio} |"
        )
    said = f"Measured on {results['machine']}; medians of {results['rounds']} rounds, ratios within a round."
    return "\n".join([*lines, "", said])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", type=Path, default=Path("out/bench_kv.json"))
    parser.add_argument("--folder", type=Path, default=Path("out"), help="on the disk to measure")
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    args.folder.mkdir(parents=True, exist_ok=True)
    results: dict[str, Any] = {"machine": f"{os.cpu_count()} shared cores, {processor()}", "rounds": args.rounds}
    with tempfile.TemporaryDirectory(dir=args.folder) as folder:
        results["rows"] = measure(Path(folder), args.rounds)
    args.json.parent.mkdir(parents=True, exist_ok=True)
    args.json.write_text(json.dumps(results, indent=2) + "\n")
    write_blocks(DOCS, {"bench-kv": table(results)})
    print(table(results))


if __name__ == "__main__":
    main()
