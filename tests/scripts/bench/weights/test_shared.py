"""The benchmark of K and V and experts on one disk: it runs, its bits hold, and its table says what was measured."""

from bench.weights import shared


def test_a_tiny_run_fills_the_table(tmp_path):
    result = shared.compare(shared.QUICK, tmp_path, threads=1)
    work = shared.QUICK
    assert len(result["rounds"]) == work.rounds
    for found in result["rounds"]:
        for way in shared.WAYS:
            assert len(found[way]) == work.steps
        assert found["disk"] > 0
        assert all(both >= kv for both, kv in zip(found["together"], found["kv_beside"], strict=True))
    if result["asynchronous"]:
        runs, steps = work.rounds + 1, work.steps
        pieces = work.expert_bytes // shared.PIECE
        assert result["transfers"]["weights"]["transfers"] == runs * 3 * steps * pieces  # disk, experts, together
        assert result["transfers"]["attention"]["bytes"] == (runs * 2 * steps + 1) * work.layer_bytes  # one more, early
    device = shared.device_times(work, tmp_path / "emulated.kv", threads=1)
    times = {way: [one["device_ns"] for one in steps] for way, steps in device.items()}
    for way in ("together", "ahead"):
        for kv, experts, both in zip(times["kv"], times["experts"], times[way], strict=True):
            assert max(kv, experts) <= both <= kv + experts
    text = shared.table(result).text()
    assert "| both at once |" in text
    assert f"{work.kv.tokens:,} tokens" in text
    assert [row[0] for row in shared.device_table(work, device).rows] == list(shared.DEVICE_WAYS.values())
