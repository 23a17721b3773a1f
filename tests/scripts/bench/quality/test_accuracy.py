"""The accuracy of attention at short lengths."""

import numpy as np
import pytest
from pairs import by_value

import golden

pytest.importorskip("torch", reason="torch is not installed on this machine: the report compares with it")
from bench.quality import accuracy
from bench.setup import Setup
from kvdrive.errors import InputError

METHODS = accuracy.METHODS


@by_value({"family": accuracy.FAMILIES, "tokens": [2, 128, 514]})
def test_ours_is_the_smallest_or_at_the_floor(family, tokens):
    row = accuracy.measure(family, tokens, heads=16)
    assert accuracy.verdict(row) in ("smallest", "floor"), row
    assert all(row.rms[accuracy.FLOOR] <= row.rms[name] for name in (accuracy.OURS, "torch fp16", accuracy.FP32))


@pytest.mark.parametrize("family", accuracy.FAMILIES)
def test_data_depends_on_the_seed_only(family):
    a, b = (accuracy.FAMILIES[family].make(np.random.default_rng(5), 2, 64) for _ in range(2))
    for x, y in zip(a, b, strict=True):
        assert x.dtype == np.float16
        assert x.tobytes() == y.tobytes()
        assert golden.half.is_finite(x).all()


def test_families_are_what_they_say():
    rng = np.random.default_rng(6)
    q, k, _ = accuracy.FAMILIES["cancelling"].make(rng, 2, 64)
    terms = q.astype(np.float64) * k
    assert (terms[..., :56] == -terms[..., 56:112]).all()
    assert np.abs(terms[..., :56]).mean() > 1000
    _, k, v = accuracy.FAMILIES["subnormal"].make(rng, 2, 64)
    assert max(np.abs(k).max(), np.abs(v).max()) < 2.0**-14
    _, k, _ = accuracy.FAMILIES["all equal"].make(rng, 2, 64)
    assert (k == k[:, :1]).all()
    x, _, _ = accuracy.FAMILIES["heavy-tailed"].make(rng, 2, 4096)
    assert np.abs(accuracy.FAMILIES["heavy-tailed"].make(rng, 2, 4096)[1]).max() > 50 * np.abs(x).mean()


def test_the_fp32_engine_is_attention():
    data = accuracy.FAMILIES["normal"].make(np.random.default_rng(7), 2, 300)
    assert np.abs(accuracy.fp32_engine(*data) - accuracy.exact(*data)).max() < 2.0**-11


def row_with(ours, other, floor=1.0):
    rms = dict.fromkeys(METHODS, other) | {accuracy.OURS: ours, accuracy.FLOOR: floor}
    return accuracy.Row(1, "normal", 1, rms, rms, {})


def test_verdict():
    assert accuracy.verdict(row_with(2.0, 2.0)) == "smallest"
    assert accuracy.verdict(row_with(1.00004, 1.0)) == "floor"
    assert accuracy.verdict(row_with(2.0, 1.9999)) is None


@pytest.mark.parametrize("tokens", [2, 4096, 131072])
def test_dropped_mass_stays_below_its_bound(tokens):
    share = accuracy.lost_mass(tokens)
    assert 0.99 * (tokens - 1) * 2.0**-31 < share < tokens * 2.0**-31


def test_a_row_for_each_family_and_an_error_where_ours_is_worse(monkeypatch):
    rms, worst, mass = (block.tables[0] for block in accuracy.run(Setup(quick=True, threads=1)))
    assert (
        [row[:2] for row in rms.rows] == [row[:2] for row in worst.rows] == [["128", one] for one in accuracy.FAMILIES]
    )
    assert [row[0] for row in mass.rows] == ["128"]
    monkeypatch.setattr(accuracy, "ours", lambda q, k, v: accuracy.fp32_engine(q, k, v) * np.float16(1.5))
    with pytest.raises(InputError, match="ours is not the smallest: normal at 128 tokens"):
        accuracy.run(Setup(quick=True, threads=1))
