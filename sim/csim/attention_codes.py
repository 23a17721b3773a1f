"""Cases of the kernels attention_codes against golden.code_job: every shape, codes of every value, refused jobs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

import numpy as np

import golden
from csim.attention import REFUSALS, TAILS, add_tail, make_problem, spoil
from csim.attention_images import Memory, Problem, attend_image, get_job, put_job
from csim.vectors import Case
from golden import code_job
from golden.abi import BEAT_BYTES, AttentionJob, Mode, Status
from golden.formats import Rows, encode_rows

__all__ = ["GROUPS", "HEAD_DIMS", "NAME", "REFUSALS", "cases"]

NAME = "attention_codes"

GROUPS = (1, 4)
HEAD_DIMS = (64, 128, 192, 256)
LENGTHS = (1, 2, 15, 33, 127, 513, 1100)
MODES = (Mode.EXACT, Mode.PARTIAL)
_LARGEST_STEP = 33


@dataclass
class Coded:
    """A problem, and its K and V as stored rows. The problem's own K and V do not count."""

    problem: Problem
    k: Rows
    v: Rows

    @classmethod
    def of(cls, problem: Problem) -> Coded:
        """The problem with its K and V rounded."""
        return cls(problem, encode_rows(problem.k.view(np.uint16), 8), encode_rows(problem.v.view(np.uint16), 8))

    def build(self, mode: Mode, rng: np.random.Generator) -> tuple[Memory, int]:
        """The memory and the byte address of the job. Rows of masked tokens hold any bytes."""
        image = attend_image(self.problem, mode, rng)
        for name, rows in (("k", self.k), ("v", self.v)):
            codes, steps = code_job.to_job_order(rows, self.problem.q.shape[1])
            if self.problem.valid is not None:
                for array in (codes, steps):
                    array[~self.problem.valid] = rng.integers(0, 256, array[~self.problem.valid].shape, np.uint8)
            image.arrays |= {name: codes, code_job.STEPS[name]: steps}
        return image.build(rng)


def cases(rng: np.random.Generator, small: bool) -> Iterator[Case]:
    """All shapes in both modes; codes and steps of every value; rows that are not valid; refused jobs."""
    yield from _shapes(rng, small)
    yield from _data(rng)
    yield from _not_finite(rng)
    yield from _without_tokens(rng)
    yield from _refused(rng)


def _case(label: str, memory: Memory, address: int, top: int | None = None) -> Case:
    """The case with golden's status word and memory. `top`: group of the kernel that runs it, by default the job's."""
    expected = memory.copy()
    status = code_job.run(expected, address)
    readable = address % BEAT_BYTES == 0 and 0 <= address <= memory.size - AttentionJob.itemsize
    group = int(get_job(memory, address)["group"]) if readable else 1
    if top is None:
        top = group if group in GROUPS else 1
    if readable and group != top and group in golden.abi.GROUP_SIZES:  # golden has kernels of every group
        expected = memory.copy()
        status = _refused_status(status) | Status.BAD_GROUP
    signed = address - 2**64 if address >= 2**63 else address
    head = [("label", label), ("top", top), ("job", signed), ("status", int(status))]
    return [*head, ("memory", memory), ("expected", expected)]


def _refused_status(status: int) -> Status:
    return Status(status & REFUSALS)


def _normal(rng: np.random.Generator, g: int, d: int, s: int, masked: bool, tailed: bool) -> Coded:
    coded = Coded.of(make_problem(rng, g, d, s, False, tailed))
    if masked:
        coded.problem.valid = rng.random(s) < rng.choice([0.1, 0.5, 0.95])
        coded.problem.valid[rng.integers(s)] = True
    return coded


