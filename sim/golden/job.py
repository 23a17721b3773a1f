"""Attention jobs in a memory image, executed by the golden model as an engine executes a descriptor (docs/jobs.md).

`shapes` are those of the engine: a kernel's (the default) or a command's. A command's group may have several records.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from golden import bitmap as bitmaps
from golden import gemv, single
from golden.abi import (
    ABI_VERSION,
    BEAT_BYTES,
    LANES,
    MAX_GROUP,
    MAX_TOKENS,
    MAX_TOP_K,
    AttentionJob,
    AttentionResult,
    Mode,
    Status,
)
from golden.attention import attention
from golden.gemv import KERNEL_SHAPES, Shapes
from golden.sparf import sparf_attend, sparf_rows, sparf_tokens

_SCORES_PER_BEAT = 16
ALL_MODES = frozenset(Mode) - {Mode.GROUPS}  # a command in mode GROUPS is a job that chooses and an EXACT one
EXACT_MODES = frozenset({Mode.EXACT, Mode.PARTIAL})  # modes of an engine without SparF
Memory = NDArray[np.uint8]


class _Array(NamedTuple):
    """One array of a job: its type and shape in memory."""

    dtype: type
    shape: tuple[int, ...]

    @property
    def size(self) -> int:
        """Bytes."""
        size = np.dtype(self.dtype).itemsize
        for n in self.shape:
            size *= n
        return size


def arrays(job: np.void, shapes: Shapes = KERNEL_SHAPES) -> dict[str, _Array]:
    """The arrays that a job of a known mode uses, by descriptor field. Arrays without elements are not in use."""
    mode = Mode(int(job["mode"]))
    g, d, s, t = (int(job[name]) for name in ("group", "head_dim", "tokens", "inline_tokens"))
    query, row = _Array(np.uint16, (g, d)), _Array(np.uint16, (s, d))
    bitmap = _Array(np.uint8, (bitmaps.beats(s) * BEAT_BYTES,))
    records = 1 if shapes is KERNEL_SHAPES else -(-g // MAX_GROUP)
    result = {"result": _Array(np.uint8, (records * AttentionResult.itemsize,))}
    one_beat = _Array(np.uint8, (BEAT_BYTES,))
    inline = {"inline_scores": _Array(np.int32, (g, -(-t // _SCORES_PER_BEAT) * _SCORES_PER_BEAT))}
    valid = {"valid": bitmap} if int(job["valid"]) else {}
    if mode == Mode.SPARF_ROWS:
        used = {"q": query, "rows": one_beat} | result
    elif mode == Mode.SPARF_TOKENS:
        columns = _Array(np.uint16, (-(-s // LANES), int(job["r"]), LANES))
        used = {"q": query, "k": columns, "rows": one_beat, "out": bitmap} | inline | valid | result
    else:
        out = _Array(np.uint32 if mode == Mode.PARTIAL else np.uint16, (g, d))
        used = (
            {"q": query, "k": row, "v": row, "inline_v": _Array(np.uint16, (t, d)), "out": out}
            | inline
            | valid
            | result
        )
        if mode == Mode.SPARF_ATTEND:
            used["v_sum"] = _Array(np.int64, (d,))
    return {name: array for name, array in used.items() if array.size}


def sizes(job: np.void, shapes: Shapes = KERNEL_SHAPES) -> dict[str, int]:
    """Bytes of the arrays that a job of a known mode uses, by descriptor field."""
    return {name: array.size for name, array in arrays(job, shapes).items()}


def check(
    job: np.void,
    memory: Memory,
    job_address: int,
    modes: frozenset[Mode] = ALL_MODES,
    shapes: Shapes = KERNEL_SHAPES,
    sizes_of: Callable[[np.void, Shapes], dict[str, int]] = sizes,
) -> Status:
    """The checks of docs/jobs.md on a descriptor (scalar of abi.AttentionJob) that was read from byte `job_address`.

    `memory` uint8 is the kernel's memory; its content is looked at only when all other checks passed. `modes`: those of
    the engine. `sizes_of`: gives the bytes of each array by descriptor field.
    """
    status = check_address(job_address, AttentionJob.itemsize, memory)
    if int(job["version"]) != ABI_VERSION:
        status |= Status.BAD_VERSION
    if int(job["mode"]) not in modes:
        return status | Status.BAD_MODE
    status |= _check_sizes(job, shapes)
    for name, size in sizes_of(job, shapes).items():
        status |= check_address(int(job[name]), size, memory)
    return status or _check_content(job, memory, shapes)


def run(memory: Memory, job_address: int, modes: frozenset[Mode] = ALL_MODES, shapes: Shapes = KERNEL_SHAPES) -> int:
    """Run the job at byte `job_address` of `memory` (uint8), in place, on an engine with `modes`; returns the status
    word."""
    status = check_address(job_address, AttentionJob.itemsize, memory)
    if status:
        return int(status)
    job = memory[job_address : job_address + AttentionJob.itemsize].copy().view(AttentionJob)[0]
    status = check(job, memory, job_address, modes, shapes)
    if status:
        return int(status)
    return int(_RUN[Mode(int(job["mode"]))](_View(job, memory, shapes)))


def check_address(address: int, size: int, memory: Memory) -> Status:
    """UNALIGNED and OUT_OF_RANGE of `size` bytes at `address`."""
    status = Status.UNALIGNED if address % BEAT_BYTES else Status(0)
    return status | Status.OUT_OF_RANGE if address + size > memory.size else status


def _check_sizes(job: np.void, shapes: Shapes) -> Status:
    """The checks that need only the descriptor's numbers."""
    mode = Mode(int(job["mode"]))
    d, s, t, r = (int(job[name]) for name in ("head_dim", "tokens", "inline_tokens", "r"))
    k_top, local = int(job["k_top"]), int(job["local"])
    status = gemv.check_group(int(job["group"]), shapes) | gemv.check_head_dim(d, shapes)
    if mode in (Mode.SPARF_ROWS, Mode.SPARF_TOKENS) and not 1 <= r <= d:
        status |= Status.BAD_R
    if mode != Mode.SPARF_TOKENS and not _finite(job["scale_log2e"]):
        status |= Status.BAD_SCALE
    if mode == Mode.SPARF_ROWS:
        return status
    status |= gemv.check_tokens(s + t)
    if mode == Mode.SPARF_TOKENS:
        status |= Status(0) if s else Status.BAD_LENGTH
        if not 1 <= k_top <= min(s, MAX_TOP_K) or local > k_top:
            status |= Status.BAD_K
    if mode == Mode.SPARF_ATTEND and not 1 <= int(job["count"]) <= MAX_TOKENS:
        status |= Status.BAD_LENGTH
    return status


