"""Cases of the kernels attention_codes against golden.code_job: every shape, codes of every value, refused jobs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

import numpy as np

import golden
from csim.attention import REFUSALS, TAILS, add_inline, make_problem, spoil
from csim.attention_images import Memory, Problem, attend_image, get_job, put_job
from csim.vectors import Case
from golden import code_job
from golden.abi import BEAT_BYTES, AttentionJob, Mode, Status
from golden.formats import Rows, encode_rows

__all__ = ["HEAD_DIMS", "KERNELS", "NAME", "REFUSALS", "Coded", "bits_of", "cases"]

NAME = "attention_codes"

KERNELS = ((8, 1), (8, 4), (4, 1), (4, 4))  # bits of a code, query heads
HEAD_DIMS = {8: (64, 128, 192, 256), 4: (64, 128, 256)}
LENGTHS = (1, 2, 15, 33, 127, 513, 1100)
MODES = (Mode.EXACT, Mode.PARTIAL)
_LARGEST_STEP8 = 33


def bits_of(top: str) -> int:
    """Bits of the codes that a top of attention_codes reads, by its name."""
    return 4 if top.startswith("attention_codes4") else 8


@dataclass
class Coded:
    """A problem, and its K and V as stored rows of codes of `bits` bits. The problem's own K and V do not count."""

    problem: Problem
    bits: int
    k: Rows
    v: Rows

    @classmethod
    def of(cls, problem: Problem, bits: int) -> Coded:
        """The problem with its K and V rounded."""
        return cls(problem, bits, *(encode_rows(rows.view(np.uint16), bits) for rows in (problem.k, problem.v)))

    def build(self, mode: Mode, rng: np.random.Generator) -> tuple[Memory, int]:
        """The memory and the byte address of the job. Rows of masked tokens hold any bytes."""
        image = attend_image(self.problem, mode, rng)
        image.fields["r"] = self.bits
        for name, rows in (("k", self.k), ("v", self.v)):
            codes, steps = code_job.to_job_order(rows, self.problem.q.shape[1], self.bits)
            if self.problem.valid is not None:
                for array in (codes, steps):
                    array[~self.problem.valid] = rng.integers(0, 256, array[~self.problem.valid].shape, np.uint8)
            image.arrays |= {name: codes, code_job.STEPS[name]: steps}
        return image.build(rng)


def cases(rng: np.random.Generator, small: bool) -> Iterator[Case]:
    """All shapes in both modes; codes and steps of every value; rows that are not valid; refused jobs."""
    for bits, g in KERNELS:
        yield from _shapes(rng, bits, g, small)
        yield from _data(rng, bits, g)
        yield from _not_finite(rng, bits, g)
        yield from _without_tokens(rng, bits, g)
        yield from _refused(rng, bits, g)


def _case(label: str, memory: Memory, address: int, bits: int, top: int) -> Case:
    """The case with golden's status word and memory. `bits`, `top`: of a code and the group of the kernel that runs."""
    expected = memory.copy()
    status = code_job.run(expected, address, bits)
    readable = address % BEAT_BYTES == 0 and 0 <= address <= memory.size - AttentionJob.itemsize
    group = int(get_job(memory, address)["group"]) if readable else top
    if group != top and group in golden.abi.GROUP_SIZES:  # golden has kernels of every group
        known = int(get_job(memory, address)["mode"]) in MODES
        expected = memory.copy()
        status = _refused_status(status) | (Status.BAD_GROUP if known else 0)
    signed = address - 2**64 if address >= 2**63 else address
    head = [("label", f"{bits} bits: {label}"), ("bits", bits), ("top", top), ("job", signed), ("status", int(status))]
    return [*head, ("memory", memory), ("expected", expected)]


def _refused_status(status: int) -> Status:
    return Status(status & REFUSALS)


def _normal(rng: np.random.Generator, bits: int, g: int, d: int, s: int, masked: bool, has_inline: bool) -> Coded:
    coded = Coded.of(make_problem(rng, g, d, s, False, has_inline), bits)
    if masked:
        coded.problem.valid = rng.random(s) < rng.choice([0.1, 0.5, 0.95])
        coded.problem.valid[rng.integers(s)] = True
    return coded


def _rows8(codes: np.ndarray, steps: np.ndarray) -> Rows:
    """Rows of codes int [s, d] and steps [s, d / 32]."""
    return np.concatenate([codes.astype(np.int8).view(np.uint8), steps.astype(np.uint8)], axis=1)


