"""Error of the arithmetic contract against float64, beside torch and a plain fp32 engine."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass

import numpy as np
import torch
from numpy.typing import NDArray

import golden
from bench.setup import Setup
from bench.table import Block, Table
from golden import float64
from kvdrive.errors import InputError

Half = NDArray[np.float16]
Real = NDArray[np.float64]
Data = tuple[Half, Half, Half]

HEAD_DIM = 128
HEADS = {128: 64, 4096: 16, 32768: 4, 131072: 2}  # tokens: heads measured, each with its own K and V
SEED = 2026
BLOCK = 128  # tokens per block of the fp32 engine
FLOOR, OURS, FP32 = "float64 rounded", "ours", "fp32 engine"
FLOOR_TOLERANCE = 1.00005
FORMATS = {"torch fp16": torch.float16, "torch bf16": torch.bfloat16}
METHODS = (FLOOR, OURS, *FORMATS, FP32)


# ---- data: q [heads, 1, d], k and v [heads, s, d], binary16 ----


def _normal(rng: np.random.Generator, heads: int, s: int) -> Data:
    q, k, v = (rng.standard_normal((heads, n, HEAD_DIM)).astype(np.float16) for n in (1, s, s))
    return q, k, v


def _heavy(rng: np.random.Generator, heads: int, s: int) -> Data:
    q, k, v = (np.clip(rng.standard_t(2.5, (heads, n, HEAD_DIM)), -65504, 65504).astype(np.float16) for n in (1, s, s))
    return q, k, v


def _cancelling(rng: np.random.Generator, heads: int, s: int) -> Data:
    q, k, v = _normal(rng, heads, s)
    pairs = slice(0, 56), slice(56, 112)
    q[..., pairs[0]] *= np.float16(16)
    q[..., pairs[1]] = -q[..., pairs[0]]
    k[..., pairs[0]] *= np.float16(256)
    k[..., pairs[1]] = k[..., pairs[0]]
    q[..., 112:] *= np.float16(3)
    v[:, 0::2] += np.where(rng.random((heads, s // 2, 1)) < 0.5, 1000, -1000).astype(np.float16)
    v[:, 1::2] -= v[:, 0::2]
    return q, k, v


def _equal(rng: np.random.Generator, heads: int, s: int) -> Data:
    q, k, v = _normal(rng, heads, s)
    return q, np.repeat(k[:, :1], s, axis=1), v


def _dominant(rng: np.random.Generator, heads: int, s: int) -> Data:
    q, k, v = _normal(rng, heads, s)
    k[np.arange(heads), rng.integers(0, s, heads)] = 2 * q[:, 0]
    return q, k, v


def _subnormal(rng: np.random.Generator, heads: int, s: int) -> Data:
    q, k, v = _normal(rng, heads, s)
    scale = np.float16(2.0**-17)
    return q, k * scale, v * scale


@dataclass(frozen=True)
class Family:
    """A kind of data, and a sentence about it."""

    make: Callable[[np.random.Generator, int, int], Data]
    about: str


FAMILIES = {
    "normal": Family(_normal, "q, k, v standard normal"),
    "heavy-tailed": Family(_heavy, "q, k, v Student t with 2.5 degrees of freedom, clipped to binary16"),
    "cancelling": Family(
        _cancelling,
        "112 of 128 elements of each q.k cancel exactly in pairs of about 4096 each, 16 carry the score; "
        "values of about 1000 come in pairs of opposite sign",
    ),
    "all equal": Family(_equal, "all keys equal, v standard normal"),
    "one dominant": Family(_dominant, "normal, with one key equal to twice the query"),
    "subnormal": Family(_subnormal, "q normal, k and v normal times 2^-17: binary16 subnormals"),
}


# ---- methods: results [heads, d] ----


def exact(q: Half, k: Half, v: Half) -> Real:
    """Attention in float64, the reference for every error."""
    return np.stack([float64.attention(*head)[0] for head in zip(q, k, v, strict=True)])


def ours(q: Half, k: Half, v: Half) -> Half:
    """The golden model. Every engine gives the same bits."""
    return np.stack([golden.attention(*head).out[0] for head in zip(q, k, v, strict=True)])


def torch_attention(q: Half, k: Half, v: Half, dtype: torch.dtype) -> Real:
    """torch's scaled_dot_product_attention on the CPU; for bfloat16 the inputs are rounded to it as well."""
    tensors = (torch.from_numpy(x).to(dtype)[None] for x in (q, k, v))
    result = torch.nn.functional.scaled_dot_product_attention(*tensors)
    return result[0, :, 0].to(torch.float64).numpy()


