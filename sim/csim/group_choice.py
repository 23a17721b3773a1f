"""Cases of the kernels group_choice against golden.group_job: every shape, hard data, empty and refused jobs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import product

import numpy as np
from numpy.typing import NDArray

import golden
from csim import attention_images
from csim.attention_images import Image, Memory, put_job
from csim.vectors import Case
from golden.abi import (
    ABI_VERSION,
    BEAT_BYTES,
    CHOICE_HEAD_DIMS,
    GROUP_SIZES,
    MAX_INDEX_EXPONENT,
    MAX_TOKENS,
    MIN_INDEX_EXPONENT,
    SPAN_TOKENS,
    UNIT_TOKENS,
    GroupChoiceJob,
    GroupChoiceResult,
    Status,
)

NAME = "group_choice"

LENGTHS = (1, 2, 3, 5, 16, 17, 33)  # spans
TAILS = (1, 15, 16, 17, 40)
REFUSALS = Status.NON_FINITE - 1  # the status bits of a refused job
_SCORES_PER_BEAT = 16


@dataclass
class Choice:
    """q [g, d] binary16, index bytes [spans, 10 d], optional mask bool [s], optional inline scores int32 [g, t]."""

    q: NDArray[np.float16]
    spans: NDArray[np.uint8]
    exponent: int
    unit: int
    k_top: int
    valid: NDArray[np.bool_] | None = None
    inline: NDArray[np.int32] | None = None
    scale: int | None = None
    fields: dict[str, int] = field(default_factory=dict)  # of the descriptor, instead of the right ones

    @property
    def tokens(self) -> int:
        return len(self.spans) * SPAN_TOKENS

    def build(self, rng: np.random.Generator) -> tuple[Memory, int]:
        """The memory and the byte address of the job. Bytes outside of arrays and in their padding are random."""
        numbers = {
            "version": ABI_VERSION,
            "group": len(self.q),
            "unit": self.unit,
            "head_dim": self.q.shape[1],
            "exponent": self.exponent,
            "tokens": self.tokens,
            "inline_tokens": 0 if self.inline is None else self.inline.shape[1],
            "k_top": self.k_top,
            "scale_log2e": golden.scale_bits(None, self.q.shape[1]) if self.scale is None else self.scale,
        }
        memory, address = Image(numbers, self._arrays(rng), GroupChoiceJob).build(rng)
        job = get_job(memory, address)
        for name, value in self.fields.items():
            job[name] = value
        put_job(memory, address, job)
        return memory, address

    def _arrays(self, rng: np.random.Generator) -> dict[str, NDArray[np.generic]]:
        marks = golden.bitmap.beats(-(-self.tokens // (self.unit if self.unit in UNIT_TOKENS else 16)))
        arrays: dict[str, NDArray[np.generic]] = {
            "q": self.q,
            "index": self.spans,
            "out": rng.integers(0, 256, marks * BEAT_BYTES, np.uint8),
            "result": rng.integers(0, 256, GroupChoiceResult.itemsize, np.uint8),
        }
        if self.valid is not None:
            mask = rng.integers(0, 2, golden.bitmap.beats(self.tokens) * 8 * BEAT_BYTES, np.uint8)
            mask[: self.tokens] = self.valid
            arrays["valid"] = np.packbits(mask, bitorder="little")
        if self.inline is not None:
            g, t = self.inline.shape
            padded = rng.integers(-(2**31), 2**31, (g, -(-t // _SCORES_PER_BEAT) * _SCORES_PER_BEAT)).astype(np.int32)
            padded[:, :t] = self.inline
            arrays["inline_scores"] = padded
        return arrays


def get_job(memory: Memory, address: int) -> NDArray[np.void]:
    """A copy of the descriptor, as a scalar array."""
    return attention_images.get_job(memory, address, GroupChoiceJob)


def cases(rng: np.random.Generator, small: bool) -> Iterator[Case]:
    """All shapes; index bytes of every value, ties, scores far apart; Inf and NaN; empty and refused jobs."""
    yield from _shapes(rng, small)
    yield from _data(rng)
    yield from _ties(rng, small)
    yield from _without_result(rng)
    yield from _refused(rng)
    yield from _random_descriptors(rng, 60 if small else 300)
    if not small:
        yield from _longest(rng)


def _case(label: str, memory: Memory, address: int, top: int | None = None) -> Case:
    """The case with golden's status word and memory. `top`: group of the kernel that runs it, by default the job's."""
    expected = memory.copy()
    status = golden.group_job.run(expected, address)
    readable = address % BEAT_BYTES == 0 and 0 <= address <= memory.size - GroupChoiceJob.itemsize
    if readable and top is not None and int(get_job(memory, address)["group"]) in GROUP_SIZES:
        expected, status = memory.copy(), status & REFUSALS | Status.BAD_GROUP
    if top is None:
        group = int(get_job(memory, address)["group"]) if readable else 1
        top = group if group in GROUP_SIZES else 1
    signed = address - 2**64 if address >= 2**63 else address
    head = [("label", label), ("top", top), ("job", signed), ("status", int(status))]
    return [*head, ("memory", memory), ("expected", expected)]


def _normal(rng: np.random.Generator, *shape: int) -> NDArray[np.float16]:
    return rng.standard_normal(shape).astype(np.float16)


def _choice(rng: np.random.Generator, g: int, d: int, spans: int, unit: int) -> Choice:
    """Normally distributed data, any number of units."""
    index = golden.build_index(_normal(rng, spans * SPAN_TOKENS, d))
    units = -(-spans * SPAN_TOKENS // unit)
    k_top = int(rng.integers(1, units + 1))
    return Choice(_normal(rng, g, d), index.to_bytes(), index.exponent, unit, k_top)


def _with(rng: np.random.Generator, choice: Choice, masked: bool, has_inline: bool) -> Choice:
    if masked:
        choice.valid = rng.random(choice.tokens) < rng.choice([0.05, 0.5, 0.95])
        choice.valid[rng.integers(choice.tokens)] = True
    if has_inline:
        t = int(rng.choice(TAILS))
        choice.inline = (rng.standard_normal((len(choice.q), t)) * 3 * 2**20).astype(np.int32)
    return choice


def _shapes(rng: np.random.Generator, small: bool) -> Iterator[Case]:
    """Each group, head dimension and length, with mask, inline and unit in turn."""
    lengths = (1, 3, 17) if small else LENGTHS
    for i, (g, d, spans) in enumerate(product(GROUP_SIZES, CHOICE_HEAD_DIMS, lengths)):
        for j in (0, 1):
            unit = UNIT_TOKENS[(i + j) % 4]
            choice = _with(rng, _choice(rng, g, d, spans, unit), (i + j) % 2 == 1, (i // 2 + j) % 2 == 1)
            label = f"g {g} d {d} spans {spans} unit {unit} k {choice.k_top}"
            yield _case(
                label + f" masked {choice.valid is not None} inline {choice.inline is not None}", *choice.build(rng)
            )


def _data(rng: np.random.Generator) -> Iterator[Case]:
    """Index bytes of any value, extreme exponents, inline tokens and scales, queries of all exponents."""
    for g, d in ((1, 128), (2, 64), (4, 256), (5, 32), (8, 128)):
        spans = rng.integers(0, 256, (6, 10 * d), np.uint8)
        choice = _with(rng, Choice(_normal(rng, g, d), spans, 14, 16, 5), True, True)
        yield _case(f"any bytes: g {g} d {d}", *choice.build(rng))
        choice.q = (
            rng.integers(0, 31, (g, d)).astype(np.uint16) << 10 | rng.integers(0, 1024, (g, d), np.uint16)
        ).view(np.float16) * rng.choice([-1, 1], (g, d)).astype(np.float16)
        for exponent in (MIN_INDEX_EXPONENT, 20, MAX_INDEX_EXPONENT):
            choice.exponent = exponent
            yield _case(f"all exponents: e {exponent} g {g} d {d}", *choice.build(rng))
        choice.q = np.full((g, d), 65504, np.float16)
        choice.spans = np.full((6, 10 * d), 255, np.uint8)
        choice.spans[:, :d] = 127
        choice.valid, choice.scale = None, 1  # the smallest subnormal
        yield _case(f"largest sums: g {g} d {d}", *choice.build(rng))
        choice.q = rng.integers(1, 40, (g, d)).astype(np.uint16).view(np.float16)
        choice.scale = None
        choice.inline[:, 0], choice.inline[:, -1] = -(2**31), 2**31 - 1
        yield _case(f"subnormal queries, extreme inline tokens: g {g} d {d}", *choice.build(rng))
        choice.q = np.zeros((g, d), np.float16)
        yield _case(f"zero query: g {g} d {d}", *choice.build(rng))
        choice.inline = None
        choice.scale = int(rng.choice([0x3F000000, 0xBF000000]))
        choice.q = _normal(rng, g, d) * 8
        choice.spans = golden.build_index(_normal(rng, 192, d)).to_bytes()
        choice.exponent = 18
        yield _case(f"peaked: g {g} d {d}", *choice.build(rng))


def _ties(rng: np.random.Generator, small: bool) -> Iterator[Case]:
    """Few distinct spans, so that the choice depends on the tie rule."""
    for g, n in ((1, 40), (4, 20)) if small else ((1, 200), (2, 75), (4, 40), (5, 33), (8, 64)):
        kinds = golden.build_index(_normal(rng, 3 * SPAN_TOKENS, 32))
        spans = kinds.to_bytes()[rng.integers(0, 3, n)]
        for unit, k_top in ((32, 1), (32, 2), (32, n // 2), (16, n), (64, n // 4), (128, -(-n // 4))):
            choice = Choice(_normal(rng, g, 32), spans, kinds.exponent, unit, max(1, k_top))
            yield _case(f"ties: g {g} n {n} unit {unit} k {k_top}", *choice.build(rng))


def _without_result(rng: np.random.Generator) -> Iterator[Case]:
    """Inf and NaN in q, no valid token, both; all masked with inline tokens is a result."""
    for g, d in product(GROUP_SIZES, (64, 128)):
        choice = _choice(rng, g, d, 4, 32)
        choice.q[g - 1, d - 1] = rng.choice([np.inf, -np.inf, np.nan]).astype(np.float16)
        yield _case(f"not finite: g {g} d {d}", *choice.build(rng))
        choice.valid = np.zeros(choice.tokens, np.bool_)
        yield _case(f"not finite and empty: g {g} d {d}", *choice.build(rng))
        choice.q = _normal(rng, g, d)
        yield _case(f"empty: g {g} d {d}", *choice.build(rng))
        yield _case(f"only inline tokens: g {g} d {d}", *_with(rng, choice, False, True).build(rng))


def _refused(rng: np.random.Generator) -> Iterator[Case]:
    """Each check by itself."""
    wrong = [
        {"version": 9},
        {"head_dim": 0},
        {"head_dim": 96},
        {"head_dim": 48},
        {"head_dim": 288},
        {"tokens": 0},
        {"tokens": 40},
        {"inline_tokens": MAX_TOKENS},
        {"inline_tokens": 2**32 - 1},
        {"unit": 0},
        {"unit": 24},
        {"unit": 255},
        {"k_top": 0},
        {"k_top": 5},
        {"k_top": 2**31},
        {"exponent": 1},
        {"exponent": 35},
        {"exponent": 2**16 - 1},
        {"scale_log2e": 0x7F800000},
        {"scale_log2e": 0xFFC00000},
        *({name: value} for name in ("q", "index", "valid", "out", "result") for value in (32, 2**40, 2**64 - 64)),
        {"inline_scores": 3},  # not in use
    ]
    for g in GROUP_SIZES:
        for fields in wrong:
            choice = _choice(rng, g, 64, 4, 32)
            choice.fields = fields
            yield _case(f"refused: g {g} {fields}", *choice.build(rng))
        memory, address = _choice(rng, g, 32, 2, 16).build(rng)
        other = GROUP_SIZES[(GROUP_SIZES.index(g) + 1) % len(GROUP_SIZES)]
        yield _case(f"refused: g {g} on the kernel of {other}", memory, address, other)
        for place in (address + 32, memory.size, memory.size - 64, 2**64 - 64, 2**63):
            yield _case(f"refused: job at {place}", memory, place, g)
        memory, address = _choice(rng, g, 32, 2, 16).build(rng)
        memory[address + 2] = rng.choice([0, 3, 6, 7, 9, 16, 255])
        yield _case("refused: a group that no kernel has", memory, address, g)


def _random_descriptors(rng: np.random.Generator, n: int) -> Iterator[Case]:
    """Valid jobs with a few fields overwritten."""
    for i in range(n):
        memory, address = _choice(rng, int(rng.choice(GROUP_SIZES)), int(rng.choice(CHOICE_HEAD_DIMS)), 2, 16).build(
            rng
        )
        group = int(get_job(memory, address)["group"])
        job = memory[address : address + GroupChoiceJob.itemsize].view(GroupChoiceJob)
        others = [name for name in GroupChoiceJob.names if name != "group" and not name.startswith("reserved")]
        for name in rng.choice(others, 2, replace=False):
            size = GroupChoiceJob.fields[name][0].itemsize
            job[name] = int.from_bytes(rng.bytes(size), "little") >> int(rng.integers(0, 8 * size))
        yield _case(f"random descriptor {i} of g {group}", memory, address)


def _longest(rng: np.random.Generator) -> Iterator[Case]:
    """The largest job, and the smallest unit of it."""
    spans = MAX_TOKENS // SPAN_TOKENS
    for g, unit, inline in ((1, 16, 0), (4, 128, 32)):
        index = rng.integers(0, 256, (spans - inline // 32, 320), np.uint8)
        choice = Choice(_normal(rng, g, 32), index, 14, unit, 900)
        if inline:
            choice.inline = rng.integers(-(2**22), 2**22, (g, inline)).astype(np.int32)
        yield _case(f"longest: g {g} unit {unit}", *choice.build(rng))
