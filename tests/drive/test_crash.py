# SPDX-License-Identifier: Apache-2.0
"""Power cuts at every write of the backing file. After mounting, the drive holds a state between the last state
acknowledged as durable and the last one requested, and all its maps agree with its pages.
"""

from __future__ import annotations

import subprocess

import numpy as np
import pytest
from kv_model import MIXED, Model, apply, durable, random_step, send
from pairs import some_quick

from kvdrive import abi

OK = abi.NvmeStatus.SUCCESS
# Small blocks and little room, so that collection runs and the drive is sometimes full. A snapshot every few commits.
OPTIONS = {"preset": "970pro", "pages_per_block": 1, "capacity_bytes": 4096 * 260, "snapshot_bytes": 1 << 16}
AGEING, STEPS = 400, 60


def history(host, rng, state, count):
    """Random steps done on a drive in a state: the statuses, and the states before, between and after them."""
    states, steps, statuses = [state], [], []
    for _ in range(count):
        steps.append(random_step(rng, states[-1]))
        statuses.append(send(host, states[-1], *steps[-1]))
        states.append(states[-1].clone())
        if statuses[-1] == OK:
            apply(states[-1], *steps[-1])
    assert set(statuses) <= {OK, abi.NvmeStatus.CAPACITY_EXCEEDED}
    return steps, statuses, states


def run_until_cut(host, steps, statuses, states):
    """The number of steps done, and of those whose results must survive."""
    safe = 0
    for done, (step, expected) in enumerate(zip(steps, statuses, strict=True)):
        status = send(host, states[done], *step)
        if status == abi.NvmeStatus.INTERNAL_ERROR:
            return done, safe
        assert status == expected, (done, step[0])
        if durable(*step) and status == OK:
            safe = done + 1
    return len(steps), safe


@pytest.mark.parametrize(("torn", "seed"), some_quick([(0, 9), (1, 12), (2, 22), (3, 20)], [(0, 9), (3, 20)]))
def test_a_cut_at_every_write(make_drive, memory_folder, torn, seed):
    """A cut at every write of 60 steps, on a drive that is nearly full and has been used for a while.

    One session is binary16, one fp8, and one int8 or int4.
    """
    rng = np.random.default_rng(seed)
    aged = make_drive(path=memory_folder / "aged.kv", **OPTIONS)
    state = history(aged, rng, Model(formats=MIXED[torn % 2].copy()), AGEING)[2][-1]
    aged.drive = None

    def copy():
        subprocess.run(["cp", "--sparse=always", memory_folder / "aged.kv", memory_folder / "copy.kv"], check=True)
        host = make_drive(path=memory_folder / "copy.kv", **OPTIONS)
        host.sequence = dict(aged.sequence)
        return host

    host = copy()
    steps, statuses, states = history(host, rng, state, STEPS)
    stats = host.drive.flash_stats()
    assert {"remove", "put", "delete"} <= {
        step[0] for step, status in zip(steps, statuses, strict=True) if status == OK
    }
    assert stats["groups_moved"] > 0
    assert stats["erases"] > 0
    assert {state.format(session) for session in states[-1].rows} >= set(MIXED[torn % 2].values())
    host.drive = None
    for cut in range(stats["file_writes"]):
        host = copy()
        host.drive.inject("power_cut", after=cut, argument=torn + (cut << 8 if torn > 1 else 0))
        done, safe = run_until_cut(host, steps, statuses, states)
        host.reopen()
        possible = range(safe, min(done + 2, len(states)))
        now = next((states[i].clone() for i in possible if states[i].equals(host.drive)), None)
        assert now is not None, (cut, safe, done)
        assert host.drive.check() == []
        if cut % 3 == 0:  # with less stored, the next snapshot is shorter than the one left by the cut
            for session in list(now.rows)[::2]:
                assert host.trim(session).status == OK
                now.trim(session, 0)
            assert host.flush().status == OK
            host.reopen()
            assert now.equals(host.drive)
        host.drive = None