def fp32_engine(q: Half, k: Half, v: Half) -> Half:
    """An accelerator with binary16 storage and binary32 sums and exp, in the manner of HILOS.

    Sums run sequentially over the elements (scores) and over the tokens (values, one lane per element); the softmax
    takes two passes over blocks of 128 tokens. The result is rounded to binary16.
    """
    x, values = _fp32_scores(q, k), v.astype(np.float32)
    maximum, total = _fp32_statistics(x)
    p = np.exp(x - maximum[:, None]) / total[:, None]
    out = np.zeros((len(q), HEAD_DIM), np.float32)
    for t in range(x.shape[1]):
        out += p[:, t, None] * values[:, t]
    return out.astype(np.float16)


def _fp32_scores(q: Half, k: Half) -> NDArray[np.float32]:
    query, keys = q.astype(np.float32), k.astype(np.float32)
    x = np.zeros(k.shape[:2], np.float32)
    for i in range(HEAD_DIM):
        x += query[..., i] * keys[..., i]
    return x * np.float32(1 / math.sqrt(HEAD_DIM))


def _fp32_statistics(x: NDArray[np.float32]) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """First pass: running maximum and sum of exponentials over blocks."""
    maximum, total = np.full(len(x), -np.inf, np.float32), np.zeros(len(x), np.float32)
    for start in range(0, x.shape[1], BLOCK):
        block = x[:, start : start + BLOCK]
        highest = block.max(axis=1)
        part = np.exp(block - highest[:, None]).sum(axis=1, dtype=np.float32)
        both = np.maximum(maximum, highest)
        total = total * np.exp(maximum - both) + part * np.exp(highest - both)
        maximum = both
    return maximum, total


# ---- measurement ----


@dataclass(frozen=True)
class Row:
    """Errors of one kind of data at one length, relative to the rms of the head's exact result.

    `rms` and `worst` by method; `misrounded`: share of binary16 results that differ from the rounded exact result.
    """

    tokens: int
    family: str
    heads: int
    rms: dict[str, float]
    worst: dict[str, float]
    misrounded: dict[str, float]


def measure(family: str, tokens: int, heads: int) -> Row:
    """Errors of all methods; the data depends on the arguments and SEED only."""
    rng = np.random.default_rng([SEED, tokens, list(FAMILIES).index(family)])
    data = FAMILIES[family].make(rng, heads, tokens)
    reference = exact(*data)
    outputs = {FLOOR: reference.astype(np.float16), OURS: ours(*data), FP32: fp32_engine(*data)}
    outputs |= {name: torch_attention(*data, dtype) for name, dtype in FORMATS.items()}
    norm = np.sqrt((reference**2).mean(axis=1, keepdims=True))
    errors = {name: np.abs(outputs[name].astype(np.float64) - reference) / norm for name in METHODS}
    return Row(
        tokens,
        family,
        heads,
        rms={name: float(np.sqrt((error**2).mean())) for name, error in errors.items()},
        worst={name: float(error.max()) for name, error in errors.items()},
        misrounded={name: float((outputs[name] != outputs[FLOOR]).mean()) for name in (OURS, "torch fp16", FP32)},
    )


def verdict(row: Row) -> str | None:
    """How our result compares with the others in this row; None if another method is more accurate.

    "smallest": no other method has a smaller rms error. "floor": ours is within FLOOR_TOLERANCE of the float64 result
    rounded to binary16, so that no binary16 result can be better by more than that.
    """
    if all(row.rms[OURS] <= row.rms[name] for name in METHODS if name != FLOOR):
        return "smallest"
    return "floor" if row.rms[OURS] <= FLOOR_TOLERANCE * row.rms[FLOOR] else None


