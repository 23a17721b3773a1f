"""Device time of attention and of appends: asked of the drive library, which executes the commands without contents.

One command over a layer of one sequence is executed; a drive takes its commands one after the other.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache

import numpy as np

from kvdrive import abi
from kvdrive._native import Drive
from kvdrive.kernels.native import scale_bits
from kvdrive.nvme import commands
from kvdrive.nvme.commands import MAX_TOKENS_PER_APPEND
from kvdrive.nvme.completions import decode
from kvdrive.nvme.rows import bytes_of_row
from kvdrive.nvme.wire import RowFormat
from kvdrive.perf.hardware import AttendingDrive
from kvdrive.perf.workloads import QueuedDrive

_SESSION = 1
_SEED = 1
_HISTORY = 1024  # tokens before those whose append is timed
_RUN = 256  # similar tokens in a row, where SparF's choice lies together


def attention_seconds(
    drive: AttendingDrive,
    heads: float,
    tokens: int,
    head_dim: int,
    group: int,
    stored_as: RowFormat = RowFormat.BINARY16,
) -> float:
    """Seconds that the drive takes to attend to `tokens` tokens of `heads` KV heads, `group` queries each.

    Fractions of heads are what several sequences leave for one drive; times between two counts are interpolated.
    A drive without a preset takes the time that its rate says.
    """
    if not drive.preset:
        return 2 * heads * tokens * bytes_of_row(stored_as, head_dim) / drive.rate.value
    low = max(1, int(heads))
    at_low = _executed(drive.preset, low, tokens, head_dim, group, stored_as)
    if heads <= low:
        return at_low * heads / low
    return at_low + (heads - low) * (_executed(drive.preset, low + 1, tokens, head_dim, group, stored_as) - at_low)


def append_seconds(drive: AttendingDrive, heads: float, tokens: int, head_dim: int) -> float:
    """Seconds until K and V of `tokens` more tokens of one sequence and layer are on flash, `heads` KV heads.

    Rows that do not fill a page are programmed with the rest of it empty, and again with those that follow.
    """
    if not drive.preset:
        return 4 * heads * tokens * head_dim / drive.write.value
    low = max(1, int(heads))
    at_low = _appended(drive.preset, low, tokens, head_dim)
    if heads <= low:
        return at_low * heads / low
    return at_low + (heads - low) * (_appended(drive.preset, low + 1, tokens, head_dim) - at_low)


@lru_cache(maxsize=4096)
def _executed(preset: str, heads: int, tokens: int, head_dim: int, group: int, stored_as: RowFormat) -> float:
    if tokens > abi.MAX_TOKENS:
        return tokens / abi.MAX_TOKENS * _executed(preset, heads, abi.MAX_TOKENS, head_dim, group, stored_as)
    rows = {"type": stored_as, "row_bytes": bytes_of_row(stored_as, head_dim)}
    with _empty(preset, 4 * heads * tokens * head_dim) as drive:
        _store(drive, heads, 0, tokens, rows)
        before = drive.flash_stats()["device_ns"]
        q = np.ones((heads, group, head_dim), np.float16)
        command = commands.attn_submit(_SESSION, 0, 0, q, tokens, scale_bits(None, head_dim))
        reply = drive.submit(command.entry, command.data)
        decode(*reply).check(command.opcode)
        return float(drive.flash_stats()["device_ns"] - before) / 1e9


@lru_cache(maxsize=256)
def _appended(preset: str, heads: int, tokens: int, head_dim: int) -> float:
    rows = {"type": RowFormat.BINARY16, "row_bytes": bytes_of_row(RowFormat.BINARY16, head_dim)}
    with _empty(preset, 4 * heads * (_HISTORY + tokens) * head_dim) as drive:
        sequence = _store(drive, heads, 0, _HISTORY, rows)
        before = drive.flash_stats()["device_ns"]
        _store(drive, heads, _HISTORY, tokens, rows, sequence)
        return float(drive.flash_stats()["device_ns"] - before) / 1e9


@contextmanager
def _empty(preset: str, size: int) -> Iterator[Drive]:
    """A drive without contents, with room for `size` bytes."""
    with tempfile.TemporaryDirectory(prefix="kvdrive-") as folder:
        yield Drive(f"{folder}/drive.kv", "fast", 1, 3 * size + (1 << 26), preset=preset, payload=False)


def _store(drive: Drive, heads: int, begin: int, tokens: int, rows: dict[str, int], sequence: int = 0) -> int:
    """Append K and V of `tokens` tokens behind `begin`, and flush. Returns the number of the session's next append."""
    for kind in abi.KvKind:
        for first in range(begin, begin + tokens, MAX_TOKENS_PER_APPEND):
            part = min(MAX_TOKENS_PER_APPEND, begin + tokens - first)
            _submit(drive, _append(kind, heads, first, part, rows | {"sequence": sequence}))
            sequence += 1
    _submit(drive, commands.flush().entry)
    return sequence


def _append(kind: abi.KvKind, heads: int, first: int, tokens: int, others: dict[str, int]) -> bytes:
    entry = np.zeros((), abi.KvAppend)
    fields = {
        "opcode": abi.Opcode.KV_APPEND,
        "nsid": abi.Namespace.NVM,
        "session": _SESSION,
        "heads": heads,
        "first_token": first,
        "tokens": tokens,
        "kind": kind,
        **others,
    }
    for name, value in fields.items():
        entry[name] = value
    return entry.tobytes()


def _submit(drive: Drive, entry: bytes) -> None:
    decode(*drive.submit(entry, None)).check(entry[0])


@lru_cache(maxsize=256)
def sparse_share(preset: str, heads: int, tokens: int, head_dim: int, ratio: int, *, in_runs: bool) -> float:
    """Device time of SparF over that of exact attention, both executed with contents, one query per head.

    `in_runs`: K of neighbouring tokens is similar, so that chosen tokens lie together; otherwise they lie anywhere.
    """
    rng = np.random.default_rng(_SEED)
    k, v = (rng.standard_normal((heads, tokens, head_dim), np.float32) for _ in range(2))
    if in_runs:
        runs = rng.standard_normal((heads, -(-tokens // _RUN), head_dim), np.float32)
        k = np.repeat(runs, _RUN, axis=1)[:, :tokens] + 0.3 * k
    q = rng.standard_normal((heads, 1, head_dim), np.float32).astype(np.float16)
    with tempfile.TemporaryDirectory(prefix="kvdrive-") as folder:
        drive = Drive(f"{folder}/drive.kv", "fast", 1, 16 * heads * tokens * head_dim + (1 << 26), preset=preset)
        queued = QueuedDrive(drive, 1)
        for number, (kind, rows) in enumerate(zip(abi.KvKind, (k, v), strict=True)):
            options = int(abi.AppendOption.APPEND_SPARSE)
            queued.send(0, commands.kv_append(_SESSION, 0, 0, kind, 0, number, rows.astype(np.float16), options))
        queued.send(0, commands.flush())
        times: list[int] = []
        for r, k_top in ((0, 0), (max(1, head_dim // ratio), max(1, tokens // ratio))):
            before = drive.flash_stats()["device_ns"]
            queued.attend(_SESSION, 0, 0, q, tokens, r, k_top)
            times.append(drive.flash_stats()["device_ns"] - before)
    return times[1] / times[0]
