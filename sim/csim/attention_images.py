"""Attention jobs as memory images: arrays at shuffled places between guards of random bytes, and the golden outcome."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

import golden
from csim.vectors import Case
from golden.abi import ABI_VERSION, BEAT_BYTES, GROUP_SIZES, AttentionJob, AttentionResult, Mode

Memory = NDArray[np.uint8]
SCORES_PER_BEAT = 16


@dataclass
class Problem:
    """One KV head: q [g, d], k and v [s, d] binary16, optional mask bool [s], inline scores [g, t] and v [t, d]."""

    q: NDArray[np.float16]
    k: NDArray[np.float16]
    v: NDArray[np.float16]
    valid: NDArray[np.bool_] | None = None
    inline_scores: NDArray[np.int32] | None = None
    inline_v: NDArray[np.float16] | None = None
    scale: int | None = None

    @property
    def sizes(self) -> tuple[int, int, int, int]:
        """g, d, s, t."""
        return (*self.q.shape, len(self.k), 0 if self.inline_v is None else len(self.inline_v))

    @property
    def scale_log2e(self) -> int:
        return golden.scale_bits(None, self.q.shape[1]) if self.scale is None else self.scale

    @property
    def bitmap(self) -> NDArray[np.uint8] | None:
        """The mask in whole bytes."""
        return None if self.valid is None else np.packbits(self.valid, bitorder="little")


@dataclass
class Image:
    """A job under construction: descriptor fields and arrays by field name. `kind`: the descriptor's type."""

    fields: dict[str, int]
    arrays: dict[str, NDArray[np.generic]] = field(default_factory=dict)
    kind: np.dtype[np.void] = AttentionJob

    def build(self, rng: np.random.Generator) -> tuple[Memory, int]:
        """The memory and the byte address of the job. Bytes outside of arrays and in their padding are random."""
        blocks = {name: np.frombuffer(array.tobytes(), np.uint8) for name, array in self.arrays.items()}
        names = list(rng.permutation(["job", *blocks]))
        places, end = {}, 0
        for name in names:
            size = self.kind.itemsize if name == "job" else blocks[name].size
            places[name] = end + BEAT_BYTES * int(rng.integers(1, 4))
            end = places[name] + -(-size // BEAT_BYTES) * BEAT_BYTES
        memory = rng.integers(0, 256, end + BEAT_BYTES, np.uint8)
        for name, block in blocks.items():
            memory[places[name] : places[name] + block.size] = block
        job_address = places.pop("job")
        job = np.zeros((), self.kind)
        for name, value in (self.fields | places).items():
            job[name] = value
        put_job(memory, job_address, job)
        return memory, job_address


def put_job(memory: Memory, address: int, job: NDArray[np.void]) -> None:
    """Write a descriptor."""
    memory[address : address + job.itemsize] = np.frombuffer(job.tobytes(), np.uint8)


def get_job(memory: Memory, address: int, kind: np.dtype[np.void] = AttentionJob) -> NDArray[np.void]:
    """A copy of the descriptor, as a scalar array."""
    return memory[address : address + kind.itemsize].copy().view(kind)[0]


def to_case(
    label: str,
    memory: Memory,
    job_address: int,
    top: int | None = None,
    extra_status: int = 0,
    *,
    exact: bool = False,
) -> Case:
    """The case with golden's status word and memory.

    `top` is the group of the kernel that runs it, by default the job's. `extra_status`: bits that only this kernel
    sets. `exact`: True for the kernel without SparF. The job's address is a signed integer with the same bits.
    """
    expected = memory.copy()
    modes = golden.job.EXACT_MODES if exact else golden.job.ALL_MODES
    status = golden.job.run(expected, job_address, modes) | extra_status
    if top is None:
        group = int(get_job(memory, job_address)["group"]) if job_address + AttentionJob.itemsize <= memory.size else 1
        top = group if group in GROUP_SIZES else 1
    signed = job_address - 2**64 if job_address >= 2**63 else job_address
    head = [("label", label), ("top", top), ("exact", int(exact)), ("job", signed), ("status", status)]
    return [*head, ("memory", memory), ("expected", expected)]


def attend_image(problem: Problem, mode: Mode, rng: np.random.Generator) -> Image:
    """An EXACT or PARTIAL job."""
    image = _image(problem, mode, rng)
    g, d, _, _ = problem.sizes
    image.arrays["out"] = rng.integers(0, 256, g * d * (4 if mode == Mode.PARTIAL else 2), np.uint8)
    image.arrays["result"] = rng.integers(0, 256, AttentionResult.itemsize, np.uint8)
    image.arrays |= {"k": problem.k, "v": problem.v} | _inline_v(problem)
    return image


def rows_image(problem: Problem, r: int, rng: np.random.Generator) -> Image:
    """A SPARF_ROWS job. It does not look at tokens, inline and mask."""
    image = Image(_fields(problem, Mode.SPARF_ROWS) | {"r": r}, {"q": problem.q})
    image.arrays["rows"] = rng.integers(0, 256, BEAT_BYTES, np.uint8)
    image.arrays["result"] = rng.integers(0, 256, AttentionResult.itemsize, np.uint8)
    return image


def tokens_image(
    problem: Problem,
    rows: NDArray[np.uint8],
    scale: NDArray[np.uint32],
    k_top: int,
    local: int,
    rng: np.random.Generator,
) -> Image:
    """A SPARF_TOKENS job after a SPARF_ROWS job that gave `rows` and `scale`."""
    image = _image(problem, Mode.SPARF_TOKENS, rng)
    chosen = np.flatnonzero(np.unpackbits(rows, bitorder="little"))
    s = len(problem.k)
    image.fields |= {"r": chosen.size, "k_top": k_top, "local": local}
    columns = golden.block_columns(np.ascontiguousarray(problem.k[:, chosen])).view(np.uint16).copy()
    if s % 32:  # lanes beyond the last token hold any pattern
        columns[-1, :, s % 32 :] = rng.integers(0, 2**16, columns[-1, :, s % 32 :].shape)
    image.arrays |= {"k": columns, "rows": rows, "out": rng.integers(0, 256, golden.bitmap.beats(s) * 64, np.uint8)}
    image.arrays["result"] = _record(rng, "scale", scale)
    return image


def chosen_image(
    problem: Problem, v_sum: NDArray[np.int64], count: int, alpha: NDArray[np.uint32], rng: np.random.Generator
) -> Image:
    """A SPARF_ATTEND job; k and v of `problem` are the chosen tokens."""
    image = _image(problem, Mode.SPARF_ATTEND, rng)
    g, d, _, _ = problem.sizes
    image.fields["count"] = count
    image.arrays |= {"k": problem.k, "v": problem.v, "v_sum": v_sum} | _inline_v(problem)
    image.arrays["out"] = rng.integers(0, 256, g * d * 2, np.uint8)
    image.arrays["result"] = _record(rng, "alpha", alpha)
    return image


def _fields(problem: Problem, mode: Mode) -> dict[str, int]:
    g, d, s, t = problem.sizes
    return {
        "version": ABI_VERSION,
        "mode": int(mode),
        "group": g,
        "head_dim": d,
        "tokens": s,
        "inline_tokens": t,
        "scale_log2e": problem.scale_log2e,
    }


def _image(problem: Problem, mode: Mode, rng: np.random.Generator) -> Image:
    """The parts that all attending jobs share: q, mask and inline scores."""
    image = Image(_fields(problem, mode), {"q": problem.q})
    if problem.bitmap is not None:
        beats = golden.bitmap.beats(len(problem.k))
        mask = rng.integers(0, 256, beats * BEAT_BYTES, np.uint8)
        flags = np.unpackbits(mask, bitorder="little")
        flags[: len(problem.valid)] = problem.valid
        image.arrays["valid"] = np.packbits(flags, bitorder="little")
    if problem.inline_scores is not None:
        g, t = problem.inline_scores.shape
        padded = rng.integers(-(2**31), 2**31, (g, -(-t // SCORES_PER_BEAT) * SCORES_PER_BEAT)).astype(np.int32)
        padded[:, :t] = problem.inline_scores
        image.arrays["inline_scores"] = padded
    return image


def _inline_v(problem: Problem) -> dict[str, NDArray[np.generic]]:
    return {} if problem.inline_v is None else {"inline_v": problem.inline_v}


def _record(rng: np.random.Generator, name: str, values: NDArray[np.uint32]) -> NDArray[np.void]:
    """A record of random bytes, except the first heads of one field."""
    record = rng.integers(0, 256, AttentionResult.itemsize, np.uint8).view(AttentionResult)
    record[name][0, : values.size] = values
    return record
