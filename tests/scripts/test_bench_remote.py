"""The benchmark of remote drives, on a small shape: counts, not times."""

import bench_remote


def test_a_remote_drive_gives_the_same_bits_and_takes_the_same_bytes(tmp_path):
    shape = bench_remote.Shape(layers=2, heads=2, group=2, d=64, tokens=64, steps=2)
    found = bench_remote.measure(shape, 1, tmp_path)
    local = found["this process"]
    assert local["bytes_per_token"] > 2 * 4 * (64 + 16)
    without_wire = {"this process", "socket", "loopback"}
    assert without_wire <= set(found)
    assert all(found[name]["bytes_per_token"] == local["bytes_per_token"] for name in without_wire)
    for name in set(found) - without_wire:
        assert found[name]["wire_bytes_per_token"] > found[name]["bytes_per_token"] == local["bytes_per_token"]
    page = bench_remote.page(shape, found, 1, 0.0)
    assert all(f"| {name} |" in page for name in found)
