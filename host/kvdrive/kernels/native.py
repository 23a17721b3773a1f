"""Kernels on arrays through the engines with a binary interface: compiled (`hls`, `fast`) or simulated (`rtl`)."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kvdrive import abi
from kvdrive._native import Engine
from kvdrive.kernels.card import CardEngine
from kvdrive.kernels.job import JobMemory, block_columns, pad_scores
from kvdrive.kernels.rtl import RtlEngine

Arrays = dict[str, Any]


def scale_bits(scale: float | None, head_dim: int) -> int:
    """The job's `scale_log2e`: binary32 pattern of scale * log2(e), scale defaulting to 1/sqrt(head_dim)."""
    value = (1 / math.sqrt(head_dim) if scale is None else float(scale)) * math.log2(math.e)
    with np.errstate(over="ignore"):
        return int(np.float32(value).view(np.uint32))


def exact_sum(v: NDArray[np.float16]) -> NDArray[np.int64]:
    """Exact column sums of finite binary16 rows [n, d]: int64 [d], LSB 2^-24."""
    total: NDArray[np.int64] = (v.astype(np.float64) * 2**24).astype(np.int64).sum(axis=0)
    return total


def _ones(bitmap: NDArray[Any]) -> NDArray[np.intp]:
    return np.flatnonzero(np.unpackbits(bitmap.view(np.uint8), bitorder="little"))


