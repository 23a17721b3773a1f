"""The benchmark of the cpu target reads what it says it reads, around the page cache."""

from bench.attention import disk as bench
from bench.attention.states import Shape
from bench.decode.prefill import Prefill
from bench.rounds import Rounds

SHAPE = Shape(layers=2, kv_heads=2, group=2, head_dim=64, tokens=8192)  # 8 MiB of K and V


def test_every_contender_is_measured_on_the_same_keys_and_values(tmp_path, monkeypatch):
    monkeypatch.setattr(bench, "WARM_UP", 0.0)
    found = bench.measure(tmp_path, SHAPE, 1, 1)
    assert found.names == [bench.DISK, bench.EXACT, *bench.SPARSE, bench.CACHED, bench.PACKED]
    assert found.values(bench.DISK, "bytes") == found.values(bench.EXACT, "bytes") == [SHAPE.kv_bytes]
    assert found.median(bench.EXACT, "reads") <= 3 * SHAPE.kv_bytes >> 20
    scattered, runs = (found.median(name, "bytes") for name in bench.SPARSE)
    assert 0 < runs < scattered
    real = Rounds([{"exact": {"seconds": 3, "bytes": 100}, "SparF 1/8, mini's own": {"seconds": 2, "bytes": 40}}])
    table = bench.table({8192: found}, real, 16384, Prefill("tiny", 20, [1.0], [1.01]), 3e10)
    assert "in brackets: how many times as fast as `exact`" in table.legend
    (cells,) = (dict(zip(table.head, row, strict=True)) for row in table.rows)
    assert cells["context"] == "8,192"
    assert cells["share of the disk's rate"].endswith("%")
    assert {name for name, cell in cells.items() if "(" in cell} == set(bench.SPARSE)
    assert "+1.0% (tiny, 20 tokens)" in table.note
    assert "SparF 1/8, mini's own K and V of 16,384 tokens of source code: 40% of the bytes, 1.5x." in table.note
