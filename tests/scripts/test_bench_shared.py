"""The benchmark of K and V and experts on one disk: it runs, its bits hold, and its table says what was measured."""

import bench_shared
from page_blocks import write_blocks


def test_a_tiny_run_fills_the_table(tmp_path):
    result = bench_shared.run(bench_shared.QUICK, tmp_path, threads=1)
    work = bench_shared.QUICK
    assert len(result["rounds"]) == work.rounds
    for found in result["rounds"]:
        for way in bench_shared.WAYS:
            assert len(found[way]) == work.steps
        assert found["disk"] > 0
        assert all(both >= kv for both, kv in zip(found["together"], found["kv_beside"], strict=True))
    if result["asynchronous"]:
        runs, steps = work.rounds + 1, work.steps
        pieces = work.expert_bytes // bench_shared.PIECE
        assert result["transfers"]["weights"]["transfers"] == runs * 3 * steps * pieces  # disk, experts, together
        assert result["transfers"]["attention"]["bytes"] == runs * 2 * steps * work.layer_bytes
    device = bench_shared.run_device(work, tmp_path, threads=1)
    times = {way: [one["device_ns"] for one in steps] for way, steps in device["device"].items()}
    for way in ("together", "ahead"):
        for kv, experts, both in zip(times["kv"], times["experts"], times[way], strict=True):
            assert max(kv, experts) <= both <= kv + experts
    page = tmp_path / "page.md"
    page.write_text("<!-- bench-shared -->\n<!-- end -->\n<!-- bench-shared-device -->\n<!-- end -->\n")
    blocks = {"bench-shared": bench_shared.table(result), "bench-shared-device": bench_shared.device_table(device)}
    write_blocks(page, blocks)
    text = page.read_text()
    assert "| both at once |" in text
    assert f"{work.kv.tokens:,} tokens" in text
