"""The benchmark of the cpu target reads what it says it reads, around the page cache."""

import json

import bench_cpu_target as bench
import readme

SHAPE = bench.Shape(layers=2, kv_heads=2, group=2, head_dim=64, tokens=8192)  # 8 MiB of K and V


def test_every_contender_is_measured_on_the_same_keys_and_values(tmp_path):
    rows = {row.contender: row for row in bench.measure(tmp_path, SHAPE, 1, 1, 1e10, lambda: None)}
    assert list(rows) == [bench.DISK, bench.EXACT, *bench.SPARSE, bench.CACHED, bench.PACKED]
    assert rows[bench.DISK].file_bytes == rows[bench.EXACT].file_bytes == [SHAPE.kv_bytes]
    assert rows[bench.EXACT].file_reads[0] <= 3 * SHAPE.kv_bytes >> 20
    scattered, runs = (rows[name].file_bytes[0] for name in bench.SPARSE)
    assert 0 < runs < scattered
    assert rows[bench.EXACT].over_exact == 1
    real = {"contender": "SparF 1/8, mini's own", "tokens": 16384, "file_bytes": [30, 40, 50], "over_exact": 1.5}
    report = {
        "machine": {"processor": "P", "threads": 1, "torch": "T"},
        "real": [{}, {"file_bytes": [99, 100, 101]}, real],
        "rows": [vars(row) | {"median_seconds": row.median} for row in rows.values()],
        "prefill": {"overhead": 0.01, "model": "tiny", "tokens": 20},
    }
    legend, _, head, _, line, _, note = readme.cpu_target(json.loads(json.dumps(report))).splitlines()
    assert "in brackets: how many times as fast as `exact`" in legend
    assert head.count("|") == line.count("|") == 10
    assert line.startswith("| 8,192 | ")
    cells = dict(zip((c.strip() for c in head.strip("|").split("|")), line.strip("|").split("|"), strict=True))
    assert cells["share of the disk's rate"].strip().endswith("%")
    assert {name for name, cell in cells.items() if "(" in cell} == set(bench.SPARSE)
    assert "+1.0% (tiny, 20 tokens)" in note
    assert "SparF 1/8, mini's own K and V of 16,384 tokens of source code: 40% of the bytes, 1.5x." in note
