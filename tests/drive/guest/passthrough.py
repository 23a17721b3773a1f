"""Runs in the guest: K and V through /dev/ngXnY, attention, values under keys, refusals, a reset.

Prints what the test compares.
"""

import base64
import os
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


arrays = {name: np.load(f"/{name}.npy") for name in ("k", "v", "q")}
tokens = arrays["k"].shape[1]
with LinuxDrive("/dev/ng0n3") as drive:
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

    values, value = KeyValueNamespace(drive), Path("/value").read_bytes()
    values.store(b"from Linux", value)
    values.store(b"small", b"1")
    values.delete(b"gone")
    same = values.retrieve(b"from Linux") == value, values.retrieve(b"from Linux", 5000) == value[5000:]
    say("values", *same, list(values.keys()), values.exists(b"gone"), Path("/dev/ng0n4").exists())
    values.flush()

    # A reset in the middle: commands wait for the kernel or fail with a message. The session still exists afterwards.
    threading.Timer(0.1, lambda: Path("/sys/class/nvme/nvme0/reset_controller").write_text("1")).start()
    end, failures = time.monotonic() + 3, []
    while time.monotonic() < end:
        try:
            drive.submit(namespaces.read_blocks(5, 1))
        except TargetError as error:
            failures.append(str(error))
    again = session.attend(0, arrays["q"], tokens, scale)
    say("after reset", again.out.tobytes() == got.out.tobytes(), all("open the drive again" in f for f in failures))

say("missing:", refusal("/dev/ng7n1"))
say("name:", refusal("/dev/sda"))
os.chmod("/dev/ng0n3", 0o600)
os.setuid(65534)
say("permission:", refusal("/dev/ng0n3"))
