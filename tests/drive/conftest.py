"""A drive with a thin command interface, and the expected attention over arrays."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from answers import result_bytes, split_result
from once import once

import golden
from kvdrive import abi
from kvdrive._native import Drive, Engine, crc32c
from kvdrive.nvme import wire

attention = once(golden.attention)
OPCODES = {
    "append": (abi.KvAppend, abi.Opcode.KV_APPEND, abi.Namespace.NVM),
    "read": (wire.KvRead, abi.Opcode.KV_READ, abi.Namespace.NVM),
    "trim": (abi.SessionTrim, abi.Opcode.SESSION_TRIM, abi.Namespace.NVM),
    "submit": (abi.AttnSubmit, abi.Opcode.ATTN_SUBMIT, abi.Namespace.CP),
    "fetch": (abi.AttnFetch, abi.Opcode.ATTN_FETCH, abi.Namespace.CP),
    "fork": (abi.SessionFork, abi.Opcode.SESSION_FORK, abi.Namespace.NVM),
    "remove": (wire.SessionRemove, abi.Opcode.SESSION_REMOVE, abi.Namespace.NVM),
    "erase": (abi.SessionTrim, abi.Opcode.SESSION_ERASE, abi.Namespace.NVM),
    "flush": (abi.Sqe, abi.Opcode.FLUSH, abi.Namespace.NVM),
}


@dataclass(frozen=True)
class Reply:
    status: abi.NvmeStatus | wire.StatusCode
    result: int
    retry: bool
    identifier: int
    data: np.ndarray


class DriveHost:
    """Sends commands that are built from named fields. Fields have sensible defaults; each can be overridden."""

    def __init__(self, path: Path, engine: str = "fast", capacity_bytes: int = 1 << 26, **options: object) -> None:
        self.path = path
        self.engine = engine
        self.drive = Drive(path, engine, 1, capacity_bytes, **options)
        self.sequence: dict[int, int] = {}

    def reopen(self, **options: object) -> None:
        """Close the drive and mount its file again. Sequence numbers continue."""
        self.drive = None
        self.drive = Drive(self.path, self.engine, 1, **options)

    def raw(self, sqe: bytes, data: np.ndarray | None = None) -> Reply:
        cqe, out = self.drive.submit(sqe, data)
        fields = np.frombuffer(cqe, abi.Cqe)[0]
        word = int(fields["status"])
        assert word & 1 == 0
        number = word >> abi.CQE_STATUS_SHIFT & 0x7FF
        status = abi.NvmeStatus(number) if number in set(abi.NvmeStatus) else wire.StatusCode(number)
        retry = not word & abi.CQE_DO_NOT_RETRY
        return Reply(status, int(fields["result"]), retry, int(fields["cid"]), out)

    def entry(self, name: str, **fields: int) -> bytes:
        layout, opcode, namespace = OPCODES[name]
        entry = np.zeros((), layout)
        for key, value in {"opcode": opcode, "nsid": namespace, **fields}.items():
            entry[key] = value
        return entry.tobytes()

    def append(self, rows: np.ndarray, **fields: int) -> Reply:
        """rows [heads, tokens, d] float16, or uint8 [heads, tokens, row_bytes] with `type`."""
        heads, tokens, d = rows.shape
        data = np.ascontiguousarray(rows).reshape(-1).view(np.uint8)
        session = fields.setdefault("session", 1)
        values = {
            "heads": heads,
            "tokens": tokens,
            "row_bytes": d * rows.itemsize,
            "sequence": self.sequence.get(session, 0),
            "crc32c": crc32c(data),
        }
        reply = self.raw(self.entry("append", **(values | fields)), data)
        if reply.status == abi.NvmeStatus.SUCCESS:
            self.sequence[session] = self.sequence.get(session, 0) + 1
        return reply

    def store(self, k: np.ndarray, v: np.ndarray, **fields: int) -> None:
        """All of k and v [heads, tokens, d], in one command each."""
        assert self.append(k, kind=abi.KvKind.KEYS, **fields).status == abi.NvmeStatus.SUCCESS
        assert self.append(v, kind=abi.KvKind.VALUES, **fields).status == abi.NvmeStatus.SUCCESS

    def flush(self) -> Reply:
        return self.raw(self.entry("flush"))

    def fork(self, session: int, target: int, tokens: int) -> Reply:
        reply = self.raw(self.entry("fork", session=session, target=target, tokens=tokens))
        if reply.status == abi.NvmeStatus.SUCCESS:
            self.sequence[target] = 0
        return reply

    def trim(self, session: int = 1, from_token: int = 0, name: str = "trim") -> Reply:
        reply = self.raw(self.entry(name, session=session, from_token=from_token))
        if reply.status == abi.NvmeStatus.SUCCESS and from_token == 0:
            self.sequence[session] = 0
        return reply

    def remove(self, tokens: int, before: int, session: int = 1, layers: int = 0, group: int = 32) -> Reply:
        entry = self.entry("remove", session=session, first_token=group, tokens=tokens, before=before, layers=layers)
        return self.raw(entry)

    def erase(self, session: int = 1, from_token: int = 0) -> Reply:
        return self.trim(session, from_token, "erase")

    def submit(
        self,
        q: np.ndarray,
        tokens: int,
        valid: np.ndarray | None = None,
        extra: np.ndarray | None = None,
        **fields: int,
    ) -> Reply:
        """q [heads, g, d] float16; valid bool [tokens]; extra: bytes behind both."""
        heads, group, d = q.shape
        data = np.ascontiguousarray(q).reshape(-1).view(np.uint8)
        if valid is not None:
            beats = -(-tokens // abi.BEAT_BITS)
            packed = np.packbits(valid, bitorder="little")
            data = np.concatenate([data, packed, np.zeros(beats * 64 - packed.size, np.uint8)])
        if extra is not None:
            data = np.concatenate([data, extra])
        values = {
            "session": 1,
            "heads": heads,
            "group": group,
            "tokens": tokens,
            "has_valid": valid is not None,
            "crc32c": crc32c(data),
            "scale_log2e": golden.scale_bits(None, d),
        }
        return self.raw(self.entry("submit", **(values | fields)), data)

    def fetch(self, ticket: int, data_bytes: int) -> Reply:
        return self.raw(self.entry("fetch", ticket=ticket, data_bytes=data_bytes))

    def attend(self, q: np.ndarray, tokens: int, valid: np.ndarray | None = None, **fields: int) -> Reply:
        """Submit and fetch; the submit must succeed."""
        ticket = self.submit(q, tokens, valid, **fields)
        assert ticket.status == abi.NvmeStatus.SUCCESS
        return self.fetch(ticket.result, result_bytes(q))


def check_attention(reply: Reply, q: np.ndarray, k: np.ndarray, v: np.ndarray, valid: np.ndarray | None = None) -> None:
    """The reply holds exactly what the golden model gives for every head."""
    assert reply.status == abi.NvmeStatus.SUCCESS
    heads, _, d = q.shape
    records, out = split_result(reply.data, q, np.uint16)
    packed = None if valid is None else np.packbits(valid, bitorder="little")
    for head in range(heads):
        want = attention(q[head], k[head], v[head], scale_log2e=golden.scale_bits(None, d), valid=packed)
        assert want.status == 0
        np.testing.assert_array_equal(out[head], want.out.view(np.uint16))
        np.testing.assert_array_equal(records["max"][head], want.max)
        np.testing.assert_array_equal(records["sum"][head], want.sum)


@pytest.fixture
def check() -> Callable[..., None]:
    return check_attention


@pytest.fixture
def make_drive(tmp_path: Path) -> Callable[..., DriveHost]:
    """Opens drives on new files: make_drive(engine="fast", capacity_bytes=...)."""
    count = 0

    def make(path: Path | None = None, **options: object) -> DriveHost:
        nonlocal count
        count += 1
        return DriveHost(path or tmp_path / f"{count}.kv", **options)

    return make


@pytest.fixture(params=["avx512_vnni", "avx512", "avx2", "scalar"])
def one_isa(
    request: pytest.FixtureRequest, make_drive: Callable[..., DriveHost], monkeypatch: pytest.MonkeyPatch
) -> Callable[..., DriveHost]:
    """Opens drives whose engine uses one instruction set. Skips if the processor lacks it."""
    monkeypatch.setenv("KVDRIVE_ISA", request.param)
    try:
        Engine("fast", threads=1)
    except RuntimeError as error:
        pytest.skip(str(error))
    return make_drive


@pytest.fixture
def memory_folder() -> Iterator[Path]:
    """A folder in memory if there is such a file system, because some tests would wait for the disk."""
    shared = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=shared if shared.is_dir() else None) as path:
        yield Path(path)


@pytest.fixture
def host(make_drive: Callable[..., DriveHost]) -> DriveHost:
    return make_drive()
