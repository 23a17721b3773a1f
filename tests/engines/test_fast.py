"""The vectorised engine gives the bits of the golden model: every mode, shape, instruction set and thread count.

Jobs run in whole memory images, so that a stray write shows. The engine's counters prove that data built to lie on a
rounding boundary really reached the integer path.
"""

from collections.abc import Iterator

import numpy as np
import pytest
from numpy.typing import NDArray

import golden
from golden.abi import AttentionJob, AttentionResult, KeyType, Mode, Status
from golden.gemv import COMMAND_SHAPES
from kvdrive.kernels.job import JobMemory, block_columns, pad_scores

native = pytest.importorskip("kvdrive._native", reason="the native extension is not built: make setup")

GROUPS = (1, 2, 4, 5, 8)
ISAS = ("avx512_vnni", "avx512", "avx2", "scalar")
Half = NDArray[np.uint16]
Memory = NDArray[np.uint8]


def make_engine(monkeypatch: pytest.MonkeyPatch, isa: str, threads: int) -> "native.FastEngine":
    """The engine with one instruction set. Skips if the processor lacks it."""
    monkeypatch.setenv("KVDRIVE_ISA", isa)
    try:
        engine = native.Engine("fast", threads=threads)
    except RuntimeError as error:
        pytest.skip(str(error))
    assert engine.isa == isa
    return engine


