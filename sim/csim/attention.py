"""Cases of the attention kernels: every group, head dimension, length and mode against golden.job; refused jobs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from itertools import product

import numpy as np

import golden
from csim.attention_images import (
    Image,
    Memory,
    Problem,
    attend_image,
    chosen_image,
    get_job,
    put_job,
    rows_image,
    to_case,
    tokens_image,
)
from csim.vectors import Case
from golden.abi import (
    BEAT_BYTES,
    GROUP_SIZES,
    MAX_TOKENS,
    MAX_TOP_K,
    AttentionJob,
    AttentionResult,
    Mode,
    Status,
)

NAME = "attention"

EXACT_GROUPS = (1, 4, 5)  # group sizes that have a top without SparF
SPARF_MODES = golden.job.ALL_MODES - golden.job.EXACT_MODES

LENGTHS = (1, 15, 16, 17, 127, 128, 129, 1000, 4096)
ODD_HEAD_DIMS = (32, 96, 160, 192, 224, 256)
TAILS = (1, 15, 16, 17, 40)
REFUSALS = Status.NON_FINITE - 1  # the status bits of a refused job
SCALE_OFFSET = AttentionResult.fields["scale"][1]
NAN, INFINITY = np.float16("nan"), np.float16("inf")
_REFUSED_OF_EACH = 8  # SparF jobs per mode and group that the tops without SparF get, and refuse


def cases(rng: np.random.Generator, small: bool) -> Iterator[Case]:
    """All shapes with all modes; data that provokes ties and overflow; Inf and NaN; empty and refused jobs. The tops
    without SparF get all of them, but only some of SparF's jobs, because they refuse those.
    """
    refused: Counter[tuple[int, int]] = Counter()
    for case in _jobs(rng, small):
        yield case
        known = dict(case)
        if known["top"] not in EXACT_GROUPS:
            continue
        mode = _mode(known["memory"], known["job"])
        if mode not in SPARF_MODES:
            yield [(name, 1 if name == "exact" else value) for name, value in case]
        elif refused[known["top"], mode] < _REFUSED_OF_EACH:
            refused[known["top"], mode] += 1
            yield to_case(known["label"], known["memory"], known["job"], known["top"], exact=True)


def _mode(memory: Memory, address: int) -> int | None:
    """The mode in the descriptor at `address`; None if an engine does not read it."""
    if address % BEAT_BYTES or not 0 <= address <= memory.size - AttentionJob.itemsize:
        return None
    return int(get_job(memory, address)["mode"])


def _jobs(rng: np.random.Generator, small: bool) -> Iterator[Case]:
    yield from _shapes(rng, small)
    yield from _other_head_dims(rng, small)
    yield from _data(rng)
    yield from _ties(rng, small)
    yield from _not_finite(rng)
    yield from _not_finite_in_pairs(rng)
    yield from _empty(rng)
    yield from _refused(rng)
    yield from _random_descriptors(rng, 100 if small else 400)
    yield from _too_long(rng)
    if not small:
        yield from _longest(rng)


def _shapes(rng: np.random.Generator, small: bool) -> Iterator[Case]:
    """Each group, head dimension and length in each mode, with and without inline tokens and mask in turn."""
    lengths = (1, 17, 129) if small else LENGTHS
    variants = list(product((False, True), repeat=2))
    for i, (g, d, s) in enumerate(product(GROUP_SIZES, (64, 128), lengths)):
        chosen = variants if s <= 17 and not small else [variants[i % 4], variants[(i + 1) % 4]][: 1 if s > 1000 else 2]
        for masked, has_inline in chosen:
            yield from _all_modes(rng, f"g {g} d {d} s {s}", make_problem(rng, g, d, s, masked, has_inline))


def _other_head_dims(rng: np.random.Generator, small: bool) -> Iterator[Case]:
    for i, d in enumerate(ODD_HEAD_DIMS):
        for g in (GROUP_SIZES[i % 5],) if small else (1, GROUP_SIZES[1 + i % 4]):
            yield from _all_modes(rng, f"g {g} d {d}", make_problem(rng, g, d, int(rng.integers(20, 90)), True, True))


def _all_modes(rng: np.random.Generator, label: str, problem: Problem) -> Iterator[Case]:
    _, d, s, t = problem.sizes
    label += f" inline {t}" + (" masked" if problem.valid is not None else "")
    for mode in (Mode.EXACT, Mode.PARTIAL):
        yield to_case(f"{mode.name} {label}", *attend_image(problem, mode, rng).build(rng))
    r = int(rng.integers(1, d + 1)) if rng.random() < 0.5 else d // 8
    k_top = int(rng.integers(1, min(s, MAX_TOP_K) + 1)) if rng.random() < 0.5 else max(1, s // 8)
    yield from _sparf(rng, label, problem, r, k_top, int(rng.integers(0, k_top + 1)))


def _sparf(rng: np.random.Generator, label: str, problem: Problem, r: int, k_top: int, local: int) -> Iterator[Case]:
    """The three SparF jobs. Each one uses the golden results of the one before."""
    label = f"{label} r {r} k {k_top} l {local}"
    yield to_case(f"SPARF_ROWS {label}", *rows_image(problem, r, rng).build(rng))
    rows = golden.sparf_rows(problem.q, r, problem.scale_log2e)
    memory, address = tokens_image(problem, rows.rows, rows.scale, k_top, local, rng).build(rng)
    yield to_case(f"SPARF_TOKENS {label}", memory, address)
    chosen_rows = np.flatnonzero(golden.bitmap.to_flags(rows.rows, problem.q.shape[1]))
    tokens = golden.sparf_tokens(
        problem.q,
        golden.block_columns(np.ascontiguousarray(problem.k[:, chosen_rows])),
        rows.rows,
        len(problem.k),
        k_top,
        local,
        rows.scale,
        problem.bitmap,
        problem.inline_scores,
    )
    chosen = np.flatnonzero(golden.bitmap.to_flags(tokens.bitmap, len(problem.k)))
    v_sum = golden.v_sum(problem.v, problem.bitmap)
    count = len(problem.v) if problem.valid is None else int(problem.valid.sum())
    if problem.inline_v is not None:
        v_sum, count = v_sum + golden.v_sum(problem.inline_v), count + len(problem.inline_v)
    if chosen.size == 0 and problem.inline_v is None:
        return
    kept = replace(problem, k=problem.k[chosen], v=problem.v[chosen], valid=None)
    yield to_case(f"SPARF_ATTEND {label}", *chosen_image(kept, v_sum, count, tokens.alpha, rng).build(rng))


def make_problem(rng: np.random.Generator, g: int, d: int, s: int, masked: bool, has_inline: bool) -> Problem:
    """Normally distributed data. Masked rows hold any pattern; at least one token is attended to."""
    problem = Problem(_normal(rng, g, d), _normal(rng, s, d), _normal(rng, s, d))
    if masked:
        problem.valid = rng.random(s) < rng.choice([0.1, 0.5, 0.95])
        problem.valid[rng.integers(s)] = True
        for rows in (problem.k, problem.v):
            noise = rng.integers(0, 2**16, rows.shape, np.uint16).view(np.float16)
            rows[~problem.valid] = noise[~problem.valid]
    if has_inline:
        add_inline(rng, problem, int(rng.choice(TAILS)))
    return problem


def add_inline(rng: np.random.Generator, problem: Problem, t: int) -> None:
    g, d, _, _ = problem.sizes
    problem.inline_scores = (rng.standard_normal((g, t)) * 3 * 2**20).astype(np.int32)
    problem.inline_v = _normal(rng, t, d)


def _normal(rng: np.random.Generator, n: int, d: int) -> np.ndarray:
    return rng.standard_normal((n, d)).astype(np.float16)


def _bits(rng: np.random.Generator, n: int, d: int) -> np.ndarray:
    """Finite numbers of every exponent, subnormals included."""
    exponents = rng.integers(0, 31, (n, d)).astype(np.uint16) << 10
    return (exponents | (rng.integers(0, 2**16, (n, d), np.uint16) & 0x83FF)).view(np.float16)


def _data(rng: np.random.Generator) -> Iterator[Case]:
    """Data of every exponent, with scores far apart, saturated scores, and extreme inline tokens."""
    for g, d, s in ((1, 64, 40), (2, 128, 33), (8, 32, 65)):
        wide = Problem(_bits(rng, g, d), _bits(rng, s, d), _bits(rng, s, d))
        yield from _all_modes(rng, "all exponents", wide)
        add_inline(rng, wide, 5)
        wide.inline_scores[:, :2] = (-(2**31), 2**31 - 1)
        yield from _all_modes(rng, "extreme inline tokens", wide)
        peaked = Problem(_normal(rng, g, d) * 8, _normal(rng, s, d), _normal(rng, s, d))
        yield from _all_modes(rng, "peaked", peaked)
        flat = replace(peaked, scale=int(rng.choice([0, 1, 0x80000000, 0x807FFFFF])))
        yield from _all_modes(rng, "flat", flat)
        yield from _all_modes(rng, "negative scale", replace(peaked, scale=0xC0000000))
        zeros = replace(peaked, q=np.zeros((g, d), np.float16))
        yield from _all_modes(rng, "zero query", zeros)


def _ties(rng: np.random.Generator, small: bool) -> Iterator[Case]:
    """Few distinct rows, so that the choice depends on the tie rule; small and large k, local windows and masks."""
    for g, s in ((1, 700), (4, 300)) if small else ((1, 3000), (2, 1100), (4, 300), (5, 513), (8, 1024)):
        kinds = rng.integers(-2, 3, (3, 32)).astype(np.float16)
        k = kinds[rng.integers(0, 3, s)]
        q = rng.integers(-1, 2, (g, 32)).astype(np.float16)
        for k_top in (1, 64, 65, s // 2, s):
            problem = Problem(q, k.copy(), _normal(rng, s, 32))
            if rng.random() < 0.5:
                problem.valid = rng.random(s) < 0.5
            yield from _sparf(rng, f"ties g {g} s {s}", problem, int(rng.integers(1, 33)), k_top, k_top // 3)


def _not_finite(rng: np.random.Generator) -> Iterator[Case]:
    """One Inf or NaN in each input. If it is attended to, results are zeros; if it is masked, it changes nothing."""
    for name in ("q", "k", "v", "inline_v"):
        for poison in (NAN, INFINITY, -INFINITY):
            problem = make_problem(rng, 2, 64, 40, False, True)
            array = getattr(problem, name)
            row, column = int(rng.integers(len(array))), int(rng.integers(64))
            array[row, column] = poison
            images = [attend_image(problem, mode, rng) for mode in (Mode.EXACT, Mode.PARTIAL)]
            images.append(chosen_image(problem, np.arange(64), 50, np.full(2, 0x3F000000, np.uint32), rng))
            if name == "q":
                images.append(rows_image(problem, 8, rng))
            if name in "qk":
                rows = np.zeros(64, np.uint8)
                rows[:8] = 0xFF if name == "k" else 0x0F
                scale = np.full(2, 0x3F800000, np.uint32)
                images.append(tokens_image(problem, rows, scale, 7, 3, rng))
            for image in images:
                yield to_case(f"{poison} in {name}", *image.build(rng))
            if name in ("k", "v"):
                problem.valid = np.ones(40, np.bool_)
                problem.valid[row] = False
                yield to_case(f"masked {poison} in {name}", *attend_image(problem, Mode.EXACT, rng).build(rng))


def _not_finite_in_pairs(rng: np.random.Generator) -> Iterator[Case]:
    """With up to 16 rows two blocks of tokens share each beat: a NaN in either, attended and masked, chosen and not."""
    for r, token, column, masked in product((8, 16), (3, 40, 67, 99), (2, 30), (False, True)):
        problem = make_problem(rng, 2, 64, 100, False, True)
        problem.k[token, column] = NAN
        if masked:
            problem.valid = np.ones(100, np.bool_)
            problem.valid[token] = False
        rows = np.zeros(64, np.uint8)
        rows[: r // 8] = 0xFF
        image = tokens_image(problem, rows, np.full(2, 0x3F800000, np.uint32), 7, 3, rng)
        yield to_case(f"NaN at {token}, {column} with {r} rows, masked {masked}", *image.build(rng))


def _empty(rng: np.random.Generator) -> Iterator[Case]:
    """All tokens masked, with and without inline tokens, and only inline tokens."""
    for g, s in ((1, 33), (8, 513)):
        for has_inline, poison in product((False, True), repeat=2):
            problem = make_problem(rng, g, 64, s, False, has_inline)
            problem.valid = np.zeros(s, np.bool_)
            if poison:
                problem.q[0, 3] = NAN
            rows, scale = np.full(64, 0x11, np.uint8), np.full(g, 0x3E000000, np.uint32)
            alpha = np.full(g, 0x3F000000, np.uint32)
            for image in (
                attend_image(problem, Mode.EXACT, rng),
                attend_image(problem, Mode.PARTIAL, rng),
                tokens_image(problem, rows & np.repeat(np.uint8([255, 0]), [8, 56]), scale, 5, 2, rng),
                chosen_image(problem, np.arange(64), 3, alpha, rng),
            ):
                yield to_case(f"all masked, inline {has_inline}, NaN {poison}", *image.build(rng))
    for g in GROUP_SIZES:
        yield from _inline_alone(rng, g)


def _inline_alone(rng: np.random.Generator, g: int) -> Iterator[Case]:
    problem = Problem(_normal(rng, g, 128), np.zeros((0, 128), np.float16), np.zeros((0, 128), np.float16))
    add_inline(rng, problem, int(rng.choice(TAILS)))
    for mode in (Mode.EXACT, Mode.PARTIAL):
        yield to_case(f"{mode.name} g {g} inline alone", *attend_image(problem, mode, rng).build(rng))
    alpha = rng.random(g).astype(np.float32).view(np.uint32)
    image = chosen_image(problem, rng.integers(-(2**63), 2**63, 128, np.int64), MAX_TOKENS, alpha, rng)
    yield to_case(f"SPARF_ATTEND g {g} inline alone", *image.build(rng))


def _valid_images(rng: np.random.Generator, g: int) -> list[Image]:
    """One accepted job of every mode, with all optional arrays."""
    problem = make_problem(rng, g, 64, 40, True, True)
    rows = golden.sparf_rows(problem.q, 9, problem.scale_log2e)
    alpha = np.full(g, 0x3F000000, np.uint32)
    return [
        attend_image(problem, Mode.EXACT, rng),
        attend_image(problem, Mode.PARTIAL, rng),
        rows_image(problem, 9, rng),
        tokens_image(problem, rows.rows, rows.scale, 7, 3, rng),
        chosen_image(problem, np.arange(64), 45, alpha, rng),
    ]


def _refused(rng: np.random.Generator) -> Iterator[Case]:
    """Jobs of each mode, spoiled in each way. A spoiled job that is still valid must run."""
    for g in GROUP_SIZES:
        for image in _valid_images(rng, g):
            memory, address = image.build(rng)
            for label, spoiled, place in spoil(rng, memory, address):
                yield to_case(f"refused {Mode(image.fields['mode']).name}: {label}", spoiled, place)
            other = GROUP_SIZES[(GROUP_SIZES.index(g) + 1) % len(GROUP_SIZES)]
            job = get_job(memory, address)
            job["version"] = 0
            spoiled = memory.copy()
            put_job(spoiled, address, job)
            yield to_case("kernel of another group", spoiled, address, other, int(Status.BAD_GROUP))


def spoil(rng: np.random.Generator, memory: Memory, address: int) -> Iterator[tuple[str, Memory, int]]:
    """(what, memory, job address) of jobs with one flaw."""
    original = get_job(memory, address)
    for name, values in _bad_values(original, memory.size).items():
        for value in values:
            job = original.copy()
            job[name] = value
            spoiled = memory.copy()
            put_job(spoiled, address, job)
            yield f"{name} = {value}", spoiled, address
    for place in (address + 1, address + 32, memory.size - 64, memory.size, 2**63, 2**64 - 64, 2**64 - 128, 2**64 - 1):
        yield f"job at {place}", memory, place
    yield "memory that ends with the last array", memory[:-64], address
    yield "memory that ends a beat before", memory[:-128], address
    yield from _bad_contents(memory, address, original)


def _bad_values(job: np.void, size: int) -> dict[str, list[int]]:
    big = 2**32 - 1
    values: dict[str, list[int]] = {
        "version": [0, 2, 0x101, 0xFFFF],
        "mode": [5, 6, 8, 255],
        "group": [0, 3, 6, 7, 9, 17, 255],
        "head_dim": [0, 1, 16, 33, 63, 288, 512, 0xFFE0, 0xFFFF],
        "r": [0, int(job["r"]) + 1, 65, 0xFFFF],
        "tokens": [0, 41, MAX_TOKENS, MAX_TOKENS + 1, 2**31, big],
        "inline_tokens": [MAX_TOKENS, 2**31, big],
        "k_top": [0, 2, 41, MAX_TOP_K + 1, big],
        "local": [8, big],
        "scale_log2e": [0x7F800000, 0xFF800000, 0x7FC00000, 0xFFFFFFFF],
        "count": [0, MAX_TOKENS + 1, big],
    }
    for name in ("q", "k", "v", "inline_scores", "inline_v", "valid", "rows", "v_sum", "out", "result"):
        here = int(job[name])
        values[name] = [here + 1, here + 32, size - 64 + 32, size, 2**63, 2**64 - 64, 2**64 - 1]
    return values


def _bad_contents(memory: Memory, address: int, job: np.void) -> Iterator[tuple[str, Memory, int]]:
    """SPARF_TOKENS jobs that read a wrong number of rows, or scales that are not finite."""
    rows, result = int(job["rows"]), int(job["result"])
    if not rows:
        return
    for bit in (0, 63, 64):
        spoiled = memory.copy()
        spoiled[rows + bit // 8] ^= 1 << bit % 8
        yield f"row {bit} flipped", spoiled, address
    for head in (0, int(job["group"]) - 1, 7):
        spoiled = memory.copy()
        offset = result + SCALE_OFFSET + 4 * head
        spoiled[offset : offset + 4] = np.frombuffer(np.float32("inf").tobytes(), np.uint8)
        yield f"scale of head {head}", spoiled, address


def _too_long(rng: np.random.Generator) -> Iterator[Case]:
    """One token more than a job may have, in memory that could hold it."""
    q, rows = _normal(rng, 1, 32), np.zeros(64, np.uint8)
    rows[0] = 1
    for tokens, has_inline in ((MAX_TOKENS + 1, False), (MAX_TOKENS, True)):
        k = np.zeros((tokens, 32), np.float16)
        problem = Problem(q, k, k)
        if has_inline:
            add_inline(rng, problem, 1)
        memory, address = tokens_image(problem, rows, np.zeros(1, np.uint32), 1, 1, rng).build(rng)
        yield to_case(f"refused: {tokens} tokens, inline {has_inline}", memory, address)


def _longest(rng: np.random.Generator) -> Iterator[Case]:
    """A job with the most tokens and the largest choice allowed."""
    s, t = MAX_TOKENS - 17, 17
    problem = make_problem(rng, 1, 32, s, True, False)
    add_inline(rng, problem, t)
    yield to_case(f"EXACT tokens {s} inline {t}", *attend_image(problem, Mode.EXACT, rng).build(rng))
    yield from _sparf(rng, f"tokens {s} inline {t}", problem, 3, MAX_TOP_K, 64)


def _random_descriptors(rng: np.random.Generator, count: int) -> Iterator[Case]:
    """Descriptors of random bytes, and accepted ones with a few random fields; only those that golden refuses."""
    images = [image.build(rng) for g in GROUP_SIZES for image in _valid_images(rng, g)]
    done = 0
    while done < count:
        memory, address = images[int(rng.integers(len(images)))]
        job = get_job(memory, address)
        noise = rng.integers(0, 256, AttentionJob.itemsize, np.uint8).view(AttentionJob)[0]
        if done % 2:
            for name in rng.choice(AttentionJob.names, int(rng.integers(1, 5)), replace=False):
                job[name] = noise[name]
        else:
            job = noise
            if rng.random() < 0.7:
                job["version"], job["mode"] = 1, rng.integers(0, 5)
        spoiled = memory.copy()
        put_job(spoiled, address, job)
        if golden.job.check(job, spoiled, address) & REFUSALS:
            done += 1
            yield to_case("random descriptor", spoiled, address)
