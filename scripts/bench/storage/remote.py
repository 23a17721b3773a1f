"""Decode steps with K and V in a drive of another process or machine, beside one in this process.

Behind a socket, over loopback, and over a pair of virtual network cards of which one is in a network namespace of its
own, without a limit and shaped to 10 and 25 Gb/s (token bucket). The pair needs root.
"""

from __future__ import annotations

import base64
import ipaddress
import os
import secrets
import subprocess
import sys
import time
import zlib
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from bench.rounds import Contender, Counts, Rounds, take_turns
from bench.setup import Setup
from bench.table import Block, Table
from kvdrive import abi
from kvdrive.kernels.native import scale_bits
from kvdrive.kvcache.session import Session
from kvdrive.nvme.fabrics.association import RemoteOptions
from kvdrive.nvme.fabrics.identity import host_identity
from kvdrive.targets.base import Target
from kvdrive.targets.emulator import Emulator
from kvdrive.targets.remote import SocketDrive, TcpDrive

HERE, SOCKET, LOOPBACK = "this process", "socket", "loopback"
HOST = "nqn.2014-08.org.nvmexpress:uuid:5b6a7a2e-0000-4000-8000-000000000001"
# Names of this process's own, so that two runs do not share a network. Names of cards have at most 15 characters.
NAMESPACE, NEAR, FAR = f"kvdrive-bench-{os.getpid()}", f"kvn{os.getpid()}", f"kvf{os.getpid()}"
# RFC 2544 keeps these addresses for benchmarks: 32,768 networks of two.
NETWORK = ipaddress.ip_network("198.18.0.0/15")[os.getpid() % 32768 * 4]
NEAR_ADDRESS, FAR_ADDRESS = str(NETWORK + 1), str(NETWORK + 2)
RATES = {"veth": "", "veth, 25 Gb/s": "25gbit", "veth, 10 Gb/s": "10gbit"}


@dataclass(frozen=True)
class Shape:
    layers: int = 8
    heads: int = 8
    group: int = 4
    d: int = 128
    tokens: int = 4096
    steps: int = 8


class Steps:
    """A sequence on a drive. `run` appends a token and attends to all, layer by layer, as a decode step does."""

    def __init__(self, drive: Target, shape: Shape) -> None:
        self.drive, self.shape, self.tokens = drive, shape, 0
        self.session, self.rng = Session(drive), np.random.default_rng(1)
        self.store(shape.tokens)
        self.run()

    def rows(self, count: int) -> np.ndarray:
        return self.rng.standard_normal((self.shape.heads, count, self.shape.d)).astype(np.float16)

    def store(self, count: int) -> None:
        for layer in range(self.shape.layers):
            for kind in abi.KvKind:
                self.session.append(layer, kind, self.tokens, self.rows(count))
        self.tokens += count

    def run(self) -> list[bytes]:
        shape, outputs = self.shape, []
        q = self.rng.standard_normal((shape.heads, shape.group, shape.d)).astype(np.float16)
        for layer in range(shape.layers):
            for kind in abi.KvKind:
                self.session.append(layer, kind, self.tokens, self.rows(1))
            outputs.append(self.session.attend(layer, q, self.tokens + 1, scale_bits(None, shape.d)).out.tobytes())
        self.tokens += 1
        return outputs


@contextmanager
def serving(folder: Path, name: str, where: list[str | Path], *prefix: str) -> Iterator[str]:
    """A process that serves a new drive as the options `where` say; yields its first line."""
    kvdrive = [sys.executable, "-m", "kvdrive", "drive"]
    subprocess.run([*kvdrive, "create", folder / f"{name}.kv"], check=True, stdout=subprocess.DEVNULL)
    command = [*prefix, *kvdrive, "serve", folder / f"{name}.kv", *where]
    with subprocess.Popen(list(map(str, command)), stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield process.stdout.readline()
        finally:
            process.terminate()


@contextmanager
def behind_socket(folder: Path) -> Iterator[SocketDrive]:
    """A drive in another process of this machine, and the connection to it."""
    path = folder / "drive.sock"
    with serving(folder, "socket", ["--socket", path]), SocketDrive(path) as drive:
        yield drive


@contextmanager
def served(folder: Path, name: str, address: str, *prefix: str) -> Iterator[TcpDrive]:
    """A drive that another process serves at `address`, and the connection to it."""
    key = secrets.token_bytes(32)
    secret = f"DHHC-1:00:{base64.b64encode(key + zlib.crc32(key).to_bytes(4, 'little')).decode()}:"
    hosts = folder / f"{name}.toml"
    hosts.touch(mode=0o600)
    hosts.write_text(f'[[host]]\nnqn = "{HOST}"\nsecret = "{secret}"\n')
    with serving(folder, name, ["--nvme-tcp", f"{address}:0", "--hosts", hosts], *prefix) as said:
        port = int(said.split(f"nvme-tcp {address}:")[1].split(",")[0])
        with TcpDrive((address, port), RemoteOptions(identity=host_identity(hosts))) as drive:
            yield drive


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True)


