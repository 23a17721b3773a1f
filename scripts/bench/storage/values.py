"""Stores and retrieves of values per second over loopback NVMe/TCP, beside fio and a folder of files on the same file
system.

The drive is a process of its own without a flash model. Each round stores, makes everything durable, and retrieves in
random order, for the drive, the folder and fio in turn. The drive checks CRC-32C of every page; the folder keeps
CRC-32C behind each value, writes to a temporary name, syncs and renames. Nothing is read from the page cache.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from bench.machine import forget
from bench.rounds import Contender, Counts, Rounds, take_turns
from bench.setup import Setup
from bench.table import Block, Table
from kvdrive._native import Drive, crc32c
from kvdrive.nvme.fabrics.association import RemoteOptions
from kvdrive.targets.key_value import KeyValueNamespace
from kvdrive.targets.remote import TcpDrive

SIZES = {4096: 1024, 65536: 256, 2 << 20: 24}  # bytes of a value: values in a round
FLIGHTS = (1, 4)  # threads, and fio's jobs
CHECKSUM_BYTES = 4
DRIVE, FOLDER, FIO = "drive", "folder of files", "fio"

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
        forget(folder / key.decode())
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


def measure(namespace: KeyValueNamespace, folder: Path, size: int, count: int, threads: int, rounds: int) -> Rounds:
    """The drive, the folder and fio with values of one size."""
    rng = np.random.default_rng(1)
    values = {f"{number:06}".encode(): rng.bytes(size) for number in range(count)}

    def order() -> list[bytes]:
        return [list(values)[i] for i in rng.permutation(count)]

    def on_disk(work: Callable[[Path], Seconds]) -> Counts:
        with tempfile.TemporaryDirectory(dir=folder) as here:
            return counts(work(Path(here)))

    found = [
        Contender(DRIVE, lambda: counts(of_drive(namespace, values, order(), threads))),
        Contender(FOLDER, lambda: on_disk(lambda here: of_folder(here, values, order(), threads))),
    ]
    if shutil.which("fio"):
        found.append(Contender(FIO, lambda: on_disk(lambda here: of_fio(here, size, count, threads))))
    return take_turns(found, rounds)


def counts(times: Seconds) -> Counts:
    """Both directions."""
    return {"store": times[0], "retrieve": times[1]}


def run(setup: Setup) -> list[Block]:
    """A row for each size, number of threads and direction."""
    sizes, flights, rounds = setup.size((SIZES, FLIGHTS, 3), ({4096: 8}, (1,), 1))
    rows, kept = [], {}
    capacity = 4 * max(size * count for size, count in SIZES.items())
    options = RemoteOptions(io_queues=max(FLIGHTS))
    with (
        setup.folder(2 * capacity) as folder,
        served(folder, capacity) as address,
        TcpDrive(address, options) as target,
    ):
        namespace = KeyValueNamespace(target)
        for size, count in sizes.items():
            for threads in flights:
                found = measure(namespace, folder, size, count, threads, rounds)
                rows += lines(found, size, count, threads)
                kept[f"{size} bytes, {threads} in flight"] = found.rounds
                setup.say(rows[-1])
    head = ["value", "in flight", "", "per second", "MB/s", f"times as fast as a {FOLDER}", "as fio"]
    note = f"Medians of {rounds} rounds, ratios within a round."
    return [Block("values", [Table(head, rows, note, align="rrlrrrr")], kept)]


def lines(found: Rounds, size: int, count: int, threads: int) -> Iterator[list[str]]:
    """A row for each direction."""
    shown = f"{size >> 20} MiB" if size >= 1 << 20 else f"{size >> 10} KiB"
    for direction in ("store", "retrieve"):
        rate = count / found.median(DRIVE, direction)
        ratios = (
            f"{found.faster(DRIVE, other, direction):.2f}" if other in found.names else "-" for other in (FOLDER, FIO)
        )
        yield [shown, str(threads), direction, f"{rate:,.0f}", f"{rate * size / 1e6:,.0f}", *ratios]