@pytest.fixture(params=[(isa, threads) for isa in ISAS for threads in (1, 2)], ids=lambda p: f"{p[0]}-{p[1]}")
def engine(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> "native.FastEngine":
    return make_engine(monkeypatch, *request.param)


# ---- numbers ----


def normal(rng: np.random.Generator, *shape: int) -> Half:
    return rng.standard_normal(shape).astype(np.float16).view(np.uint16)


def any_finite(rng: np.random.Generator, *shape: int) -> Half:
    """Uniform over all finite patterns: magnitudes from 2^-24 to 65504."""
    return (rng.integers(0, 31 << 10, shape) | rng.integers(0, 2, shape) << 15).astype(np.uint16)


def cancelling(rng: np.random.Generator, *shape: int) -> Half:
    """Pairs of numbers that are equal or, row by row, opposite. Half of the rows' products cancel to a small rest."""
    x = any_finite(rng, *shape)
    pairs = shape[-1] // 2 * 2
    x[..., 1:pairs:2] = x[..., 0:pairs:2] ^ (rng.integers(0, 2, (*shape[:-1], 1)) << 15)
    x[..., -2:] = rng.integers(0, 64, x[..., -2:].shape)
    return x


def few_values(rng: np.random.Generator, *shape: int) -> Half:
    """Zeros of both signs, subnormals and 1."""
    return rng.choice(np.array([0, 0x8000, 1, 0x8001, 0x3FF, 0x3C00], np.uint16), shape)


NUMBERS = (normal, any_finite, cancelling, few_values)


def spread_scores(rng: np.random.Generator, *shape: int) -> NDArray[np.int32]:
    """Scores near each other, far apart, and at the ends of the range."""
    near = rng.integers(-8 << 20, 8 << 20, shape)
    far = rng.integers(-(1 << 31), 1 << 31, shape)
    ends = rng.choice(np.array([-(1 << 31), (1 << 31) - 1, 0, 1 << 20, -(1 << 20)]), shape)
    return np.choose(rng.integers(0, 12, shape), [far, ends] + [near] * 10).astype(np.int32)


# ---- jobs ----


def valid_bitmap(rng: np.random.Generator, s: int, density: float) -> NDArray[np.uint8]:
    bits = np.zeros(-(-s // 512) * 512, np.bool_)
    bits[:s] = rng.random(s) < density
    bits[s:] = rng.random(bits.size - s) < 0.5  # beyond the job: may hold anything
    return np.packbits(bits, bitorder="little")


def dense_job(
    rng: np.random.Generator,
    mode: Mode,
    g: int,
    d: int,
    s: int,
    t: int = 0,
    numbers=normal,
    density: float | None = None,
    c: float | None = None,
) -> JobMemory:
    """An EXACT, PARTIAL or SPARF_ATTEND job with `s` dense and `t` inline tokens. Masked rows hold any pattern."""
    scale = golden.scale_bits(None, d) if c is None else int(np.float32(c).view(np.uint32))
    job = JobMemory(mode, g, d, tokens=s, inline_tokens=t, scale_log2e=scale)
    rows = {"q": numbers(rng, g, d), "k": numbers(rng, s, d), "v": numbers(rng, s, d)}
    if density is not None and s:
        job.place("valid", valid_bitmap(rng, s, density))
        masked = ~golden.bitmap.to_flags(job._arrays["valid"], s)
        for name in ("k", "v"):
            rows[name][masked] = rng.integers(0, 1 << 16, (int(masked.sum()), d))
    for name, array in rows.items():
        job.place(name, array)
    if t:
        job.place("inline_scores", pad_scores(spread_scores(rng, g, t)))
        job.place("inline_v", numbers(rng, t, d))
    record = np.frombuffer(rng.bytes(AttentionResult.itemsize), AttentionResult).copy()
    if mode == Mode.SPARF_ATTEND:
        job.descriptor["count"] = rng.integers(1, 1 << 17)
        job.place("v_sum", rng.integers(-(1 << 57), 1 << 57, d))
        record["alpha"] = rng.choice(np.array([0.0, 1.0, 0.25, 0.9999, 1.5e-7], np.float32), 8).view(np.uint32)
    job.place("result", record)
    job.reserve("out", g * d * (4 if mode == Mode.PARTIAL else 2))
    return job


def rows_job(rng: np.random.Generator, g: int, d: int, r: int, numbers=normal) -> JobMemory:
    job = JobMemory(Mode.SPARF_ROWS, g, d, r=r, scale_log2e=golden.scale_bits(None, d))
    job.place("q", numbers(rng, g, d))
    job.reserve("rows", 64)
    job.place("result", np.frombuffer(rng.bytes(AttentionResult.itemsize), np.uint8))
    return job


def tokens_job(
    rng: np.random.Generator,
    g: int,
    d: int,
    r: int,
    s: int,
    k_top: int,
    local: int,
    t: int = 0,
    numbers=normal,
    density: float | None = None,
) -> JobMemory:
    job = JobMemory(Mode.SPARF_TOKENS, g, d, r=r, tokens=s, inline_tokens=t, k_top=k_top, local=local)
    job.place("q", numbers(rng, g, d))
    bits = np.zeros(512, np.bool_)
    bits[rng.choice(d, r, replace=False)] = True
    bits[d:] = rng.random(512 - d) < 0.5
    job.place("rows", np.packbits(bits, bitorder="little"))
    columns = block_columns(numbers(rng, s, r))
    flags = np.ones(columns.shape[0] * 32, np.bool_)
    flags[s:] = False
    if density is not None:
        job.place("valid", valid_bitmap(rng, s, density))
        flags[:s] = golden.bitmap.to_flags(job._arrays["valid"], s)
    unused = np.broadcast_to(~flags.reshape(-1, 1, 32), columns.shape)
    columns[unused] = rng.integers(0, 1 << 16, int(unused.sum()))
    job.place("k", columns)
    if t:
        job.place("inline_scores", pad_scores(spread_scores(rng, g, t)))
    record = np.frombuffer(rng.bytes(AttentionResult.itemsize), AttentionResult).copy()
    record["scale"] = (rng.random(8) / np.sqrt(d)).astype(np.float32).view(np.uint32)
    job.place("result", record)
    job.reserve("out", -(-s // 512) * 64)
    return job


def check(engine: "native.FastEngine", memory: Memory, address: int = 0) -> int:
    """Run a job in both models; status word and every byte of memory must agree. Returns the status word."""
    expected = memory.copy()
    status = golden.job.run(expected, address, shapes=COMMAND_SHAPES)
    got = engine.attention(memory, address)
    assert Status(got) == Status(status)
    np.testing.assert_array_equal(memory, expected)
    return got


# ---- attention over all tokens ----


@pytest.mark.parametrize("mode", [Mode.EXACT, Mode.PARTIAL, Mode.SPARF_ATTEND], ids=lambda m: m.name)
@pytest.mark.parametrize("g", GROUPS)
def test_dense_jobs_equal_golden(engine: "native.FastEngine", mode: Mode, g: int) -> None:
    rng = np.random.default_rng([1, mode, g])
    shapes = [(32, 1, 0), (64, 63, 0), (96, 64, 1), (128, 65, 17), (160, 0, 5), (256, 200, 33)]
    for i, (d, s, t) in enumerate(shapes):
        numbers = NUMBERS[(i + g) % len(NUMBERS)]
        density = (None, 0.5, 0.03)[i % 3]
        assert check(engine, dense_job(rng, mode, g, d, s, t, numbers, density).image()) in (0, Status.EMPTY)


@pytest.mark.parametrize("numbers", NUMBERS, ids=lambda f: f.__name__)
@pytest.mark.parametrize("mode", [Mode.EXACT, Mode.PARTIAL], ids=lambda m: m.name)
def test_long_jobs_equal_golden(engine: "native.FastEngine", mode: Mode, numbers) -> None:
    rng = np.random.default_rng([2, mode])
    check(engine, dense_job(rng, mode, 2, 64, 2500, 40, numbers, 0.9).image())


@pytest.mark.parametrize("c", [0.0, -0.1, 1e-30, 2.0**100, -(2.0**100), 3.0])
def test_any_finite_scale(engine: "native.FastEngine", c: float) -> None:
    rng = np.random.default_rng(3)
    for numbers in (normal, any_finite):
        check(engine, dense_job(rng, Mode.EXACT, 4, 32, 150, 3, numbers, c=c).image())


@pytest.mark.parametrize("where", ["q", "k", "v", "inline_v"])
@pytest.mark.parametrize("pattern", [0x7C00, 0xFC00, 0x7E01, 0xFC01])
def test_non_finite_input_zeroes_the_results(engine: "native.FastEngine", where: str, pattern: int) -> None:
    rng = np.random.default_rng([4, pattern])
    for mode in (Mode.EXACT, Mode.PARTIAL, Mode.SPARF_ATTEND):
        job = dense_job(rng, mode, 5, 64, 70, 3)
        job._arrays[where].view(np.uint16)[rng.integers(job._arrays[where].size // 2)] = pattern
        assert check(engine, job.image()) == Status.NON_FINITE


def test_no_valid_token_is_empty(engine: "native.FastEngine") -> None:
    rng = np.random.default_rng(5)
    for mode in (Mode.EXACT, Mode.PARTIAL, Mode.SPARF_ATTEND):
        job = dense_job(rng, mode, 4, 32, 77, density=0.0)
        assert check(engine, job.image()) == Status.EMPTY
        job._arrays["q"].view(np.uint16)[7] = 0x7C00
        assert check(engine, job.image()) == Status.EMPTY | Status.NON_FINITE


@pytest.mark.parametrize("alpha", [0x7F800000, 0xFF800000, 0x7FC01234, 0x7F000000, 0xFF7FFFFF, 0x80000000, 1])
def test_blend_takes_any_alpha(engine: "native.FastEngine", alpha: int) -> None:
    rng = np.random.default_rng(6)
    job = dense_job(rng, Mode.SPARF_ATTEND, 2, 32, 40, numbers=few_values)
    job._arrays["result"].view(AttentionResult)["alpha"] = alpha
    check(engine, job.image())


@pytest.mark.parametrize("isa", ISAS)
def test_a_benchmarks_multiply_adds_are_all_computed(monkeypatch: pytest.MonkeyPatch, isa: str) -> None:
    engine = make_engine(monkeypatch, isa, 1)
    done = engine.multiply_adds(1000)  # each adds 1 to a sum that is returned
    assert 1000 <= done < 1000 + 12 * 8
    assert engine.multiply_adds(10 * done) == 10 * done


@pytest.mark.parametrize("isa", ISAS)
def test_engine_ignores_the_float_mode_of_the_thread(monkeypatch: pytest.MonkeyPatch, isa: str) -> None:
    """Threads inherit flush-to-zero from their creator. With it, subnormal binary16 numbers would be lost."""
    torch = pytest.importorskip("torch", reason="torch sets the processor's flush-to-zero mode")
    memory = dense_job(np.random.default_rng(7), Mode.PARTIAL, 1, 32, 1100, numbers=few_values, c=2.0**20).image()
    expected = memory.copy()
    assert torch.set_flush_denormal(True)
    try:
        status = make_engine(monkeypatch, isa, 2).attention(memory, 0)
    finally:
        torch.set_flush_denormal(False)
    assert status == golden.job.run(expected, 0)
    np.testing.assert_array_equal(memory, expected)


# ---- rounding boundaries ----


def half(*values: float) -> Half:
    return np.array(values, np.float16).view(np.uint16)


@pytest.mark.parametrize("at", [0, 29, 37])  # a bound on magnitudes must look at every column
def test_score_ties_reach_the_integers(engine: "native.FastEngine", at: int) -> None:
    """Between 16 and 32 a last place of binary32 is two scores (c = 1): its middle, and sums 2^-48 beside it."""
    job = dense_job(np.random.default_rng(8), Mode.EXACT, 1, 40, 64, c=1.0)
    q, k = np.zeros((1, 40), np.float16), np.zeros((64, 40), np.float16)
    q[0, at : at + 3] = 1.0, 2.0**-10, 2.0**-24
    for t in range(64):
        k[t, at : at + 3] = 16 + t % 8, (1, 3, 5, 7)[t // 8 % 4] * 2.0**-10, (t // 32 - 1) * 2.0**-24
    job._arrays["q"][:], job._arrays["k"][:] = q.view(np.uint8).ravel(), k.view(np.uint8).ravel()
    assert check(engine, job.image()) == 0
    assert engine.dots_exact == 64


@pytest.mark.parametrize("exponent", [0, 10, 24])
def test_binary32_ties_of_dot_products_reach_the_integers(engine: "native.FastEngine", exponent: int) -> None:
    """2^e * (1 + 2^-24) and 2^e * (1 + 3 * 2^-24) are ties of binary32; 2^-48 more or less decides them. Binary64 holds
    such sums up to 16, so that those are certain without integers.
    """
    e = exponent // 2
    q = np.zeros((2, 32), np.float16)
    q[:, :3] = 2.0**e, 2.0 ** (e - 12), 2.0**-24
    q[1] *= -1
    k = np.zeros((96, 32), np.float16)
    for t in range(96):
        k[t, :3] = 2.0**e, (1 + 2 * (t % 2)) * 2.0 ** (e - 12), (t // 2 % 3 - 1) * 2.0**-24
    expected = golden.gemv_rows(q, k)
    status, dots = engine.gemv_rows(q.view(np.uint16), k.view(np.uint16))
    assert status == expected.status == 0
    np.testing.assert_array_equal(dots, expected.dots)
    assert engine.dots_exact >= 64 if exponent > 4 else engine.dots_doubted == 0
    status, dots = engine.gemv_columns(q.view(np.uint16), golden.block_columns(k).view(np.uint16), 96)
    np.testing.assert_array_equal(dots, expected.dots)
    assert engine.dots_exact >= 128 if exponent > 4 else engine.dots_doubted == 0


@pytest.mark.parametrize("mode", [Mode.EXACT, Mode.PARTIAL], ids=lambda m: m.name)
def test_output_ties_reach_the_integers(engine: "native.FastEngine", mode: Mode) -> None:
    """Equal scores make outputs plain means. That of two neighbours is exactly half-way, and so is a sum of bits."""
    job = dense_job(np.random.default_rng(9), mode, 2, 32, 128, c=0.0)
    v = job._arrays["v"].view(np.uint16).reshape(128, 32)
    v[:64], v[64:] = 0x3C00 + np.arange(32), 0x3C01 + np.arange(32)
    if mode == Mode.PARTIAL:  # the mean of 128 numbers: 1 + 2^-24, with the last token's 2^-17
        v[:] = 0x3C00
        v[127] = half(2.0**-17)[0]
        v[126] = half(2.0)[0]
    assert check(engine, job.image()) == 0
    assert engine.outputs_exact >= 64


# Values whose mean is a tie of the output format, and values of tokens that weigh 2^-30 of those and keep it one.
OUTPUT_TIES = {
    Mode.EXACT: ((65504.0, 1.0, 1 + 2.0**-10, -65504.0), (1.5, 3 * 2.0**-12)),  # 1/2 + 2^-12
    Mode.PARTIAL: ((65504.0, 1.0, 1.0, 1.0, 1.0, 2.0**-22, 0.0, -65504.0), (1.0, 1.0, 2.0**-23)),  # 1/2 + 2^-25
}


@pytest.mark.parametrize("mode", list(OUTPUT_TIES), ids=lambda m: m.name)
def weighted_inline(mode: Mode, v: NDArray[np.float16], scores: NDArray[np.int32]) -> JobMemory:
    """A job of one head whose tokens, all in the inline tokens, have the scores [t] and values [t, d] given."""
    job = dense_job(np.random.default_rng(10), mode, 1, v.shape[1], 0, len(v))
    job._arrays["inline_v"][:] = v.view(np.uint8).ravel()
    job._arrays["inline_scores"][:] = pad_scores(scores[None]).view(np.uint8).ravel()
    return job


@pytest.mark.parametrize("mode", list(OUTPUT_TIES), ids=lambda m: m.name)
@pytest.mark.parametrize(("first", "distance"), [(0, 1), (1500, 1), (0, 40), (0, 200), (700, 130)])
def test_outputs_that_binary64_gets_wrong(engine: "native.FastEngine", mode: Mode, first: int, distance: int) -> None:
    """Large numbers cancel. They hide a term of 2^-54 that decides the tie of the others, within and across blocks."""
    heavy, light = OUTPUT_TIES[mode]
    order = [*((x, 0) for x in heavy[:-1]), *((x, -30 << 20) for x in light), (None, -30 << 20), (heavy[-1], 0)]
    t = first + len(order) * distance
    v = np.zeros((t, 40), np.float16)
    scores = np.full(t, -60 << 20, np.int32)  # tokens in between have no weight
    for i, (value, score) in enumerate(order):
        v[first + i * distance] = np.resize([2.0**-24, -(2.0**-24), 0.0], 40) if value is None else value
        scores[first + i * distance] = score
    for columns in (slice(1, 8), slice(25, 32), slice(32, 40)):  # a bound on magnitudes must look at every column
        before, some = engine.outputs_exact, np.zeros_like(v)
        some[:, columns] = v[:, columns]
        assert check(engine, weighted_inline(mode, some, scores).image()) == 0
        assert engine.outputs_exact >= before + 7


def test_small_terms_beside_a_large_sum_add_up(engine: "native.FastEngine") -> None:
    """One term per block, below half a last place of the running sum: together they exceed the error bound."""
    rng = np.random.default_rng(11)
    t, half_way = 1200 * 64, 600 * 64
    v = np.zeros((t, 64), np.float16)
    scores = np.full(t, -60 << 20, np.int32)
    scores[[0, 1, half_way]] = 0
    v[0], v[1], v[half_way] = 65504, rng.uniform(2.0**-6, 2.0**-3, 64), -65504
    v[half_way + 64 :: 64] = 2.0**-7 - 2.0**-18
    scores[half_way + 64 :: 64] = -31 << 20
    assert check(engine, weighted_inline(Mode.PARTIAL, v, scores).image()) == 0


def test_random_numbers_hardly_need_the_integers(engine: "native.FastEngine") -> None:
    job = dense_job(np.random.default_rng(10), Mode.EXACT, 1, 128, 2048)
    assert check(engine, job.image()) == 0
    assert engine.dots_exact <= 2
    assert engine.dots_doubted < 0.05 * 2048


# ---- SparF ----


@pytest.mark.parametrize("g", GROUPS)
def test_rows_jobs_equal_golden(engine: "native.FastEngine", g: int) -> None:
    rng = np.random.default_rng([11, g])
    for d, r, numbers in [(32, 1, normal), (128, 32, normal), (256, 256, any_finite), (64, 7, few_values)]:
        job = rows_job(rng, g, d, r, numbers)
        assert check(engine, job.image()) == 0
        job._arrays["q"][:] = 0  # all equal, so the scale needs no correction
        assert check(engine, job.image()) == 0
        job._arrays["q"].view(np.uint16)[d // 2] = 0xFE00
        assert check(engine, job.image()) == Status.NON_FINITE


@pytest.mark.parametrize("g", GROUPS)
def test_tokens_jobs_equal_golden(engine: "native.FastEngine", g: int) -> None:
    rng = np.random.default_rng([12, g])
    shapes = [  # d, r, s, k_top, local, inline
        (32, 1, 1, 1, 0, 0),
        (64, 5, 31, 8, 8, 0),
        (128, 32, 700, 100, 16, 20),
        (256, 256, 65, 65, 1, 3),
        (96, 17, 1500, 1, 0, 0),
    ]
    for i, (d, r, s, k_top, local, t) in enumerate(shapes):
        numbers = NUMBERS[(i + g) % len(NUMBERS)]
        job = tokens_job(rng, g, d, r, s, k_top, local, t, numbers, (None, 0.6, 0.02)[i % 3])
        assert check(engine, job.image()) in (0, Status.EMPTY)


def test_tokens_job_without_finite_numbers_or_tokens(engine: "native.FastEngine") -> None:
    rng = np.random.default_rng(13)
    assert check(engine, tokens_job(rng, 2, 32, 3, 50, 5, 2, density=0.0).image()) == Status.EMPTY
    for name, at in (("q", 5), ("k", 33)):
        job = tokens_job(rng, 2, 32, 3, 50, 5, 2)
        job._arrays[name].view(np.uint16)[at] = 0x7C00
        assert check(engine, job.image()) == Status.NON_FINITE


def test_masked_tokens_weigh_nothing_even_at_the_lowest_score(engine: "native.FastEngine") -> None:
    job = tokens_job(np.random.default_rng(23), 4, 32, 8, 600, 50, 5, density=0.5)
    job._arrays["q"].view(np.uint16)[:] &= 0x7FFF
    job._arrays["k"].view(np.uint16)[:] = 0x3C00
    job._arrays["result"].view(AttentionResult)["scale"] = np.float32(-(2.0**100)).view(np.uint32)
    assert check(engine, job.image()) == 0


# ---- descriptors ----


def job_of(mode: Mode, rng: np.random.Generator) -> JobMemory:
    if mode == Mode.SPARF_ROWS:
        return rows_job(rng, 2, 64, 9)
    if mode == Mode.SPARF_TOKENS:
        return tokens_job(rng, 2, 64, 9, 100, 20, 4, t=3, density=0.8)
    return dense_job(rng, mode, 2, 64, 100, 3, density=0.8)


BAD_FIELDS = {
    "version": (0, 2),
    "mode": (5, 255),
    "group": (0, 17, 129, 255),
    "head_dim": (0, 16, 33, 288, 65535),
    "r": (0, 65, 300),
    "tokens": (0, 131073, 0xFFFFFFFF),
    "inline_tokens": (131072, 0xFFFFFFFF),
    "k_top": (0, 101, 16385),
    "local": (21, 0xFFFFFFFF),
    "scale_log2e": (0x7F800000, 0xFF800001),
    "count": (0, 131073),
} | {name: (1, 63, 1 << 40, (1 << 64) - 64) for name in AttentionJob.names[12:22]}


@pytest.mark.parametrize("mode", sorted(golden.job.ALL_MODES), ids=lambda m: m.name)
def test_bad_descriptors_write_nothing(monkeypatch: pytest.MonkeyPatch, mode: Mode) -> None:
    engine = make_engine(monkeypatch, "scalar", 1)
    job = job_of(mode, np.random.default_rng([14, mode]))
    for field, values in BAD_FIELDS.items():
        for value in values:
            memory = job.image()
            memory[: AttentionJob.itemsize].view(AttentionJob)[field] = value
            before = memory.copy()
            if check(engine, memory) & 0xFFFF:
                np.testing.assert_array_equal(memory, before)


def test_content_that_a_tokens_job_refuses(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = make_engine(monkeypatch, "scalar", 1)
    job = tokens_job(np.random.default_rng(15), 4, 64, 9, 40, 5, 2)
    job._arrays["rows"][:8] ^= 1
    assert check(engine, job.image()) == Status.BAD_R
    job._arrays["result"].view(AttentionResult)["scale"][0, 3] = 0x7F800000
    assert check(engine, job.image()) == Status.BAD_R | Status.BAD_SCALE


def test_descriptor_outside_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = make_engine(monkeypatch, "scalar", 1)
    memory = job_of(Mode.EXACT, np.random.default_rng(16)).image()
    for address in (1, 32, memory.size // 64 * 64, memory.size + 64, (1 << 64) - 64):
        assert check(engine, memory, address) != 0


# ---- plain calls ----


def test_products_equal_golden(engine: "native.FastEngine") -> None:
    rng = np.random.default_rng(17)
    for numbers in NUMBERS:
        for g, d, s in [(1, 32, 1), (4, 128, 600), (5, 96, 65), (8, 256, 130), (2, 64, 64)]:
            q, k = numbers(rng, g, d), numbers(rng, s, d)
            status, dots = engine.gemv_rows(q, k)
            assert status == 0
            np.testing.assert_array_equal(dots, golden.gemv_rows(q, k).dots)
            r = int(rng.integers(1, d + 1))
            q, columns = q[:, :r].copy(), golden.block_columns(k[:, :r])
            status, dots = engine.gemv_columns(q, columns, s)
            assert status == 0
            np.testing.assert_array_equal(dots, golden.gemv_columns(q, columns, s).dots)


def test_accumulation_is_exact(engine: "native.FastEngine") -> None:
    rng = np.random.default_rng(18)
    for numbers, (g, d, s) in zip(NUMBERS, [(1, 32, 1), (4, 128, 700), (8, 64, 5000), (5, 256, 99)], strict=True):
        p = (rng.integers(0, 1 << 20, (g, s)) << rng.integers(0, 12, (g, s))).astype(np.uint32)
        p[rng.random((g, s)) < 0.1] = 1 << 31
        v = numbers(rng, s, d)
        status, acc = engine.gemv_accumulate(p, v)
        assert status == 0
        np.testing.assert_array_equal(acc, golden.gemv_accumulate(p, v).acc)
    v = np.full((3000, 32), 0x7BFF, np.uint16)
    p = np.full((1, 3000), 1 << 31, np.uint32)
    np.testing.assert_array_equal(engine.gemv_accumulate(p, v)[1], golden.gemv_accumulate(p, v).acc)


def test_plain_calls_report_bad_sizes_and_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = make_engine(monkeypatch, "scalar", 1)
    rng = np.random.default_rng(19)
    for g, d, s in [(3, 32, 4), (1, 48, 4), (1, 32, 0), (3, 16, 0)]:
        q, k, p = normal(rng, g, d), normal(rng, s, d), np.ones((g, s), np.uint32)
        assert engine.gemv_rows(q, k)[0] == golden.gemv_rows(q, k).status
        assert engine.gemv_accumulate(p, k)[0] == golden.gemv_accumulate(p, k).status
        assert engine.gemv_columns(q, golden.block_columns(k), s)[0] == (
            golden.gemv_columns(q, golden.block_columns(k), s).status
        )
    q, k, p = normal(rng, 2, 32), normal(rng, 40, 32), np.ones((2, 40), np.uint32)
    k[39, 31] = 0x7C00
    columns = golden.block_columns(k)
    results = engine.gemv_rows(q, k), engine.gemv_columns(q, columns, 40), engine.gemv_accumulate(p, k)
    for status, values in results:
        assert status == Status.NON_FINITE
        assert not values.any()
    assert engine.gemv_columns(q, columns, 40)[0] == Status.NON_FINITE
    columns[1, :, 8:] = 0x7E00  # lanes beyond the last token
    columns[1, :, 7] = 0
    assert engine.gemv_columns(q, columns, 40)[0] == 0


def score_sets(rng: np.random.Generator) -> Iterator[NDArray[np.int32]]:
    yield np.array([-(1 << 31)], np.int32)
    yield np.array([(1 << 31) - 1, -(1 << 31)], np.int32)
    yield np.arange(-(40 << 20), 1, 997, np.int32)  # every exponent of p down to 0
    yield spread_scores(rng, 1000)
    yield rng.integers(-(3 << 20), 3 << 20, 129).astype(np.int32)


def test_softmax_equals_golden(engine: "native.FastEngine") -> None:
    rng = np.random.default_rng(20)
    for dense in score_sets(rng):
        for valid in (None, valid_bitmap(rng, dense.size, 0.5)):
            for inline in (None, spread_scores(rng, 7)):
                expected = golden.softmax(dense, valid, inline)
                status, p, maximum, total = engine.softmax(dense, valid, inline)
                assert (status, maximum, total) == (expected.status, expected.max, expected.sum)
                np.testing.assert_array_equal(p, expected.p)
    empty = np.zeros(0, np.int32)
    assert engine.softmax(empty)[0] == golden.softmax(empty).status == Status.BAD_LENGTH
    assert engine.softmax(np.zeros(9, np.int32), np.zeros(2, np.uint8))[0] == Status.EMPTY


@pytest.mark.parametrize("key_type", list(KeyType), ids=lambda t: t.name)
def test_argtopk_equals_golden(monkeypatch: pytest.MonkeyPatch, key_type: KeyType) -> None:
    engine = make_engine(monkeypatch, "scalar", 1)
    rng = np.random.default_rng([21, key_type])
    bits, dtype = (16, np.uint16) if key_type == KeyType.MAGNITUDE16 else (32, np.uint32)
    infinity = 0x7C00 if bits == 16 else 0x7F800000
    sign = 1 << (bits - 1)
    for n in (1, 2, 63, 513, 3000):
        spread = rng.integers(0, infinity, n) | rng.integers(0, 2, n) * sign
        ties = rng.choice(np.array([0, sign, infinity - 1, sign | 1, 1]), n)
        for keys in (spread.astype(dtype), ties.astype(dtype)):
            for k in {0, 1, n // 2, n, n + 1}:
                expected = golden.argtopk(keys, k, key_type)
                status, indices, bitmap = engine.argtopk(keys, k)
                assert Status(status) == expected.status
                np.testing.assert_array_equal(indices, expected.indices)
                np.testing.assert_array_equal(bitmap, expected.bitmap)
            keys[rng.integers(n)] = infinity | sign
            assert engine.argtopk(keys, 1)[0] == Status.NON_FINITE
    keys = np.zeros(16390, dtype)
    assert engine.argtopk(keys, 16384)[0] == 0
    assert engine.argtopk(keys, 16385)[0] == Status.BAD_K


def test_page_filter_equals_golden(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = make_engine(monkeypatch, "scalar", 1)
    rng = np.random.default_rng(22)
    for page_bytes, row_bytes in [(4096, 32), (4096, 96), (8192, 512), (16384, 480), (4096, 48), (4000, 64), (0, 0)]:
        pages = rng.integers(0, 256, 5 * 4096 if page_bytes < 4096 else 5 * page_bytes, np.uint8)
        capacity = 5 * (page_bytes // max(row_bytes, 1))
        for rows in {0, 1, capacity // 2, capacity, capacity + 1}:
            for density in (0.0, 0.3, 1.0):
                bitmap = valid_bitmap(rng, max(rows, 1), density)
                expected = golden.page_filter(pages, bitmap, rows, row_bytes, page_bytes)
                status, kept, seen, number, needed = engine.page_filter(pages, bitmap, rows, row_bytes, page_bytes)
                assert (Status(status), seen, number) == (expected.status, expected.rows_seen, expected.rows_kept)
                np.testing.assert_array_equal(kept, expected.rows)
                np.testing.assert_array_equal(needed, expected.page_needed)


def test_unknown_instruction_set_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KVDRIVE_ISA", "mmx")
    with pytest.raises(ValueError, match="mmx"):
        native.Engine("fast")