def _check_content(job: np.void, memory: Memory, shapes: Shapes) -> Status:
    """The checks of SPARF_TOKENS on the outputs of SPARF_ROWS."""
    if int(job["mode"]) != Mode.SPARF_TOKENS:
        return Status(0)
    view = _View(job, memory, shapes)
    bits = int(bitmaps.to_flags(view.read("rows"), int(job["head_dim"])).sum())
    status = Status(0) if bits == int(job["r"]) else Status.BAD_R
    return status if _finite(view.per_head("scale")) else status | Status.BAD_SCALE


def _finite(patterns: NDArray[np.uint32]) -> bool:
    return bool(single.is_finite(np.asarray(patterns, np.uint32)).all())


class _View:
    """A checked job's arrays and records in memory."""

    def __init__(self, job: np.void, memory: Memory, shapes: Shapes) -> None:
        self.job = job
        self.g = int(job["group"])
        self._memory = memory
        self._arrays = arrays(job, shapes)

    @property
    def records(self) -> NDArray[np.void]:
        """The AttentionResult records, of 8 heads each; assigning to their fields writes memory."""
        return self._bytes("result").view(AttentionResult)

    def per_head(self, name: str) -> NDArray[np.uint32]:
        """A copy of a field of the records: [g]."""
        return self.records[name].reshape(-1)[: self.g].copy()

    def _bytes(self, name: str) -> Memory:
        start = int(self.job[name])
        return self._memory[start : start + self._arrays[name].size]

    def read(self, name: str) -> NDArray[Any]:
        """A copy of an input in its type and shape."""
        return self._bytes(name).copy().view(self._arrays[name].dtype).reshape(self._arrays[name].shape)

    def optional(self, name: str) -> NDArray[Any] | None:
        """The same, or None where the job does not use it."""
        return self.read(name) if name in self._arrays else None

    def read_rows(self, name: str) -> NDArray[np.uint16]:
        """An input [n, d] of binary16 patterns; no rows where the job does not use it."""
        array = self.optional(name)
        return np.zeros((0, int(self.job["head_dim"])), np.uint16) if array is None else array

    def inline_scores(self) -> NDArray[np.int32] | None:
        """int32 [g, inline_tokens] without the padding."""
        padded = self.optional("inline_scores")
        return None if padded is None else padded[:, : int(self.job["inline_tokens"])]

    def write(self, name: str, values: NDArray[Any]) -> None:
        """Store an output."""
        self._bytes(name)[:] = np.ascontiguousarray(values).reshape(-1).view(np.uint8)

    def write_record(self, status: Status, **fields: int | NDArray[Any]) -> None:
        """Store the status and `fields` of the records; per-head fields are padded with zeros to 8 entries each."""
        records = self.records
        records["status"] = status
        for name, value in fields.items():
            if isinstance(value, np.ndarray):
                padded = np.zeros((len(records), MAX_GROUP), value.dtype)
                padded.reshape(-1)[: value.size] = value
                records[name] = padded
            else:
                records[name] = value


