"""The benchmark of remote drives, on a small shape: counts, not times."""

import pytest

from bench.storage import remote


@pytest.mark.slow
def test_a_remote_drive_gives_the_same_bits_and_takes_the_same_bytes(tmp_path):
    shape = remote.Shape(layers=2, heads=2, group=2, d=64, tokens=64, steps=2)
    found = remote.measure(shape, 1, tmp_path)
    own = found.median(remote.HERE, "bytes")
    assert own > 2 * 4 * (64 + 16)
    without_wire = {remote.HERE, remote.SOCKET, remote.LOOPBACK}
    assert without_wire <= set(found.names)
    assert all(found.median(name, "bytes") == own for name in found.names)
    for name in set(found.names) - without_wire:
        assert found.median(name, "wire") > own
    assert [row[0] for row in remote.table(shape, found).rows] == found.names
