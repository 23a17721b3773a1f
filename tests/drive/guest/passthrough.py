"""Runs in the guest: K and V through /dev/ngXnY, attention, values under keys, refusals, a reset.

Prints what the test compares.
"""

import base64
import os
import subprocess
import threading
import time
from pathlib import Path

import numpy as np

from kvdrive import abi
from kvdrive.errors import TargetError
from kvdrive.kvcache.session import Session
from kvdrive.nvme import commands, namespaces, wire
from kvdrive.targets.key_value import KeyValueNamespace
from kvdrive.targets.linux import LinuxDrive


def say(*words: object) -> None:
    print("@@", *words, flush=True)


def refusal(device: str) -> str:
    try:
        LinuxDrive(device)
    except TargetError as error:
        return str(error)
    return "nothing"


def both_ways(ring: LinuxDrive, ioctl: LinuxDrive) -> None:
    """Many commands, some of which fail, have the same completions through the io_uring and one at a time."""
    rng = np.random.default_rng(5)
    blocks = rng.integers(0, 256, 300 * wire.LBA_BYTES, np.uint8)
    for first in range(0, 300, 50):
        part = blocks[first * wire.LBA_BYTES : (first + 50) * wire.LBA_BYTES]
        ring.execute(namespaces.write_blocks(100 + first, part))
    asked = [namespaces.read_blocks(100 + number, 1) for number in range(300)]
    asked[77:77] = [commands.session_trim(77, 0), commands.flush(), namespaces.read_blocks(1 << 40, 1)]
    found, again = ring.submit_many(asked), ioctl.submit_many(asked)
    same = [(one.status, one.result, one.retry) for one in found] == [
        (one.status, one.result, one.retry) for one in again
    ]
    same &= all(one.data.tobytes() == other.data.tobytes() for one, other in zip(found, again, strict=True))
    read = b"".join(one.data.tobytes() for number, one in enumerate(found) if number not in (77, 78, 79))
    say("both ways", ring.passthrough, ioctl.passthrough, same, read == blocks.tobytes(), hex(found[77].status))


def reset_in_the_middle(drive: LinuxDrive) -> list[str]:
    """Commands in flight wait for the kernel, complete with a status, or fail with a message. Returns the messages."""
    threading.Timer(0.1, lambda: Path("/sys/class/nvme/nvme0/reset_controller").write_text("1")).start()
    end, failures = time.monotonic() + 3, []
    while time.monotonic() < end:
        try:
            drive.submit_many([namespaces.read_blocks(5, 1)] * 100)
        except TargetError as error:
            failures.append(str(error))
    return failures


def answer(drive: LinuxDrive) -> bytes | None:
    """Block 5, or None while the drive does not answer."""
    try:
        done = drive.submit(namespaces.read_blocks(5, 2))
    except TargetError:
        return None
    return None if done.status else done.data.tobytes()


def too_slow(ring: bool) -> str:
    """A command whose completion the network has lost. Returns what its caller is told after two seconds."""
    with LinuxDrive("/dev/ng0n3", timeout_ms=2000, ring=ring) as drive:
        say("ask lose_completion")
        input()
        began = time.monotonic()
        try:
            said = hex(drive.submit(namespaces.read_blocks(5, 1)).status)
        except TargetError as error:
            said = str(error)
        in_time = 1 < time.monotonic() - began < 30
        while (again := answer(drive)) is None and time.monotonic() < began + 60:  # the kernel connects again
            time.sleep(0.1)
        right = again == blocks.tobytes()
        return f"{drive.passthrough} {in_time} {right} {said}"


def foreign() -> str:
    """What is said of a drive of another maker."""
    subprocess.run(["/bin/busybox", "insmod", "/modules/nvme.ko"], check=True)
    while not Path("/dev/ng1n1").exists():
        time.sleep(0.1)
    return refusal("/dev/ng1n1")


arrays = {name: np.load(f"/{name}.npy") for name in ("k", "v", "q")}
tokens = arrays["k"].shape[1]
with LinuxDrive("/dev/ng0n3") as drive, LinuxDrive("/dev/ng0n3", ring=False) as slow:
    session = Session(drive)
    session.append(0, abi.KvKind.KEYS, 0, arrays["k"])
    session.append(0, abi.KvKind.VALUES, 0, arrays["v"])
    scale = int(Path("/scale").read_text())
    got = session.attend(0, arrays["q"], tokens, scale)
    say("data out", base64.b64encode(got.out.tobytes()).decode())
    say("data sum", base64.b64encode(got.sum.tobytes()).decode())
    say("sessions", *sorted(drive.sessions()), "is", session.number)
    say("jobs", drive.stats().attention_jobs)

    blocks = np.arange(wire.LBA_BYTES, dtype=np.uint16).view(np.uint8)
    drive.execute(namespaces.write_blocks(5, blocks))
    say("blocks", drive.submit(namespaces.read_blocks(5, 2)).data.tobytes() == blocks.tobytes())
    say("refused", hex(drive.submit(commands.session_trim(77, 0)).status))
    both_ways(drive, slow)

    values, value = KeyValueNamespace(drive), Path("/value").read_bytes()
    values.store(b"from Linux", value)
    values.store(b"small", b"1")
    values.delete(b"gone")
    same = values.retrieve(b"from Linux") == value, values.retrieve(b"from Linux", 5000) == value[5000:]
    say("values", *same, list(values.keys()), values.exists(b"gone"), Path("/dev/ng0n4").exists())
    values.flush()

    for one in (drive, slow):
        failures = reset_in_the_middle(one)
        time.sleep(0.5)
        again = session.attend(0, arrays["q"], tokens, scale)
        same = again.out.tobytes() == got.out.tobytes()
        say("after reset", one.passthrough, same, all("open the drive again" in failure for failure in failures))

    for ring in (True, False):
        say("too slow", too_slow(ring))

    os.seteuid(65534)  # the devices are open, and the process may not use them any more
    for one in (drive, slow):
        try:
            one.submit(namespaces.write_blocks(5, blocks))
        except TargetError as error:
            say(f"taken away from {one.passthrough}:", error)
    os.seteuid(0)

say("missing:", refusal("/dev/ng7n1"))
say("name:", refusal("/dev/sda"))
say("foreign:", foreign())
os.chmod("/dev/ng0n3", 0o600)
os.setuid(65534)
say("permission:", refusal("/dev/ng0n3"))