class NativeKernels:
    """Runs kernels by name on an engine. Every result holds `status` besides the kernel's own keys."""

    def __init__(self, engine: Engine | RtlEngine | CardEngine) -> None:
        self.engine = engine

    @property
    def cycles(self) -> int | None:
        """Cycles of all calls so far, where the engine counts them."""
        return self.engine.cycles if isinstance(self.engine, RtlEngine) else None

    def argtopk(self, a: Arrays, mode: str) -> Arrays:
        keys = a["keys"]
        if keys.dtype == np.float16:
            keys = keys.view(np.uint16)
        elif keys.dtype == np.float32:
            keys = keys.view(np.uint32)
        status, indices, bitmap = self.engine.argtopk(np.ascontiguousarray(keys), int(a["k_top"]))
        return {"status": status, "indices": indices, "bitmap": bitmap}

    def page_filter(self, a: Arrays, mode: str) -> Arrays:
        status, rows, seen, kept, needed = self.engine.page_filter(
            a["pages"], a["bitmap"], int(a["rows"]), int(a["row_bytes"]), int(a["page_bytes"])
        )
        return {"status": status, "rows": rows, "rows_seen": seen, "rows_kept": kept, "page_needed": needed}

    def gemv(self, a: Arrays, mode: str) -> Arrays:
        if mode == "accumulate":
            status, acc = self.engine.gemv_accumulate(a["p"], a["v"].view(np.uint16))
            return {"status": status, "acc": acc}
        q, k = a["q"].view(np.uint16), a["k"].view(np.uint16)
        if mode == "rows":
            status, dots = self.engine.gemv_rows(q, k)
        else:
            status, dots = self.engine.gemv_columns(q, block_columns(k), k.shape[0])
        return {"status": status, "dots": dots.view(np.float32)}

    def softmax(self, a: Arrays, mode: str) -> Arrays:
        valid = None if a.get("valid") is None else np.packbits(a["valid"], bitorder="little")
        status, p, maximum, total = self.engine.softmax(a["scores"], valid, a.get("tail_scores"))
        return {"status": status, "p": p, "max": maximum, "sum": total}

    def attention(self, a: Arrays, mode: str) -> Arrays:
        if mode == "sparf":
            return self._sparf(a)
        job = self._job(a, abi.Mode.PARTIAL if mode == "partial" else abi.Mode.EXACT, len(a["k"]))
        job.place("k", a["k"])
        job.place("v", a["v"])
        self._place_optional(job, a, a.get("valid"))
        out_type = np.float32 if mode == "partial" else np.float16
        return self._attend(job, a, out_type)

    def _job(self, a: Arrays, mode: abi.Mode, tokens: int, **fields: int) -> JobMemory:
        group, head_dim = a["q"].shape
        scores = a.get("inline_scores")
        fields.setdefault("scale_log2e", scale_bits(a.get("scale"), head_dim))
        inline_tokens = 0 if scores is None or mode == abi.Mode.SPARF_ROWS else scores.shape[1]
        job = JobMemory(mode, group, head_dim, tokens=tokens, inline_tokens=inline_tokens, **fields)
        job.place("q", a["q"])
        return job

    @staticmethod
    def _place_optional(job: JobMemory, a: Arrays, valid: NDArray[np.bool_] | None) -> None:
        if valid is not None:
            job.place("valid", np.packbits(valid, bitorder="little"))
        if a.get("inline_scores") is not None:
            job.place("inline_scores", pad_scores(a["inline_scores"]))
            if a.get("inline_v") is not None:
                job.place("inline_v", a["inline_v"])

    def _attend(self, job: JobMemory, a: Arrays, out_type: type) -> Arrays:
        group, head_dim = a["q"].shape
        job.reserve("out", group * head_dim * np.dtype(out_type).itemsize)
        if not int(job.descriptor["result"]):
            job.reserve("result", -(-group // abi.MAX_GROUP) * abi.AttentionResult.itemsize)
        memory = job.image()
        status = self.engine.attention(memory, 0)
        records: Any = job.read(memory, "result", abi.AttentionResult)
        return {
            "status": status,
            "out": job.read(memory, "out", out_type).reshape(group, head_dim),
            "max": records["max"].reshape(-1)[:group],
            "sum": records["sum"].reshape(-1)[:group],
        }

    def _sparf(self, a: Arrays) -> Arrays:
        """The three jobs of SparF with this function in the role of the drive's firmware (docs/reference/jobs.md)."""
        k, v, valid, inline_v = a["k"], a["v"], a.get("valid"), a.get("inline_v")
        head_dim = a["q"].shape[1]
        values = v if valid is None else v[valid]
        if inline_v is not None:
            values = np.concatenate([values, inline_v])

        status, rows, record = self._choose_rows(a)
        if status:
            return self._failed(a, status)
        chosen_rows = _ones(rows)[:head_dim]
        status, bitmap, record = self._choose_tokens(a, rows, block_columns(k.view(np.uint16)[:, chosen_rows]), record)
        if not status and not np.isfinite(values).all():
            status = int(abi.Status.NON_FINITE)  # the mean of V uses every row
        if status:
            return self._failed(a, status)

        chosen = _ones(bitmap)
        attend = self._job(a, abi.Mode.SPARF_ATTEND, len(chosen), count=len(values))
        attend.place("k", k[chosen])
        attend.place("v", v[chosen])
        attend.place("v_sum", exact_sum(values))
        attend.place("result", record)
        self._place_optional(attend, a, None)
        result = self._attend(attend, a, np.float16)
        if result["status"]:
            return self._failed(a, result["status"])
        alpha = record["alpha"].reshape(-1)[: len(a["q"])].view(np.float32)
        return result | {"rows": rows, "bitmap": bitmap, "alpha": alpha}

    def _choose_rows(self, a: Arrays) -> tuple[int, NDArray[Any], NDArray[Any]]:
        job = self._job(a, abi.Mode.SPARF_ROWS, len(a["k"]), r=int(a["r"]))
        job.reserve("rows", abi.BEAT_BYTES)
        job.reserve("result", -(-len(a["q"]) // abi.MAX_GROUP) * abi.AttentionResult.itemsize)
        memory = job.image()
        status = self.engine.attention(memory, 0)
        return status, job.read(memory, "rows", np.uint8), job.read(memory, "result", abi.AttentionResult)

    def _choose_tokens(
        self, a: Arrays, rows: NDArray[Any], columns: NDArray[np.uint16], record: NDArray[Any]
    ) -> tuple[int, NDArray[Any], NDArray[Any]]:
        tokens = len(a["k"])
        limits = {"r": int(a["r"]), "k_top": int(a["k_top"]), "local": int(a["l"])}
        job = self._job(a, abi.Mode.SPARF_TOKENS, tokens, **limits)
        job.place("rows", rows)
        job.place("k", columns)
        job.place("result", record)
        self._place_optional(job, a, a.get("valid"))
        job.reserve("out", -(-tokens // abi.BEAT_BITS) * abi.BEAT_BYTES)
        memory = job.image()
        status = self.engine.attention(memory, 0)
        return status, job.read(memory, "out", np.uint8), job.read(memory, "result", abi.AttentionResult)

    @staticmethod
    def _failed(a: Arrays, status: int) -> Arrays:
        group, head_dim = a["q"].shape
        return {
            "status": status,
            "out": np.zeros((group, head_dim), np.float16),
            "max": np.zeros(group, np.int32),
            "sum": np.zeros(group, np.uint64),
            "rows": np.zeros(abi.BEAT_BYTES, np.uint8),
            "bitmap": np.zeros(-(-len(a["k"]) // abi.BEAT_BITS) * abi.BEAT_BYTES, np.uint8),
            "alpha": np.zeros(group, np.float32),
        }
