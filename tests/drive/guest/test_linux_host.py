"""A stock Linux kernel with nvme-cli as the host of the drive, in QEMU."""

from __future__ import annotations

import base64
import os
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from guest_drive import GuestDrive, script
from stored_bytes import occurrences

import golden
from guest import Guest, Image
from kvdrive import abi
from kvdrive._native import TcpServer, crc32c
from kvdrive.nvme import wire

HERE = Path(__file__).resolve().parent
pytestmark = pytest.mark.xdist_group("guest")


class Rig(GuestDrive):
    """The drive, and the guest that is its host. `asked` answers what the guest asks for."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.asked: Callable[[str], None] = self.server.inject

    def run(self, image: Image, name: str, files: dict[str, bytes] | None = None, **variables: str) -> list[str]:
        options = "nvme-core io_timeout=4 max_retries=5\n" if name == "faults.sh" else ""
        guest = Guest(image, script(name, **variables), files or {}, self.server.port, self.asked, options)
        said = guest.run()
        problems = [line for line in said if line.startswith("error")]
        assert not problems, guest.report(str(problems))
        return said


def passthru(layout: np.dtype, opcode: int, namespace: int, length: int, **fields: int) -> str:
    """A command as nvme-cli's options."""
    entry = np.zeros((), layout)
    for name, value in fields.items():
        entry[name] = value
    words = np.frombuffer(entry.tobytes(), "<u4")
    options = f"--opcode={opcode} --namespace-id={namespace} --data-len={length} --cdw2={words[2]} --cdw3={words[3]}"
    return options + "".join(f" --cdw{i}={words[i]}" for i in range(10, 16))


def test_a_linux_host_uses_the_drive(tmp_path, image):
    rng = np.random.default_rng(3)
    heads, tokens, d, group = 2, 48, 64, 4
    k, v = (rng.standard_normal((heads, tokens, d)).astype(np.float16) for _ in range(2))
    q = rng.standard_normal((heads, group, d)).astype(np.float16)
    scale = golden.scale_bits(None, d)

    def crc(array: np.ndarray) -> int:
        return crc32c(array.reshape(-1).view(np.uint8))

    durable = abi.AppendOption.APPEND_FUA
    rows = {"session": 5, "heads": heads, "tokens": tokens, "row_bytes": 2 * d, "options": durable}
    append = [
        passthru(abi.KvAppend, abi.Opcode.KV_APPEND, 1, k.nbytes, kind=i, sequence=i, crc32c=crc(array), **rows)
        for i, array in enumerate((k, v))
    ]
    query = {"session": 5, "heads": heads, "tokens": tokens, "group": group, "scale_log2e": scale}
    submit = passthru(abi.AttnSubmit, abi.Opcode.ATTN_SUBMIT, 3, q.nbytes, crc32c=crc(q), **query)
    size = heads * abi.AttentionResult.itemsize + q.nbytes
    fetch = passthru(abi.AttnFetch, abi.Opcode.ATTN_FETCH, 3, size, ticket=1, data_bytes=size)

    erase = passthru(abi.SessionTrim, abi.Opcode.SESSION_ERASE, 1, 0, session=5)
    rig = Rig(tmp_path / "drive.kv")
    files = {"k": k.tobytes(), "v": v.tobytes(), "q": q.tobytes()}
    commands = {"APPEND_K": append[0], "APPEND_V": append[1], "SUBMIT": submit, "FETCH": fetch, "ERASE": erase}
    said = rig.run(image, "functional.sh", files, **commands)

    data = {line.split()[1]: base64.b64decode(line.split()[2]) for line in said if line.startswith("data ")}
    records = np.frombuffer(data["attention"][: heads * abi.AttentionResult.itemsize], abi.AttentionResult)
    out = np.frombuffer(data["attention"][records.nbytes :], np.uint16).reshape(heads, group, d)
    for head in range(heads):
        want = golden.attention(q[head], k[head], v[head], scale_log2e=scale)
        np.testing.assert_array_equal(out[head], want.out.view(np.uint16))
        np.testing.assert_array_equal(records["max"][head, :group], want.max)
        np.testing.assert_array_equal(records["sum"][head, :group], want.sum)

    assert rig.drive.sessions() == []
    assert occurrences(tmp_path / "drive.kv", k[0, 0].tobytes()) == 0
    assert "discovered 1" in said
    assert "queues 3" in said  # the admin queue and two I/O queues
    devices = next(line for line in said if line.startswith("devices")).split()[1:]
    assert set(devices) == {"nvme0n1", "ng0n1", "ng0n2", "ng0n3", "ng0n4"}
    assert [line for line in said if "same" in line] == ["blocks same", "blocks same after reset"]
    assert "state live" in said
    assert "unknown opcode refused" in said
    assert "a ticket counts once" in said
    statistics = np.frombuffer(data["statistics"], wire.DriveStatistics)[0]
    assert statistics["attention_jobs"] == heads
    assert statistics["block_writes"] > 0
    assert "controllers 0" in said
    counters = rig.server.counters()
    assert counters["terminated"] == counters["timeouts"] == counters["data_digest_errors"] == 0
    assert counters["ready_to_transfer"] > 0
    assert counters["in_capsule"] > 0
    assert rig.drive.check() == []


