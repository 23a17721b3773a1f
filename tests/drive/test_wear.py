# SPDX-License-Identifier: Apache-2.0
"""Collection and wear levelling during commands: they write a bounded amount and wear blocks evenly."""

import tempfile
from pathlib import Path

import numpy as np
import pytest

from kvdrive import abi

OK = abi.NvmeStatus.SUCCESS


@pytest.fixture
def shared_file():
    """A file in memory if there is such a file system, because these drives commit often."""
    folder = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=folder if folder.is_dir() else None) as path:
        yield Path(path) / "drive.kv"


def churn(host, rng, rounds, hot, cold_tokens, tokens):
    """Rewrite a few sessions all the time, next to one that never changes."""
    rows = np.ones((1, 32768, 64), np.float16)
    for token in range(0, cold_tokens, 32768):
        assert host.append(rows, session=1000, layer=token >> 15).status == OK
    alive = set()
    for _ in range(rounds):
        session = 1 + int(hot * rng.random() ** 3)  # low numbers far more often
        if session in alive:
            assert host.trim(session=session).status == OK
        alive.add(session)
        assert host.append(rows[:, :tokens], session=session).status == OK
    return host.drive.flash_stats()


@pytest.mark.parametrize("preset", ["970pro", "instcsd"])
def test_writes_and_wear_are_bounded_under_a_skewed_load(make_drive, shared_file, preset):
    """Half of the drive never changes. Another 37 % are sessions that come and go; most writes go to a few of them."""
    groups = 16384
    host = make_drive(preset=preset, pages_per_block=4, capacity_bytes=groups * 4096, payload=False, path=shared_file)
    stats = churn(host, np.random.default_rng(1), 2500, hot=40, cold_tokens=groups // 2 * 32, tokens=32 * 150)
    assert stats["groups_written"] > 20 * groups
    assert stats["groups_moved"] > stats["groups_levelled"] > 0
    assert stats["units_programmed"] < 2.1 * stats["groups_written"]
    assert stats["erases"] > 20 * host.drive.layout()["dies"] * host.drive.layout()["blocks_per_die"]
    assert stats["most_erases"] - stats["least_erases"] <= 20
    assert host.drive.check() == []


def test_cleaning_is_spread_over_the_appends(make_drive, shared_file):
    """No append waits until a whole band is moved: the longest takes less than collecting one band at once."""
    host = make_drive(
        preset="instcsd", pages_per_block=16, capacity_bytes=24576 * 4096, payload=False, path=shared_file
    )
    rng = np.random.default_rng(2)
    rows = np.ones((1, 32 * 64, 64), np.float16)
    alive, longest, moved = [], 0, 0
    for number in range(1, 2500):
        if len(alive) == 340:
            assert host.trim(session=alive.pop(int(rng.integers(340)))).status == OK
        before = host.drive.flash_stats()
        assert host.append(rows, session=number).status == OK
        after = host.drive.flash_stats()
        alive.append(number)
        longest = max(longest, after["device_ns"] - before["device_ns"])
        moved = max(moved, after["groups_moved"] - before["groups_moved"])
    band = host.drive.layout()["units_per_block"] * host.drive.layout()["dies"]
    assert after["groups_moved"] > 2 * band
    assert moved < band // 4
    assert longest < 20_000_000
    assert host.drive.check() == []


def test_collection_joins_what_was_written_one_by_one(make_drive):
    """Sixteen heads are written token by token, then half of the sessions deleted. Moved rows are joined by list."""
    host = make_drive(preset="970pro", pages_per_block=4, capacity_bytes=8192 * 4096, run_groups=1, payload=False)
    rows = np.ones((8, 16, 128), np.float16)
    for token in range(0, 16 * 100, 16):
        for session in (1, 2, 3, 4):
            host.store(rows, rows, session=session, first_token=token)
    scattered = host.drive.flash_stats()["metadata_bytes"]
    for session in (1, 3):
        assert host.trim(session=session).status == OK
    kept = host.drive.flash_stats()["metadata_bytes"]
    assert kept > scattered / 3
    long = np.ones((1, 16 * 1000, 128), np.float16)
    while host.drive.flash_stats()["groups_moved"] < 3200:
        assert host.append(long, session=9).status == OK
        assert host.trim(session=9).status == OK
    assert host.drive.flash_stats()["metadata_bytes"] < kept / 2
    assert host.drive.check() == []


def test_reads_are_retried_as_flash_wears_out(make_drive):
    """No retries on new flash; about one read in ten at the end of a block's life; the same in each run."""
    rows, q = np.ones((1, 32768, 128), np.float16), np.ones((1, 1, 128), np.float16)
    found = {}
    for erases in (0, 1500, 3000, 3000):
        host = make_drive(preset="instcsd", worn_erases=erases)
        host.store(rows, rows)
        host.flush()
        start = host.drive.flash_stats()["device_ns"]
        host.attend(q, 32768)
        stats = host.drive.flash_stats()
        assert stats["least_erases"] >= erases
        result = (stats["reads_retried"], stats["sensings_repeated"], stats["device_ns"] - start)
        assert found.setdefault(erases, result) == result
    pages = 2 * 32768 * 256 // 16384
    assert found[0][:2] == (0, 0)
    assert 0.01 * pages < found[1500][0] < 0.05 * pages  # a quarter of a tenth
    assert 0.07 * pages < found[3000][0] < 0.16 * pages
    assert found[3000][1] > found[3000][0]
    assert found[0][2] < found[3000][2]
    host.reopen()
    assert host.drive.flash_stats()["least_erases"] >= 3000
