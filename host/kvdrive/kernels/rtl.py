# SPDX-License-Identifier: Apache-2.0
"""The engine `rtl`: single kernels on their own hardware description, simulated cycle by cycle.

Has the calls of the compiled engines (kvdrive._native.Engine). A kernel's first use compiles it, which needs clang
and Verilator.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from kvdrive import abi
from kvdrive.errors import UnsupportedError
from kvdrive.kernels.job import whole_beats
from kvdrive.tree import use_tools

if TYPE_CHECKING:
    from rtl.library import Model

U8 = NDArray[np.uint8]
U16 = NDArray[np.uint16]
U32 = NDArray[np.uint32]
I32 = NDArray[np.int32]
I64 = NDArray[np.int64]

_BEAT_WORDS = abi.BEAT_BYTES // 4
_FILTERED_WORDS, _REPORT_WORDS = 17, 4  # hls/page_filter/job.hpp: a beat and 16 flags, 128 bits
_WIDE_WORDS = 4  # an accumulator
_ROWS, _COLUMNS, _ACCUMULATE = range(3)  # hls/gemv/plan.hpp


class RtlEngine:
    """Runs kernels in simulation; `cycles` counts those of all jobs so far.

    `latency` of the memory in cycles, which then gives a word in every cycle; negative: one channel of DDR4-2400.
    `attention`: the tops that run attention jobs, without their group size: also `attention_exact`, which has no SparF.
    """

    name = "rtl"

    def __init__(self, latency: float = 30.0, attention: str = "attention") -> None:
        self.cycles = 0
        self._attention = attention
        self._latency = latency
        self._models: dict[str, Model] = {}

    def _model(self, top: str) -> Model:
        """The simulated kernel, compiled at its first use. Raises UnsupportedError where that is not possible."""
        if top not in self._models:
            library, clock_mhz = _library(top)
            from rtl.library import Model

            self._models[top] = Model(library, clock_mhz, self._latency)
        return self._models[top]

    def _run(self, model: Model) -> int:
        """One job; returns the kernel's status word."""
        self.cycles += model.run()
        return model.get("return")

    def attention(self, memory: U8, job: int) -> int:
        return self._job_in_memory(self._attention, ("kv",), memory, job, abi.AttentionJob)

    def attention_codes(self, memory: U8, job: int) -> int:
        """A job over codes of 8 bits, or of 4 if its descriptor says so (docs/reference/jobs.md)."""
        descriptor = memory[job : job + abi.AttentionJob.itemsize]
        whole = descriptor.size == abi.AttentionJob.itemsize
        narrow = whole and int(descriptor.view(abi.AttentionJob)["r"][0]) == 4
        kernel = "attention_codes4" if narrow else "attention_codes"
        return self._job_in_memory(kernel, ("kv", "steps"), memory, job, abi.AttentionJob)

    def group_choice(self, memory: U8, job: int) -> int:
        """The choice of units of a GroupChoiceJob."""
        return self._job_in_memory("group_choice", ("index",), memory, job, abi.GroupChoiceJob)

    def _job_in_memory(
        self, kernel: str, ports: tuple[str, ...], memory: U8, job: int, layout: np.dtype[np.void]
    ) -> int:
        """Run the job at byte `job` of `memory`, in place, on a kernel whose large operands come through `ports`."""
        descriptor = memory[job : job + layout.itemsize]
        whole = descriptor.size == layout.itemsize
        group = int(descriptor.view(layout)["group"][0]) if whole else 0
        # A kernel is built for one group size and refuses jobs with another one.
        model = self._model(f"{kernel}_g{group if group in abi.GROUP_SIZES else 1}")
        model.clear_buffers()
        address = model.add_buffer(memory)
        model.set(**dict.fromkeys((*ports, "io", "out"), address))
        model.set(job=job, memory_beats=memory.size // abi.BEAT_BYTES)
        status = self._run(model)
        memory[:] = model.read_buffer(0, memory.size)
        return status

    def argtopk(self, keys: NDArray[Any], k: int) -> tuple[int, U32, U8]:
        model = self._model("argtopk")
        magnitudes = keys.dtype == np.uint16
        bitmap_bytes = -(-keys.size // abi.BEAT_BITS) * abi.BEAT_BYTES
        model.clear_buffers()
        model.set(
            keys=model.add_buffer(_beats(keys).reshape(-1).view(np.uint8)),
            indices=model.add_buffer(np.zeros(4 * abi.MAX_TOP_K, np.uint8)),
            bitmap=model.add_buffer(np.zeros(bitmap_bytes, np.uint8)),
            n=keys.size,
            k=k,
            key_type=abi.KeyType.MAGNITUDE16 if magnitudes else abi.KeyType.BINARY32,
        )
        status = self._run(model)
        if status:
            return status, np.zeros(0, np.uint32), np.zeros(0, np.uint8)
        return status, model.read_buffer(1, 4 * k).view(np.uint32), model.read_buffer(2, bitmap_bytes)

    def page_filter(
        self, pages: U8, bitmap: U8, rows: int, row_bytes: int, page_bytes: int
    ) -> tuple[int, U8, int, int, U8]:
        model = self._model("page_filter")
        whole = page_bytes > 0 and pages.size % page_bytes == 0  # else 0 pages, which is refused
        model.set(page_count=pages.size // page_bytes if whole else 0)
        model.set(rows=rows, row_bytes=row_bytes, page_bytes=page_bytes)
        model.feed("pages", _beats(pages))
        model.feed("bitmap", _beats(bitmap))
        status = self._run(model)
        filtered, reports = model.words("filtered", _FILTERED_WORDS), model.words("reports", _REPORT_WORDS)
        valid = int((filtered[:, _BEAT_WORDS] & 0x7F).sum())
        kept = np.ascontiguousarray(filtered[:, :_BEAT_WORDS]).reshape(-1).view(np.uint8)[:valid]
        needed = (reports[:, 3] & 1).astype(np.uint8) if status == 0 else np.zeros(0, np.uint8)
        return status, kept, int(reports[-1, 1]), int(reports[-1, 2]), needed

    def gemv_rows(self, q: U16, k: U16) -> tuple[int, U32]:
        return self._dots(_ROWS, q, k, len(k))

    def gemv_columns(self, q: U16, k: U16, tokens: int) -> tuple[int, U32]:
        return self._dots(_COLUMNS, q, k, tokens)

    def gemv_accumulate(self, p: U32, v: U16) -> tuple[int, I64]:
        group, width = len(p), v.shape[1]
        lanes = np.zeros((p.shape[1], _BEAT_WORDS), np.uint32)
        lanes[:, :group] = p.T
        status, words = self._gemv(_ACCUMULATE, group, width, p.shape[1], lanes, _beats(v))
        sums = np.zeros((width // abi.LANES, group, abi.LANES, _WIDE_WORDS), np.uint32)
        if status == 0:
            sums[:] = words.reshape(sums.shape)
        wide = np.ascontiguousarray(sums.transpose(1, 0, 2, 3)).view(np.int64)
        return status, wide.reshape(group, width, 2)

    def _dots(self, mode: int, q: U16, k: U16, tokens: int) -> tuple[int, U32]:
        group, width = q.shape
        heads = np.zeros((max(group, 1), whole_beats(2 * width) // 2), np.uint16)
        heads[:group, :width] = q
        status, words = self._gemv(mode, group, width, tokens, _beats(heads), _beats(k))
        dots = words[:, :group].T if status == 0 else np.zeros((group, tokens), np.uint32)
        return status, np.ascontiguousarray(dots)

    def _gemv(self, mode: int, group: int, width: int, tokens: int, operands: U32, beats: U32) -> tuple[int, U32]:
        """Status and results. A group size that has no top runs on the top for one head, which checks the rest."""
        built = group in abi.GROUP_SIZES
        model = self._model(f"gemv_g{group if built else 1}")
        model.set(mode=mode, width=width, tokens=tokens)
        model.feed("operands", operands)
        model.feed("beats", beats)
        status = self._run(model) | (0 if built else abi.Status.BAD_GROUP)
        return status, model.words("results", _BEAT_WORDS)

    def softmax(self, dense: I32, valid: U8 | None = None, tail: I32 | None = None) -> tuple[int, U32, int, int]:
        model = self._model("softmax")
        tail = np.zeros(0, np.int32) if tail is None else tail
        model.set(dense=dense.size, tail=tail.size, masked=int(valid is not None))
        model.feed("dense_scores", dense.view(np.uint32)[:, None])
        model.feed("tail_scores", tail.view(np.uint32)[:, None])
        model.feed("valid", _beats(np.zeros(0, np.uint8) if valid is None else valid))
        status = self._run(model)
        p = np.zeros(dense.size + tail.size, np.uint32)
        given = model.words("p", 1)[:, 0]
        p[: given.size] = given
        maximum = np.uint32(model.get("max")).view(np.int32)
        return status, p, int(maximum), model.get("sum")


def prepare_drives(group: int) -> None:
    """Compile the kernels that answer `group` query heads per KV head, where they are not yet, for drives opened next.

    Several tokens that ask together, as in a later turn of a conversation, may need further kernels. `group` 0: none is
    compiled. Does nothing if the user's variable KVDRIVE_RTL names a folder of kernels. Raises UnsupportedError.
    """
    use_tools()
    from rtl.build import OUT

    if os.environ.setdefault("KVDRIVE_RTL", str(OUT)) != str(OUT):  # where the drive looks for them
        return
    calls = {min(abi.MAX_GROUP, group - first) for first in range(0, group, abi.MAX_GROUP)}
    for size in sorted({next(built for built in abi.GROUP_SIZES if built >= heads) for heads in calls}):
        _library(f"attention_g{size}")
    if group in abi.GROUP_SIZES:  # the choice of policy groups; of other groups the drive's processor makes it
        _library(f"group_choice_g{group}")


def _library(name: str) -> tuple[Path, float]:
    """The library of a simulated kernel, compiled at its first use, and its clock in MHz. Raises UnsupportedError."""
    use_tools()
    try:
        from openhls.errors import OpenHlsError
        from rtl.kernels import find_tops
        from rtl.library import library_of
    except ImportError as error:
        raise UnsupportedError(f"engine rtl needs the kernels' tools, and {error.name} is missing") from error
    try:
        (top,) = find_tops(name)
        from kvdrive.waiting import waiting_for  # not needed, and not there, where only the bits are compared

        with waiting_for(f"preparing the RTL of {name}; its first compilation takes a minute or more"):
            return library_of(top), top.clock_mhz
    except OpenHlsError as error:
        raise UnsupportedError(f"engine rtl cannot run {name}: {error}") from error


def _beats(values: NDArray[Any]) -> U32:
    """The bytes of an array in whole beats, zero padded: uint32 [beats, 16]."""
    data = np.ascontiguousarray(values).reshape(-1).view(np.uint8)
    padded = np.zeros(whole_beats(data.size), np.uint8)
    padded[: data.size] = data
    return padded.view(np.uint32).reshape(-1, _BEAT_WORDS)