@pytest.mark.slow  # a boot of its own
def test_a_linux_host_recovers_from_faults(tmp_path, image):
    rig = Rig(tmp_path / "drive.kv")
    said = rig.run(image, "faults.sh")
    faults = ["drop_connection", "corrupt_digest", "lose_completion", "not_ready"]
    assert [line for line in said if line.startswith("same after")] == [f"same after {fault}" for fault in faults]
    assert "state live" in said
    counters = rig.server.counters()
    assert counters["terminated"] == 0
    assert rig.drive.check() == []


@pytest.mark.slow  # a boot of its own
def test_a_linux_host_survives_the_loss_of_a_path(tmp_path, image):
    rig = Rig(tmp_path / "drive.kv")
    second: list[TcpServer] = [rig.serve()]
    port = second[0].port
    commands: list[int] = []

    def act(word: str) -> None:
        if word == "cut":  # end every connection of this path and stop listening
            commands.append(second[0].counters()["commands"])
            second.clear()
        else:
            second.append(rig.serve(port))

    rig.asked = act
    said = rig.run(image, "multipath.sh", SECOND=str(port))
    assert [line for line in said if line != "ready" and not line.startswith("ask ")] == [
        "native Y",
        "subsystems 1",
        "paths 2",
        "access optimized optimized",
        "first live, second connecting",
        "rounds 11",
        "blocks same over one path",
        "back live",
    ]
    assert commands[0] > 0
    assert rig.drive.check() == []


# Counts and times that depend on the kernel's own requests. The lines `nsid` of the ANA log are nvme-cli's fault: if a
# namespace never changes its group, it asks for a log without the list of namespaces and prints what lies behind it.
VOLATILE = re.compile(
    r"^(data units|host_(read|write)|controller_busy|power_on|host_cmd|cmdid|sqid|error_count|num_err|nsid\t:\t)", re.I
)
TIMES = re.compile(r"(?<=timestamp: )\d+.*|(?<=timestamp : ).*|\b1[0-9]{12}\b.*", re.I)


@pytest.mark.slow  # a boot of its own
def test_nvme_cli_says_what_it_said(tmp_path, image):
    """Its output is expected/*.txt but for volatile lines; `UPDATE_EXPECTED=1 pytest ...` writes them anew."""
    rig = Rig(tmp_path / "drive.kv")
    said = rig.run(image, "nvme_cli.sh")
    found = {}
    for line in said:
        if line.startswith("text "):
            _, name, *coded = line.split()
            lines = base64.b64decode("".join(coded)).decode(errors="replace").splitlines()
            kept = [TIMES.sub("...", text.rstrip()) for text in lines if not VOLATILE.match(text.strip())]
            found[name] = "\n".join(kept) + "\n"
    folder = HERE / "expected"
    if os.environ.get("UPDATE_EXPECTED"):
        folder.mkdir(exist_ok=True)
        for name, text in found.items():
            (folder / f"{name}.txt").write_text(text)
    expected = {path.stem: path.read_text() for path in folder.glob("*.txt")}
    assert found == expected
    assert "value same" in said