@contextmanager
def network() -> Iterator[bool]:
    """A pair of virtual network cards, the far one in a namespace. False where this user may not make them."""
    try:
        ip("netns", "add", NAMESPACE)
    except (OSError, subprocess.CalledProcessError):
        yield False
        return
    try:
        ip("link", "add", NEAR, "type", "veth", "peer", "name", FAR, "netns", NAMESPACE)
        ip("address", "add", f"{NEAR_ADDRESS}/30", "dev", NEAR)
        ip("link", "set", NEAR, "up")
        ip("-n", NAMESPACE, "address", "add", f"{FAR_ADDRESS}/30", "dev", FAR)
        ip("-n", NAMESPACE, "link", "set", FAR, "up")
        yield True
    finally:
        ip("netns", "delete", NAMESPACE)  # removes both cards


def limit(rate: str) -> None:
    """Shape both directions of the pair; "" for no limit."""
    for prefix, card in (((), NEAR), (("ip", "netns", "exec", NAMESPACE), FAR)):
        subprocess.run([*prefix, "tc", "qdisc", "delete", "dev", card, "root"], capture_output=True, check=False)
        if rate:
            shape = ["tbf", "rate", rate, "burst", "4mb", "latency", "50ms"]
            subprocess.run([*prefix, "tc", "qdisc", "add", "dev", card, "root", *shape], check=True)


def wire_bytes() -> int:
    """Bytes that went over the pair, both ways, with the headers of TCP and Ethernet."""
    folder = Path(f"/sys/class/net/{NEAR}/statistics")
    return sum(int((folder / name).read_text()) for name in ("rx_bytes", "tx_bytes"))


def host_bytes(drive: Target) -> int:
    stats = drive.stats()
    return stats.host_bytes_in + stats.host_bytes_out


def timed(steps: Steps, name: str) -> Counts:
    """Means of some steps: seconds, and bytes of commands, completions and data; of the pair also those on the wire."""
    count = steps.shape.steps
    if name in RATES:
        limit(RATES[name])
        wire = wire_bytes()
    before, began = host_bytes(steps.drive), time.perf_counter()
    for _ in range(count):
        steps.run()
    found: Counts = {"seconds": (time.perf_counter() - began) / count}
    if name in RATES:
        found["wire"] = (wire_bytes() - wire) // count
    return found | {"bytes": (host_bytes(steps.drive) - before) // count}


def measure(shape: Shape, rounds: int, folder: Path) -> Rounds:
    """All connections. Raises RuntimeError if the drives gave different bits."""
    with ExitStack() as opened:
        places = {HERE: Steps(opened.enter_context(Emulator(folder / "local.kv", "fast")), shape)}
        places[SOCKET] = Steps(opened.enter_context(behind_socket(folder)), shape)
        places[LOOPBACK] = Steps(opened.enter_context(served(folder, "loopback", "127.0.0.1")), shape)
        if opened.enter_context(network()):
            prefix = ("ip", "netns", "exec", NAMESPACE)
            far = Steps(opened.enter_context(served(folder, "far", FAR_ADDRESS, *prefix)), shape)
            places |= dict.fromkeys(RATES, far)
        contenders = [
            Contender(name, lambda name=name, steps=steps: timed(steps, name)) for name, steps in places.items()
        ]
        found = take_turns(contenders, rounds)
        last = places[HERE].run()
        if any(places[name].run() != last for name in (SOCKET, LOOPBACK)):
            raise RuntimeError("the drives gave different bits")
    return found


def run(setup: Setup) -> list[Block]:
    """A row for each connection."""
    shape, rounds = setup.size((Shape(), 9), (Shape(layers=2, heads=2, group=2, d=64, tokens=64, steps=2), 1))
    with setup.folder() as folder:
        found = measure(shape, rounds, folder)
    if not set(RATES) <= set(found.names):
        setup.say("the pair of network cards needs root and iproute2: it was not measured")
    return [Block("remote", [table(shape, found)], found.rounds)]


def table(shape: Shape, found: Rounds) -> Table:
    """A row for each connection."""
    kv = shape.layers * shape.heads * shape.d * 2 * 2 * shape.tokens
    sizes = f"{shape.layers} layers, {shape.heads} KV heads, {shape.group} query heads each, dimension {shape.d}"
    legend = (
        f"A decode step appends one token's K and V and attends to all tokens, layer by layer: {sizes}, "
        f"{shape.tokens:,} tokens, {kv / 2**20:.0f} MiB of K and V, which stay in the drive. The last step behind the "
        "socket and over loopback gave the same bits as the drive in this process."
    )
    note = (
        f"Medians of {len(found.rounds)} rounds that take turns; load of the machine {os.getloadavg()[0]:.0f}. Host "
        "and drive share its cores. `veth` is a pair of virtual network cards, the drive's in a network namespace of "
        "its own, shaped in both directions by the token bucket of `tc`. Bytes per token count commands, completions "
        "and data; on the wire also the headers of NVMe/TCP, TCP and Ethernet."
    )
    rows = []
    for name in found.names:
        wire = f"{found.median(name, 'wire'):,.0f}" if name in RATES else "-"
        numbers = (f"{1e3 * found.median(name):.1f}", f"{found.faster(name, HERE):.2f}")
        rows.append([name, *numbers, f"{found.median(name, 'bytes'):,.0f}", wire])
    head = ["Drive", "ms per step", "times as fast as in this process", "bytes per token", "on the wire"]
    return Table(head, rows, note, legend)