def lost_mass(tokens: int) -> float:
    """Share of the softmax that is dropped in the worst case: all tokens but one have the largest p that is still 0."""
    dropped = (-32 << 20) - 1
    x = np.full(tokens, dropped + (1 << 20), np.int32)
    x[0] = 1  # M = 1, and the weight of this token is slightly above 1/2
    result = golden.softmax(x)
    if result.p[1:].any():
        raise AssertionError("the worst case keeps a token: dropped is not below the limit")
    weights = np.exp2(x / 2.0**20)
    return float(weights[1:].sum() / weights.sum())


# ---- report ----


def run(setup: Setup) -> list[Block]:
    """The errors. Raises InputError where another method is more accurate than a binary16 result still allows."""
    heads = setup.size(HEADS, {128: 2})
    rows = []
    for tokens, count in heads.items():
        for family in FAMILIES:
            rows.append(measure(family, tokens, count))
            setup.say(f"{tokens:7d} {family:13s} ours / floor {rows[-1].rms[OURS] / rows[-1].rms[FLOOR]:.4f}")
    if failed := [f"{row.family} at {row.tokens} tokens" for row in rows if verdict(row) is None]:
        raise InputError(f"ours is not the smallest: {', '.join(failed)}")
    return [
        Block("accuracy-rms", [rms_table(rows)], [asdict(row) | {"verdict": verdict(row)} for row in rows]),
        Block("accuracy-worst", [worst_table(rows)]),
        Block("accuracy-mass", [mass_table(sorted(heads))]),
    ]


def _number(x: float) -> str:
    return f"{x:.2e}"


def rms_table(rows: Sequence[Row]) -> Table:
    """The rms errors and verdicts, and where another method is below ours."""
    cells = []
    for row in rows:
        judged = (f"{row.rms[OURS] / row.rms[FLOOR]:.4f}", verdict(row) or "**no**")
        cells.append([str(row.tokens), row.family, *(_number(row.rms[name]) for name in METHODS), *judged])
    head = ["tokens", "data", *METHODS, "ours / floor", "verdict"]
    heads = ", ".join(f"{n} heads at {s} tokens" for s, n in sorted({(row.tokens, row.heads) for row in rows}))
    remarks = "\n".join(_remarks(rows)) or "Ours is strictly the smallest in every row."
    families = "\n".join(f"- *{name}*: {family.about}." for name, family in FAMILIES.items())
    note = (
        f"Where another method is below ours:\n\n{remarks}\n\nData:\n\n{families}\n\nFixed seed {SEED}; {heads}. "
        "Figures of torch and of binary32 exp move in their last digits with the CPU and the library versions."
    )
    return Table(head, cells, note, align=_align(head))


def worst_table(rows: Sequence[Row]) -> Table:
    """The largest errors, and shares of results that are not the correctly rounded ones."""
    cells = [
        [str(row.tokens), row.family, *(_number(row.worst[name]) for name in METHODS)]
        + [f"{100 * share:.2f} %" for share in row.misrounded.values()]
        for row in rows
    ]
    head = ["tokens", "data", *METHODS, *(f"{name} misrounded" for name in (OURS, "torch fp16", FP32))]
    return Table(head, cells, align=_align(head))


def mass_table(lengths: Sequence[int]) -> Table:
    """The mass that truncation drops, measured at its worst."""
    cells = [[str(s), "all but one dropped", _number(lost_mass(s)), _number(s * 2.0**-31)] for s in lengths]
    head = ["tokens", "case", "share dropped", "bound: tokens * 2^-31"]
    return Table(head, cells, align=_align(head))


def _align(head: Sequence[str]) -> str:
    return "ll" + "r" * (len(head) - 2)


def _remarks(rows: Sequence[Row]) -> Iterator[str]:
    """Sentences about rows in which our error is not strictly the smallest."""
    for name in METHODS[2:]:
        better = [row for row in rows if row.rms[name] < row.rms[OURS]]
        if better:
            ratio = max(row.rms[OURS] / row.rms[name] for row in better)
            where = sorted({row.family for row in better})
            yield (
                f"- {name} has a smaller rms error in {len(better)} of {len(rows)} rows ({', '.join(where)}), "
                f"at most by a factor of {ratio:.6g}."
            )
