"""Jobs in a memory image: every check bit, and the same bits as the direct calls."""

import numpy as np
import pytest

import golden
from golden import abi, job
from golden.abi import Mode, Status

GUARD = 0xA5
JOB = 64  # address of the descriptor


class Image:
    """A memory with a descriptor at JOB and arrays behind it, a guard beat after each."""

    def __init__(self, mode, **fields):
        self.memory = np.full(JOB + 128 + 64, GUARD, np.uint8)
        self.places = {}
        self.set(version=abi.ABI_VERSION, mode=mode, group=1, head_dim=32, scale_log2e=golden.scale_bits(None, 32))
        for name in abi.AttentionJob.names:
            if name not in ("version", "mode", "group", "head_dim", "scale_log2e"):
                self.descriptor[name] = 0
        self.set(**fields)

    @property
    def descriptor(self):
        return self.memory[JOB : JOB + 128].view(abi.AttentionJob)[0]

    @property
    def record(self):
        return self.read("result").view(abi.AttentionResult)[0]

    def set(self, **fields):
        for name, value in fields.items():
            self.descriptor[name] = value
        return self

    def place(self, **arrays):
        for name, array in arrays.items():
            data = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
            start = self.memory.size
            room = np.full(-(-data.size // 64) * 64 + 64, GUARD, np.uint8)
            room[: data.size] = data
            self.memory = np.concatenate([self.memory, room])
            self.places[name] = (start, data.size)
            self.set(**{name: start})
        return self

    def read(self, name, dtype=np.uint8):
        start, size = self.places[name]
        return self.memory[start : start + size].view(dtype)

    def check(self):
        return job.check(self.descriptor, self.memory, JOB)

    def run(self):
        return job.run(self.memory, JOB)

    def outside(self, *outputs):
        """The memory without these arrays, which a job must not change."""
        keep = np.ones(self.memory.size, np.bool_)
        for name in outputs:
            start, size = self.places[name]
            keep[start : start + size] = False
        return self.memory[keep].copy()


def normal(rng, *shape):
    return rng.standard_normal(shape).astype(np.float16)


def pad_scores(x):
    return np.pad(x, ((0, 0), (0, -x.shape[1] % 16)), constant_values=0x7FFFFFFF)


def old_record():
    """A record with a non-zero pattern in every field, which shows the fields that a job keeps."""
    record = np.full(abi.AttentionResult.itemsize, 0x3D, np.uint8)
    return record.view(abi.AttentionResult)


class Case:
    """One set of arrays, available as images of every mode and as arguments of the direct calls."""

    def __init__(self, g=2, s=70, d=64, inline=5, masked=True, seed=1):
        rng = np.random.default_rng(seed)
        self.g, self.s, self.d, self.inline = g, s, d, inline
        self.q, self.k, self.v, self.inline_v = (normal(rng, n, d) for n in (g, s, s, inline))
        self.x = rng.integers(-(4 << 20), 4 << 20, (g, inline)).astype(np.int32)
        self.valid = np.full(-(-max(s, 1) // 512) * 64, GUARD, np.uint8) if masked else None
        self.c = golden.scale_bits(None, d)

    def sizes(self):
        return {
            "group": self.g,
            "head_dim": self.d,
            "tokens": self.s,
            "inline_tokens": self.inline,
            "scale_log2e": self.c,
        }

    def optional(self):
        arrays = {} if self.valid is None else {"valid": self.valid}
        return arrays | ({"inline_scores": pad_scores(self.x)} if self.inline else {})

    def attention_image(self, mode, **more):
        image = Image(mode, **(self.sizes() | more))
        image.place(q=self.q, result=old_record(), **self.optional())
        if self.s:
            image.place(k=self.k, v=self.v)
        if self.inline:
            image.place(inline_v=self.inline_v)
        return image.place(out=np.full(self.g * self.d * (4 if mode == Mode.PARTIAL else 2), 0x11, np.uint8))

    def attention(self, partial=False):
        return golden.attention(
            self.q, self.k, self.v, valid=self.valid, inline_scores=self.x, inline_v=self.inline_v, partial=partial
        )

    def rows_image(self, r):
        image = Image(Mode.SPARF_ROWS, **(self.sizes() | {"r": r}))
        return image.place(q=self.q, rows=np.full(64, 0x11, np.uint8), result=old_record())

    def tokens_image(self, r, k_top, local):
        first = golden.sparf_rows(self.q, r, self.c)
        embedding = np.flatnonzero(golden.bitmap.to_flags(first.rows, self.d))
        columns = golden.block_columns(self.k[:, embedding])
        record = old_record()
        record["scale"][0, : self.g] = first.scale
        image = Image(Mode.SPARF_TOKENS, **(self.sizes() | {"r": r, "k_top": k_top, "local": local}))
        image.place(q=self.q, rows=first.rows, k=columns, result=record, **self.optional())
        image.place(out=np.full(-(-self.s // 512) * 64, 0x11, np.uint8))
        arguments = (self.q, columns, first.rows, self.s, k_top, local, first.scale, self.valid, self.x)
        return image, arguments

    def attend_image(self):
        alpha = np.linspace(0.25, 0.75, self.g, dtype=np.float32).view(np.uint32)
        v_sum, count = golden.v_sum(self.v) * 3, self.s * 3
        record = old_record()
        record["alpha"][0, : self.g] = alpha
        image = self.attention_image(Mode.SPARF_ATTEND, count=count).place(v_sum=v_sum, result=record)
        return image, (self.q, self.k, self.v, v_sum, count, alpha, self.c, self.valid, self.x, self.inline_v)


def padded(values, dtype):
    result = np.zeros(8, dtype)
    result[: len(values)] = values
    return result.tolist()


CASES = [
    {},
    {"g": 1, "s": 1, "d": 32, "inline": 0, "masked": False},
    {"g": 8, "s": 600, "d": 32, "inline": 17},
    {"g": 5, "s": 0},
]


@pytest.mark.parametrize("shape", CASES)
@pytest.mark.parametrize("mode", [Mode.EXACT, Mode.PARTIAL])
def test_exact_and_partial_equal_the_direct_call(mode, shape):
    case = Case(**shape)
    image = case.attention_image(mode)
    before = image.outside("out", "result")
    assert image.run() == 0
    expected = case.attention(partial=mode == Mode.PARTIAL)
    assert image.read("out").tobytes() == expected.out.tobytes()
    record = image.record
    assert (int(record["status"]), int(record["selected"])) == (0, 0)
    assert record["max"].tolist() == padded(expected.max, np.int32)
    assert record["sum"].tolist() == padded(expected.sum, np.uint64)
    for name in ("reserved0", "reserved1", "scale", "alpha"):
        assert not record[name].any()
    np.testing.assert_array_equal(image.outside("out", "result"), before)


@pytest.mark.parametrize(("g", "d", "r"), [(1, 32, 1), (4, 128, 16), (8, 256, 256)])
def test_sparf_rows_equals_the_direct_call(g, d, r):
    case = Case(g=g, d=d)
    image = case.rows_image(r)
    before = image.outside("rows", "result")
    assert image.run() == 0
    expected = golden.sparf_rows(case.q, r, case.c)
    np.testing.assert_array_equal(image.read("rows"), expected.rows)
    record, old = image.record, old_record()[0]
    assert (int(record["status"]), int(record["selected"])) == (0, r)
    assert record["scale"].tolist() == padded(expected.scale, np.uint32)
    for name in ("reserved0", "reserved1", "max", "sum", "alpha"):
        np.testing.assert_array_equal(record[name], old[name])
    np.testing.assert_array_equal(image.outside("rows", "result"), before)


@pytest.mark.parametrize("shape", CASES[:3])
def test_sparf_tokens_equals_the_direct_call(shape):
    case = Case(**shape)
    image, arguments = case.tokens_image(r=8, k_top=min(9, case.s), local=1)
    before = image.outside("out", "result")
    scale = image.record["scale"].copy()
    assert image.run() == 0
    expected = golden.sparf_tokens(*arguments)
    np.testing.assert_array_equal(image.read("out"), expected.bitmap)
    record, old = image.record, old_record()[0]
    assert (int(record["status"]), int(record["selected"])) == (0, expected.selected)
    assert record["max"].tolist() == padded(expected.max, np.int32)
    assert record["sum"].tolist() == padded(expected.sum, np.uint64)
    assert record["alpha"].tolist() == padded(expected.alpha, np.uint32)
    np.testing.assert_array_equal(record["scale"], scale)
    np.testing.assert_array_equal(record["reserved1"], old["reserved1"])
    np.testing.assert_array_equal(image.outside("out", "result"), before)


@pytest.mark.parametrize("shape", CASES)
def test_sparf_attend_equals_the_direct_call(shape):
    case = Case(**shape)
    image, arguments = case.attend_image() if case.s else attend_inline_only(case)
    before = image.outside("out", "result")
    assert image.run() == 0
    expected = golden.sparf_attend(*arguments)
    assert image.read("out").tobytes() == expected.out.tobytes()
    record, old = image.record, old_record()[0]
    assert int(record["status"]) == 0
    assert record["max"].tolist() == padded(expected.max, np.int32)
    assert record["sum"].tolist() == padded(expected.sum, np.uint64)
    for name in ("selected", "scale", "reserved0", "reserved1"):
        np.testing.assert_array_equal(record[name], old[name])
    np.testing.assert_array_equal(image.outside("out", "result"), before)


def attend_inline_only(case):
    """No chosen tokens: the inline tokens alone, and a mean over three tokens."""
    image, arguments = case.attend_image()
    image.set(count=3)
    return image, (*arguments[:4], 3, *arguments[5:])


def test_the_three_sparf_jobs_share_one_record():
    case = Case(g=4, s=200, d=64, inline=6, masked=False)
    rows = case.rows_image(16)
    rows.run()
    tokens, _ = case.tokens_image(16, 20, 4)
    tokens.read("result")[:] = rows.read("result")
    tokens.run()
    chosen = golden.bitmap.to_flags(tokens.read("out").copy(), case.s)
    whole = golden.sparf(case.q, case.k, case.v, r=16, k_top=20, local=4, inline_scores=case.x, inline_v=case.inline_v)
    v_sum = golden.v_sum(case.v) + golden.v_sum(case.inline_v)
    case.k, case.v, case.s = case.k[chosen], case.v[chosen], int(chosen.sum())
    attend = case.attention_image(Mode.SPARF_ATTEND, count=206).place(v_sum=v_sum, result=tokens.read("result"))
    assert attend.run() == 0
    assert attend.read("out").tobytes() == whole.out.tobytes()
    record = attend.record
    assert int(record["selected"]) == 20
    assert record["alpha"].tolist() == padded(whole.alpha, np.uint32)


@pytest.mark.parametrize("mode", sorted(job.ALL_MODES))
def test_non_finite_data_writes_zeros_and_the_bit(mode):
    image = image_of(mode)
    image.read("q", np.uint16)[-1] = 0x7C00
    assert image.run() == Status.NON_FINITE
    assert int(image.record["status"]) == Status.NON_FINITE
    written = {
        Mode.SPARF_ROWS: ("scale", "selected"),
        Mode.SPARF_TOKENS: ("max", "sum", "alpha", "selected"),
    }.get(mode, ("max", "sum"))
    assert not image.read("rows" if mode == Mode.SPARF_ROWS else "out").any()
    assert not any(image.record[name].any() for name in written)


@pytest.mark.parametrize("mode", [Mode.EXACT, Mode.PARTIAL, Mode.SPARF_TOKENS, Mode.SPARF_ATTEND])
def test_empty_jobs_write_zeros_and_the_bit(mode):
    case = Case(inline=0)
    case.valid[:9] = 0
    image = image_of(mode, case)
    assert image.run() == Status.EMPTY
    assert int(image.record["status"]) == Status.EMPTY
    assert not image.read("out").any()
    assert not image.record["sum"].any()


def image_of(mode, case=None):
    """A valid job of each mode."""
    case = case or Case()
    if mode == Mode.SPARF_ROWS:
        return case.rows_image(8)
    if mode == Mode.SPARF_TOKENS:
        return case.tokens_image(8, 9, 2)[0]
    return case.attend_image()[0] if mode == Mode.SPARF_ATTEND else case.attention_image(mode)


USED = {
    Mode.EXACT: ["q", "k", "v", "valid", "inline_scores", "inline_v", "out", "result"],
    Mode.PARTIAL: ["q", "k", "v", "valid", "inline_scores", "inline_v", "out", "result"],
    Mode.SPARF_ROWS: ["q", "rows", "result"],
    Mode.SPARF_TOKENS: ["q", "k", "rows", "valid", "inline_scores", "out", "result"],
    Mode.SPARF_ATTEND: ["q", "k", "v", "v_sum", "valid", "inline_scores", "inline_v", "out", "result"],
}
ADDRESSES = ["q", "k", "v", "inline_scores", "inline_v", "valid", "rows", "v_sum", "out", "result"]


@pytest.mark.parametrize("mode", sorted(job.ALL_MODES))
@pytest.mark.parametrize("name", ADDRESSES)
def test_addresses_are_checked_where_they_are_used(mode, name):
    used = name in USED[mode]
    image = image_of(mode)
    assert image.check() == 0
    before = int(image.descriptor[name])
    image.set(**{name: before + 32})
    assert image.check() == (Status.UNALIGNED if used else 0)
    image.set(**{name: 2**64 - 64})
    assert image.check() == (Status.OUT_OF_RANGE if used else 0)
    image.set(**{name: 2**64 - 1})
    assert image.check() == (Status.OUT_OF_RANGE | Status.UNALIGNED if used else 0)


@pytest.mark.parametrize("mode", sorted(job.ALL_MODES))
def test_arrays_may_touch_the_end_of_memory_but_not_pass_it(mode):
    for name in USED[mode]:
        image = image_of(mode)
        _, size = image.places[name]
        room = image.read(name).copy()
        end = image.memory.size
        image.memory = np.concatenate([image.memory, room])
        image.set(**{name: end})
        in_use = job.arrays(image.descriptor)[name].size
        assert in_use == size
        assert image.check() == 0, name
        image.memory = image.memory[:-1].copy()
        assert image.check() == Status.OUT_OF_RANGE, name


@pytest.mark.parametrize(
    ("mode", "fields", "status"),
    [
        *((mode, {"version": 2}, Status.BAD_VERSION) for mode in sorted(job.ALL_MODES)),
        (5, {}, Status.BAD_MODE),
        (255, {"version": 0, "group": 3}, Status.BAD_MODE | Status.BAD_VERSION),
        *((mode, {"group": 0}, Status.BAD_GROUP) for mode in sorted(job.ALL_MODES)),
        *((mode, {"group": 3}, Status.BAD_GROUP) for mode in (Mode.EXACT, Mode.SPARF_ROWS)),
        *((mode, {"head_dim": 33, "r": 8}, Status.BAD_HEAD_DIM) for mode in sorted(job.ALL_MODES)),
        *((mode, {"head_dim": 0}, Status.BAD_HEAD_DIM) for mode in (Mode.EXACT, Mode.SPARF_ATTEND)),
        *((mode, {"tokens": 0, "inline_tokens": 0}, Status.BAD_LENGTH) for mode in (Mode.EXACT, Mode.SPARF_ATTEND)),
        (Mode.SPARF_TOKENS, {"tokens": 0, "inline_tokens": 0}, Status.BAD_LENGTH | Status.BAD_K),
        (Mode.SPARF_TOKENS, {"tokens": 0}, Status.BAD_LENGTH | Status.BAD_K),
        (Mode.EXACT, {"tokens": abi.MAX_TOKENS - 4}, Status.BAD_LENGTH | Status.OUT_OF_RANGE),
        (Mode.EXACT, {"tokens": 2**32 - 1, "inline_tokens": 2**32 - 1}, Status.BAD_LENGTH | Status.OUT_OF_RANGE),
        (Mode.SPARF_ROWS, {"tokens": 2**32 - 1, "inline_tokens": 2**32 - 1}, 0),
        *((Mode.SPARF_ATTEND, {"count": n}, Status.BAD_LENGTH) for n in (0, abi.MAX_TOKENS + 1)),
        (Mode.EXACT, {"count": 0, "r": 0, "k_top": 0, "local": 7}, 0),
        *((mode, {"r": 0}, Status.BAD_R) for mode in (Mode.SPARF_ROWS, Mode.SPARF_TOKENS)),
        (Mode.SPARF_ROWS, {"r": 65}, Status.BAD_R),
        *((Mode.SPARF_TOKENS, {"r": r}, Status.BAD_R) for r in (7,)),
        *((Mode.SPARF_TOKENS, {"k_top": k, "local": 0}, Status.BAD_K) for k in (0, 71, abi.MAX_TOP_K + 1)),
        (Mode.SPARF_TOKENS, {"k_top": 2, "local": 3}, Status.BAD_K),
        (Mode.SPARF_TOKENS, {"k_top": 70, "local": 70}, 0),
        *(
            (mode, {"scale_log2e": 0x7F800000}, Status.BAD_SCALE)
            for mode in sorted(job.ALL_MODES)
            if mode != Mode.SPARF_TOKENS
        ),
        (Mode.SPARF_TOKENS, {"scale_log2e": 0x7F800000}, 0),
        (Mode.EXACT, {"scale_log2e": 0xFFC00001}, Status.BAD_SCALE),
    ],
)
def test_descriptor_checks(mode, fields, status):
    image = image_of(mode) if mode in job.ALL_MODES else image_of(Mode.EXACT).set(mode=mode)
    image.set(**fields)
    image.memory = np.pad(image.memory, (0, 1024))  # room for arrays that a bad size makes a little larger
    assert image.check() == status
    before = image.memory.copy()
    if status:
        assert image.run() == status
        np.testing.assert_array_equal(image.memory, before)


def test_tokens_checks_what_rows_wrote():
    image = image_of(Mode.SPARF_TOKENS)
    image.read("rows")[8] = 255  # bits beyond head_dim are not counted
    assert image.check() == 0
    image.read("rows")[0] ^= 1
    assert image.check() == Status.BAD_R
    image.record["scale"][1] = 0x7FC00000
    assert image.check() == Status.BAD_R | Status.BAD_SCALE
    image.set(k_top=0)  # after another failed check, memory is not read
    assert image.check() == Status.BAD_K
    image = image_of(Mode.SPARF_TOKENS)
    image.record["scale"][2:] = 0x7FC00000  # heads beyond the group
    assert image.check() == 0


def test_descriptor_that_is_unaligned_or_out_of_range():
    memory = np.zeros(256, np.uint8)
    assert job.run(memory, 32) == Status.UNALIGNED
    assert job.run(memory, 192) == Status.OUT_OF_RANGE
    assert job.run(memory, 2**63 + 1) == Status.OUT_OF_RANGE | Status.UNALIGNED
    assert job.run(memory, 128) == Status.BAD_VERSION | Status.BAD_GROUP | Status.BAD_HEAD_DIM | Status.BAD_LENGTH


def test_unused_arrays_may_have_any_address():
    case = Case(s=0, masked=True)
    image = case.attention_image(Mode.EXACT).set(k=1, v=2**64 - 1, valid=3)
    assert image.run() == 0
    case = Case(inline=0)
    image = case.attention_image(Mode.EXACT).set(inline_scores=1, inline_v=2**64 - 1)
    assert image.run() == 0