def _rows4(codes: np.ndarray, steps: np.ndarray, zeros: np.ndarray) -> Rows:
    """Rows of codes [s, d], steps and zeros [s, d / 32]."""
    s, d = codes.shape
    parts = codes.astype(np.uint8).reshape(s, d // 32, 2, 16)
    pairs = (parts[:, :, 0] | parts[:, :, 1] << 4).reshape(s, d // 2)
    shared = np.stack([steps.astype(np.uint8), zeros.astype(np.int8).view(np.uint8)], axis=2).reshape(s, d // 16)
    return np.concatenate([pairs, shared], axis=1)


def _rows_of(bits: int, s: int, d: int, code: int, step: int, zero: int = 0) -> Rows:
    """Rows of one code, step and zero."""
    codes, steps = np.full((s, d), code), np.full((s, d // 32), step)
    return _rows8(codes, steps) if bits == 8 else _rows4(codes, steps, np.full(steps.shape, zero))


def _any_rows(rng: np.random.Generator, bits: int, s: int, d: int) -> Rows:
    """Valid rows with codes and steps of every value."""
    parts = (s, d // 32)
    if bits == 8:
        return _rows8(rng.integers(-127, 128, (s, d)), rng.integers(0, _LARGEST_STEP8 + 1, parts))
    steps, zeros, codes = rng.integers(0, 256, parts), rng.integers(-128, 113, parts), rng.integers(0, 16, (s, d))
    zeros[steps >= 216] = -8  # products with larger steps are binary16 numbers only if they are small
    codes = np.where(np.repeat(steps, 32, axis=1) >= 248, 4 + codes // 2, codes)
    return _rows4(codes, steps, zeros)


# Code, step and zero of the largest numbers of either sign.
_EXTREMES = {
    8: ((127, _LARGEST_STEP8), (-127, _LARGEST_STEP8)),
    4: ((15, 249, -8), (1, 249, -8), (15, 215, 112), (0, 215, -128), (15, 223, 53)),
}
# The same of numbers that no row may hold.
_INVALID = {
    8: ((-128, 3), (0, _LARGEST_STEP8 + 1), (0, 255)),
    4: ((15, 0, 113), (15, 255, -8), (0, 248, -8), (15, 223, 54)),
}
_HARMLESS4 = 8  # the code of the other numbers of such a part


def _shapes(rng: np.random.Generator, bits: int, g: int, small: bool) -> Iterator[Case]:
    lengths = (1, 33, 513) if small else LENGTHS
    for i, (d, s) in enumerate(product(HEAD_DIMS[bits], lengths)):
        for masked, has_inline in list(product((False, True), repeat=2))[i % 2 :: 2]:
            coded = _normal(rng, bits, g, d, s, masked, has_inline)
            for mode in MODES:
                label = f"{mode.name} g {g} d {d} s {s} masked {masked} inline {coded.problem.sizes[3]}"
                yield _case(label, *coded.build(mode, rng), bits, g)


def _data(rng: np.random.Generator, bits: int, g: int) -> Iterator[Case]:
    """Codes and steps of every value, extreme ones, all exponents of q, extreme inline tokens and scales."""
    for d in (64, 128, 256):
        coded = _normal(rng, bits, g, d, 40, False, True)
        coded.k, coded.v = (_any_rows(rng, bits, 40, d) for _ in range(2))
        yield _case(f"any codes: g {g} d {d}", *coded.build(Mode.PARTIAL, rng), bits, g)
        exponents = rng.integers(0, 31, (g, d)).astype(np.uint16) << 10
        signs = rng.integers(0, 2**16, (g, d), np.uint16) & 0x83FF
        coded.problem.q = (exponents | signs).view(np.float16)
        coded.problem.scale = 0x20000000  # small, so that scores differ but do not saturate
        yield _case(f"all exponents of q: g {g} d {d}", *coded.build(Mode.EXACT, rng), bits, g)
        for extreme in _EXTREMES[bits]:
            coded.problem.q = np.full((g, d), 65504, np.float16)
            coded.k = coded.v = _rows_of(bits, 40, d, *extreme)
            coded.problem.scale = 1  # the smallest subnormal
            yield _case(f"largest sums of {extreme}: g {g} d {d}", *coded.build(Mode.EXACT, rng), bits, g)
        steps = np.arange(40 * d // 32).reshape(40, -1) * 7
        if bits == 8:
            coded.k = _rows8(np.full((40, d), -127), steps % (_LARGEST_STEP8 + 1))
        else:
            coded.k = _rows4(np.full((40, d), 9), steps % 256, np.full(steps.shape, -8))
        coded.v = coded.k[::-1].copy()
        coded.problem.q = rng.integers(1, 40, (g, d)).astype(np.uint16).view(np.float16)
        coded.problem.scale = None
        coded.problem.inline_scores[:, 0], coded.problem.inline_scores[:, -1] = -(2**31), 2**31 - 1
        yield _case(
            f"each step, subnormal q, extreme inline tokens: g {g} d {d}", *coded.build(Mode.EXACT, rng), bits, g
        )
        coded.problem.q = np.zeros((g, d), np.float16)
        yield _case(f"zero query: g {g} d {d}", *coded.build(Mode.PARTIAL, rng), bits, g)


def _not_finite(rng: np.random.Generator, bits: int, g: int) -> Iterator[Case]:
    """Inf and NaN in q and in the inline tokens' V; rows of K and V that are not valid, attended to and masked."""
    for d in HEAD_DIMS[bits][:2]:
        for name in ("q", "inline_v"):
            for poison in (np.inf, np.nan):
                coded = _normal(rng, bits, g, d, 20, False, True)
                array = getattr(coded.problem, name)
                array[rng.integers(len(array)), rng.integers(d)] = poison
                yield _case(f"{poison} in {name}: g {g} d {d}", *coded.build(Mode.EXACT, rng), bits, g)
        for name, invalid in product("kv", _INVALID[bits]):
            coded = _normal(rng, bits, g, d, 20, False, False)
            row = int(rng.integers(20))
            getattr(coded, name)[row] = _invalid_row(rng, bits, d, *invalid)
            yield _case(f"{invalid} in {name}: g {g} d {d}", *coded.build(Mode.EXACT, rng), bits, g)
            coded.problem.valid = np.arange(20) != row
            yield _case(f"masked {invalid} in {name}: g {g} d {d}", *coded.build(Mode.PARTIAL, rng), bits, g)


def _invalid_row(rng: np.random.Generator, bits: int, d: int, code: int, step: int, zero: int = 0) -> Rows:
    """A row with one number, or one step, that is not valid."""
    codes, steps, place = np.zeros((1, d), np.int64), np.zeros((1, d // 32), np.int64), int(rng.integers(d))
    zeros = np.zeros_like(steps)
    codes[0, place // 32 * 32 :][:32] = 0 if bits == 8 else _HARMLESS4
    codes[0, place] = code
    steps[0, place // 32], zeros[0, place // 32] = step, zero
    return _rows8(codes, steps) if bits == 8 else _rows4(codes, steps, zeros)


def _without_tokens(rng: np.random.Generator, bits: int, g: int) -> Iterator[Case]:
    """All tokens masked, with and without inline tokens, and only inline tokens."""
    for has_inline in (False, True):
        coded = _normal(rng, bits, g, 128, 33, False, has_inline)
        coded.problem.valid = np.zeros(33, np.bool_)
        yield _case(f"all masked, inline {has_inline}: g {g}", *coded.build(Mode.EXACT, rng), bits, g)
    for d, t in product(HEAD_DIMS[bits], TAILS[::2]):
        none = np.zeros((0, d), np.float16)
        problem = Problem(rng.standard_normal((g, d)).astype(np.float16), none, none)
        add_inline(rng, problem, t)
        yield _case(f"inline of {t} alone: g {g} d {d}", *Coded.of(problem, bits).build(Mode.PARTIAL, rng), bits, g)


def _refused(rng: np.random.Generator, bits: int, g: int) -> Iterator[Case]:
    """Jobs of both modes, spoiled in each way. A spoiled job that is still valid must run."""
    d = HEAD_DIMS[bits][0]
    for mode in MODES:
        memory, address = _normal(rng, bits, g, d, 40, True, True).build(mode, rng)
        for label, spoiled, place in spoil(rng, memory, address):
            yield _case(f"refused {mode.name}: {label}", spoiled, place, bits, g)
        flaws = [("head_dim", other) for other in (32, 64, 96, 160, 192, 224) if other not in HEAD_DIMS[bits]]
        for name, value in [*flaws, ("r", 12 - bits)]:
            job = get_job(memory, address)
            job[name] = value
            spoiled = memory.copy()
            put_job(spoiled, address, job)
            yield _case(f"refused {mode.name}: {name} {value}", spoiled, address, bits, g)
        others = [other for width, other in KERNELS if width == bits and other != g]
        for other in others:
            yield _case("kernel of another group", memory, address, bits, other)