def _any_rows(rng: np.random.Generator, s: int, d: int) -> Rows:
    """Valid rows with codes and steps of every value."""
    codes = rng.integers(-127, 128, (s, d)).astype(np.int8).view(np.uint8)
    return np.concatenate([codes, rng.integers(0, _LARGEST_STEP + 1, (s, d // 32), np.uint8)], axis=1)


def _shapes(rng: np.random.Generator, small: bool) -> Iterator[Case]:
    lengths = (1, 33, 513) if small else LENGTHS
    for i, (g, d, s) in enumerate(product(GROUPS, HEAD_DIMS, lengths)):
        for masked, tailed in list(product((False, True), repeat=2))[i % 2 :: 2]:
            coded = _normal(rng, g, d, s, masked, tailed)
            for mode in MODES:
                label = f"{mode.name} g {g} d {d} s {s} masked {masked} tail {coded.problem.sizes[3]}"
                yield _case(label, *coded.build(mode, rng))


def _data(rng: np.random.Generator) -> Iterator[Case]:
    """Codes and steps of every value, extreme ones, all exponents of q, extreme tails and scales."""
    for g, d in product(GROUPS, (64, 256)):
        coded = _normal(rng, g, d, 40, False, True)
        coded.k, coded.v = _any_rows(rng, 40, d), _any_rows(rng, 40, d)
        yield _case(f"any codes: g {g} d {d}", *coded.build(Mode.PARTIAL, rng))
        exponents = rng.integers(0, 31, (g, d)).astype(np.uint16) << 10
        signs = rng.integers(0, 2**16, (g, d), np.uint16) & 0x83FF
        coded.problem.q = (exponents | signs).view(np.float16)
        coded.problem.scale = 0x20000000  # small, so that scores differ but do not saturate
        yield _case(f"all exponents of q: g {g} d {d}", *coded.build(Mode.EXACT, rng))
        for sign in (127, 129):
            coded.problem.q = np.full((g, d), 65504, np.float16)
            coded.k[:, :d], coded.k[:, d:] = sign, _LARGEST_STEP
            coded.v[:] = coded.k
            coded.problem.scale = 1  # the smallest subnormal
            yield _case(f"largest sums of {sign}: g {g} d {d}", *coded.build(Mode.EXACT, rng))
        coded.k[:, d:] = np.arange(40)[:, None] % (_LARGEST_STEP + 1)
        coded.v[:, d:] = coded.k[::-1, d:]
        coded.problem.q = rng.integers(1, 40, (g, d)).astype(np.uint16).view(np.float16)
        coded.problem.scale = None
        coded.problem.tail_scores[:, 0], coded.problem.tail_scores[:, -1] = -(2**31), 2**31 - 1
        yield _case(f"each step, subnormal q, extreme tail: g {g} d {d}", *coded.build(Mode.EXACT, rng))
        coded.problem.q = np.zeros((g, d), np.float16)
        yield _case(f"zero query: g {g} d {d}", *coded.build(Mode.PARTIAL, rng))


def _not_finite(rng: np.random.Generator) -> Iterator[Case]:
    """Inf and NaN in q and in the tail's V; rows of K and V that are not valid, attended to and masked."""
    for g, d in product(GROUPS, (64, 128)):
        for name in ("q", "tail_v"):
            for poison in (np.inf, np.nan):
                coded = _normal(rng, g, d, 20, False, True)
                array = getattr(coded.problem, name)
                array[rng.integers(len(array)), rng.integers(d)] = poison
                yield _case(f"{poison} in {name}: g {g} d {d}", *coded.build(Mode.EXACT, rng))
        for name, (value, first, end) in product("kv", ((0x80, 0, d), (34, d, None), (255, d, None))):
            coded = _normal(rng, g, d, 20, False, False)
            rows = getattr(coded, name)
            row = int(rng.integers(20))
            rows[row, rng.integers(first, rows.shape[1] if end is None else end)] = value
            yield _case(f"{value} in {name}: g {g} d {d}", *coded.build(Mode.EXACT, rng))
            coded.problem.valid = np.arange(20) != row
            yield _case(f"masked {value} in {name}: g {g} d {d}", *coded.build(Mode.PARTIAL, rng))


def _without_tokens(rng: np.random.Generator) -> Iterator[Case]:
    """All tokens masked, with and without a tail, and only a tail."""
    for g, tailed in product(GROUPS, (False, True)):
        coded = _normal(rng, g, 128, 33, False, tailed)
        coded.problem.valid = np.zeros(33, np.bool_)
        yield _case(f"all masked, tail {tailed}: g {g}", *coded.build(Mode.EXACT, rng))
    for g, d, t in product(GROUPS, HEAD_DIMS, TAILS[::2]):
        none = np.zeros((0, d), np.float16)
        problem = Problem(rng.standard_normal((g, d)).astype(np.float16), none, none)
        add_tail(rng, problem, t)
        yield _case(f"tail of {t} alone: g {g} d {d}", *Coded.of(problem).build(Mode.PARTIAL, rng))


def _refused(rng: np.random.Generator) -> Iterator[Case]:
    """Jobs of both modes, spoiled in each way. A spoiled job that is still valid must run."""
    for g, mode in product(GROUPS, MODES):
        memory, address = _normal(rng, g, 64, 40, True, True).build(mode, rng)
        for label, spoiled, place in spoil(rng, memory, address):
            yield _case(f"refused {mode.name}: {label}", spoiled, place)
        for d in (32, 96, 160, 224):
            job = get_job(memory, address)
            job["head_dim"] = d
            spoiled = memory.copy()
            put_job(spoiled, address, job)
            yield _case(f"refused {mode.name}: head dimension {d}", spoiled, address)
        yield _case("kernel of another group", memory, address, GROUPS[1 - GROUPS.index(g)])
