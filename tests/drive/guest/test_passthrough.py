"""kvdrive's target behind a stock Linux kernel: Python in the guest attends through /dev/ngXnY, bit for bit."""

import base64
import io
from pathlib import Path

import numpy as np
import pytest
from guest_drive import GuestDrive, script
from stored_values import stored_keys

import golden
from guest import Guest
from guest.machine import FOREIGN_DRIVE
from guest.python import COMMAND, MEMORY_MIB, python_files

HERE = Path(__file__).resolve().parent
pytestmark = pytest.mark.xdist_group("guest")


def saved(array: np.ndarray) -> bytes:
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


@pytest.mark.slow  # a minute, mostly of importing
def test_python_in_a_linux_guest_attends_through_the_passthrough(tmp_path, image):
    rng = np.random.default_rng(4)
    heads, tokens, d, group = 2, 700, 64, 4
    k, v = (rng.standard_normal((heads, tokens, d)).astype(np.float16) for _ in range(2))
    q = rng.standard_normal((heads, group, d)).astype(np.float16)
    scale = golden.scale_bits(None, d)
    rig = GuestDrive(tmp_path / "drive.kv")
    files = {"k.npy": saved(k), "v.npy": saved(v), "q.npy": saved(q), "scale": str(scale).encode()}
    files["value"] = rng.bytes((3 << 20) + 5)  # several commands
    files["passthrough.py"] = (HERE / "passthrough.py").read_bytes()
    text = script("passthrough.sh", PYTHON=COMMAND)
    guest = Guest(
        image,
        text,
        files,
        rig.server.port,
        asked=rig.server.inject,
        more=python_files(),
        memory_mib=MEMORY_MIB,
        devices=FOREIGN_DRIVE,
    )
    said = guest.run()
    assert not [line for line in said if line.startswith("error")], guest.report(str(said))

    data = {line.split()[1]: base64.b64decode(line.split()[2]) for line in said if line.startswith("data ")}
    want = [golden.attention(q[head], k[head], v[head], scale_log2e=scale) for head in range(heads)]
    assert data["out"] == b"".join(one.out.tobytes() for one in want)
    assert data["sum"] == b"".join(np.asarray(one.sum, np.uint64).tobytes() for one in want)
    (sessions,) = [line for line in said if line.startswith("sessions")]
    assert sessions == f"sessions {rig.drive.sessions()[0]} is {rig.drive.sessions()[0]}"
    assert "values True True [b'from Linux', b'small'] False True" in said
    assert stored_keys(rig.drive) == [b"from Linux", b"small"]
    assert {f"jobs {heads}", "blocks True", "refused 0x703"} <= set(said)
    assert "both ways io_uring ioctl True True 0x703" in said, said[4:]
    assert {"after reset io_uring True True", "after reset ioctl True True"} <= set(said)
    slow = [line.split(maxsplit=5) for line in said if line.startswith("too slow")]
    assert [words[2:5] for words in slow] == [["io_uring", "True", "True"], ["ioctl", "True", "True"]]
    assert all(words[5] != "0x0" for words in slow), slow
    said_of = {line.split(":")[0]: line for line in said if ": " in line}
    assert "there is no such device" in said_of["missing"]
    assert "write /dev/ngXnY" in said_of["name"]
    assert "no permission" in said_of["permission"]
    assert "/dev/ng1n1 is QEMU NVMe Ctrl, which has no attention engine" in said_of["foreign"]
    assert "no permission" in said_of["taken away from io_uring"]
    assert "no permission" in said_of["taken away from ioctl"]