def _attend(view: _View) -> Status:
    job = view.job
    result = attention(
        view.read("q"),
        view.read_rows("k"),
        view.read_rows("v"),
        scale_log2e=int(job["scale_log2e"]),
        valid=view.optional("valid"),
        inline_scores=view.inline_scores(),
        inline_v=view.optional("inline_v"),
        partial=int(job["mode"]) == Mode.PARTIAL,
    )
    view.write("out", result.out)
    view.write("result", np.zeros(len(view.records) * AttentionResult.itemsize, np.uint8))
    view.write_record(result.status, max=result.max, sum=result.sum)
    return result.status


def _sparf_rows(view: _View) -> Status:
    result = sparf_rows(view.read("q"), int(view.job["r"]), int(view.job["scale_log2e"]))
    view.write("rows", result.rows)
    view.write_record(result.status, selected=0 if result.status else int(view.job["r"]), scale=result.scale)
    return result.status


def _sparf_tokens(view: _View) -> Status:
    job = view.job
    result = sparf_tokens(
        view.read("q"),
        view.read("k"),
        view.read("rows"),
        int(job["tokens"]),
        int(job["k_top"]),
        int(job["local"]),
        view.per_head("scale"),
        view.optional("valid"),
        view.inline_scores(),
    )
    view.write("out", result.bitmap)
    view.write_record(result.status, selected=result.selected, max=result.max, sum=result.sum, alpha=result.alpha)
    return result.status


def _sparf_attend(view: _View) -> Status:
    job = view.job
    result = sparf_attend(
        view.read("q"),
        view.read_rows("k"),
        view.read_rows("v"),
        view.read("v_sum"),
        int(job["count"]),
        view.per_head("alpha"),
        int(job["scale_log2e"]),
        view.optional("valid"),
        view.inline_scores(),
        view.optional("inline_v"),
    )
    view.write("out", result.out)
    view.write_record(result.status, max=result.max, sum=result.sum)
    return result.status


_RUN: dict[Mode, Callable[[_View], Status]] = {
    Mode.EXACT: _attend,
    Mode.PARTIAL: _attend,
    Mode.SPARF_ROWS: _sparf_rows,
    Mode.SPARF_TOKENS: _sparf_tokens,
    Mode.SPARF_ATTEND: _sparf_attend,
}
