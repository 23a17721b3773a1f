# SPDX-License-Identifier: Apache-2.0
"""Single damaged pages anywhere in the file: no crash, no silent loss, and only the page's content may be lost."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from disk import DAMAGES, JOURNAL, PAGE, SUPERBLOCK, copy, damage, put, transactions, written_pages
from kv_model import HEADS, Model, apply, random_step, send
from stored_values import read_value, stored_keys

from kvdrive import abi
from kvdrive._native import Drive

OPTIONS = {"preset": "970pro", "pages_per_block": 1, "capacity_bytes": PAGE * 500, "snapshot_bytes": 1 << 16}
SPARES_IN_PAGE = PAGE // 40 + 2  # including those that cross its ends


@pytest.fixture
def base(make_drive, memory_folder):
    """A drive with a history of forks, trims, collection and several snapshots; and the model of its contents."""
    host = make_drive(path=memory_folder / "base.kv", **OPTIONS)
    rng, model = np.random.default_rng(11), Model()
    for _ in range(300):
        step = random_step(rng, model)
        if send(host, model, *step) == abi.NvmeStatus.SUCCESS:
            apply(model, *step)
    layout = host.drive.layout()
    host.drive = None
    path = host.path
    journal = [offset + i * PAGE for offset, count in transactions(path) for i in range(count)]
    areas = {
        "superblocks": [0, PAGE],
        "journal": journal,
        "spares": written_pages(path, layout["spare_offset"], layout["unit_offset"]),
        "data": written_pages(path, layout["unit_offset"], path.stat().st_size),
    }
    return path, model, areas


def lost_reads(drive, model):
    """Heads and values that cannot be read. Asserts that the others are what was stored."""
    assert (drive.sessions(), stored_keys(drive)) == (sorted(model.rows), sorted(model.values))
    found = {key: read_value(drive, key) for key in model.values}
    lost = sum(value is None for value in found.values())
    assert all(value in (None, model.values[key]) for key, value in found.items())
    for session, stored in model.rows.items():
        for (layer, kind), rows in stored.items():
            for head in range(HEADS):
                try:
                    assert drive.rows(session, layer, head, kind).tobytes() == rows[head].tobytes()
                except RuntimeError:
                    lost += 1
    return lost


def damage_pages(path, model, areas, count, seed):
    """Damage one page at a time, in all areas in turn. Returns counts by area."""
    rng, counts = np.random.default_rng(seed), Counter()
    for number in range(count):
        area = list(areas)[number % len(areas)]
        page, kind = int(rng.choice(areas[area])), DAMAGES[int(rng.integers(len(DAMAGES)))]
        old = damage(path, page, kind, rng, SUPERBLOCK if page < JOURNAL else PAGE)
        with path.open("rb") as file:
            file.seek(page)
            changed = file.read(PAGE) != old
        drive = Drive(path, "fast", read_only=True)
        lost, disagreements = lost_reads(drive, model), len(drive.check())
        noticed = len(drive.notices())
        del drive
        put(path, page, old)
        counts[area, "pages"] += 1
        counts[area, "groups lost"] += disagreements
        counts[area, "refused reads"] += lost
        if area in ("superblocks", "journal"):
            assert (lost, disagreements, noticed) == (0, 0, int(changed)), (area, page, kind)
        else:
            assert noticed == 0
            assert disagreements <= (SPARES_IN_PAGE if area == "spares" else 1), (area, page, kind)
            assert lost == 0 or disagreements > 0
    return counts


def test_single_damaged_pages_lose_what_lay_in_them_and_say_so(base):
    counts = damage_pages(*base, count=80, seed=1)
    assert counts["data", "groups lost"] > 0
    assert counts["spares", "groups lost"] > 0


@pytest.mark.slow
def test_ten_thousand_damaged_pages(base):
    counts = damage_pages(*base, count=10_000, seed=2)
    for (area, what), number in sorted(counts.items()):
        print(f"{area}: {number:,} {what}")


def test_a_repaired_drive_is_whole_and_keeps_what_verifies(base, memory_folder):
    path, model, areas = base
    rng = np.random.default_rng(3)
    cut = 0
    for number in range(12):
        work = copy(path, memory_folder / "work.kv")
        area = ("spares", "data")[number % 2]
        damage(work, int(rng.choice(areas[area])), "noise", rng)
        damaged = len(Drive(work, "fast", read_only=True).check())
        drive = Drive(work, "fast", salvage=True)
        assert drive.check() == []
        assert bool(drive.notices()) == bool(damaged)
        for session, stored in model.rows.items():
            for (layer, kind), rows in stored.items():
                for head in range(HEADS):
                    left = drive.rows(session, layer, head, kind).tobytes()
                    assert rows[head].tobytes().startswith(left)
                    cut += len(left) < rows[head].nbytes
        for key in stored_keys(drive):
            assert read_value(drive, key) == model.values[key]
        del drive
        again = Drive(work, "fast")  # the repair is durable
        assert (again.check(), again.notices()) == ([], [])
        del again
    assert cut > 0
