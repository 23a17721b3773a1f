# SPDX-License-Identifier: Apache-2.0
"""Long random histories of append, trim, fork, flush and mounting against plain arrays, in sessions of all formats."""

import numpy as np
import pytest
from kv_model import MIXED, Model, apply, random_step, send

from kvdrive import abi

OK, FULL = abi.NvmeStatus.SUCCESS, abi.NvmeStatus.CAPACITY_EXCEEDED


def live_long(host, seed, steps, capacity):
    """Do random steps with an occasional mount. Returns the final state."""
    rng = np.random.default_rng(seed)
    model = Model(formats=MIXED[seed % 2].copy())
    for number in range(steps):
        step = random_step(rng, model)
        status = send(host, model, *step)
        assert status in (OK, FULL)
        if status == OK:
            apply(model, *step)
        if number % 25 == 0:
            assert model.equals(host.drive)
            assert host.drive.flash_stats()["groups_live"] <= capacity
        if number % 60 == 0:
            host.reopen()
    return model


@pytest.mark.parametrize("preset", ["970pro", "zn540", "mqsim-default", "femu-tlc", "instcsd", "daisyplus"])
def test_any_history_equals_arrays(make_drive, preset):
    pages = 3 if preset in ("zn540", "femu-tlc") else 2
    host = make_drive(preset=preset, pages_per_block=pages, capacity_bytes=4096 * 300, snapshot_bytes=1 << 17)
    model = live_long(host, seed=len(preset), steps=180, capacity=300)
    assert model.equals(host.drive)
    assert host.drive.check() == []


def test_wear_stays_even(make_drive):
    host = make_drive(pages_per_block=1, capacity_bytes=4096 * 700)
    rng = np.random.default_rng(2)
    cold = rng.standard_normal((1, 32 * 400, 64)).astype(np.float16)
    assert host.append(cold, session=9).status == OK  # more than half of the drive never changes
    rows = rng.standard_normal((1, 32 * 280, 64)).astype(np.float16)
    for _ in range(250):
        assert host.append(rows).status == OK
        assert host.trim().status == OK
    stats = host.drive.flash_stats()
    assert stats["erases"] > 4000
    assert stats["most_erases"] - stats["least_erases"] <= 60
    assert host.drive.rows(9, 0, 0, 0).tobytes() == cold.tobytes()
    assert host.drive.check() == []


def test_a_fork_shares_pages_until_it_changes(host, check):
    rng = np.random.default_rng(3)
    k, v, q = (rng.standard_normal((1, n, 64)).astype(np.float16) for n in (320, 320, 2))
    host.store(k, v)
    live = host.drive.flash_stats()["groups_live"]
    assert host.fork(1, 2, 200).status == OK
    assert host.drive.flash_stats()["groups_live"] == live
    assert host.trim(session=1).status == OK  # the fork keeps the shared rows
    check(host.attend(q, 200, session=2), q, k[:, :200], v[:, :200])
    host.store(k[:, :50], v[:, :50], session=2, first_token=200)
    mixed_k, mixed_v = (np.concatenate([rows[:, :200], rows[:, :50]], axis=1) for rows in (k, v))
    host.reopen()
    check(host.attend(q, 250, session=2), q, mixed_k, mixed_v)
    assert host.drive.check() == []


@pytest.mark.parametrize(
    ("fields", "status"),
    [
        ({"session": 3}, abi.NvmeStatus.UNKNOWN_SESSION),
        ({"target": 2}, abi.NvmeStatus.SESSION_EXISTS),
        ({"target": 1}, abi.NvmeStatus.INVALID_FIELD),
        ({"tokens": 0}, abi.NvmeStatus.INVALID_FIELD),
        ({"reserved0": 1}, abi.NvmeStatus.INVALID_FIELD),
        ({"reserved1": (0, 0, 0, 1)}, abi.NvmeStatus.INVALID_FIELD),
    ],
    ids=str,
)
def test_fork_is_refused(host, fields, status):
    rows = np.ones((1, 40, 64), np.float16)
    for session in (1, 2):
        host.store(rows, rows, session=session)
    entry = host.entry("fork", **({"session": 1, "target": 5, "tokens": 40} | fields))
    assert host.raw(entry).status == status
    assert host.drive.sessions() == [1, 2]


def test_tails_have_a_budget_and_sessions_a_quota(make_drive):
    rows = np.ones((1, 31, 64), np.float16)
    host = make_drive(staged_bytes=31 * 128)
    assert host.append(rows, session=1).status == OK
    assert host.append(rows, session=2).status == FULL
    host = make_drive(session_bytes=2 * 4096)
    assert host.append(np.ones((1, 64, 64), np.float16), session=1).status == OK
    assert host.append(np.ones((1, 32, 64), np.float16), session=1, first_token=64).status == FULL
    assert host.append(np.ones((1, 32, 64), np.float16), session=2).status == OK
