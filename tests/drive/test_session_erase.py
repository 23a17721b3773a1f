# SPDX-License-Identifier: Apache-2.0
"""SESSION_ERASE: no byte that only this session held remains in the backing file. All other data are unchanged."""

from __future__ import annotations

import subprocess
import tempfile
from pathlib import Path

import numpy as np
import pytest
from stored_bytes import occurrences

from kvdrive import abi

S = abi.NvmeStatus
SECRET, OTHER, KEPT = b"\x5a\x3c", b"\x11\x2f", b"\x66\x1e"  # one finite binary16 each
# Small blocks and little room, so that collection has copied rows; and a drive like the cpu target's.
SMALL = {"preset": "970pro", "pages_per_block": 1, "capacity_bytes": 4096 * 700}
DRIVES = {"flash": SMALL, "disk": {"preset": "plain", "capacity_bytes": 1 << 24}}
SPARSE = abi.AppendOption.APPEND_SPARSE


@pytest.fixture
def folder():
    """A folder in memory if there is such a file system, because these tests would wait for the disk."""
    shared = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=shared if shared.is_dir() else None) as path:
        yield Path(path)


@pytest.fixture(params=DRIVES)
def host(request, make_drive, folder):
    return make_drive(path=folder / "drive.kv", **DRIVES[request.param])


def rows(mark, tokens, heads=2, d=64):
    """Rows with the same number everywhere, so that the mark is found in both layouts of K."""
    return np.frombuffer(mark * (heads * tokens * d), np.float16).reshape(heads, tokens, d)


def store(host, session, mark, tokens, first=0):
    part = rows(mark, tokens)
    host.store(part, part, session=session, first_token=first, options=SPARSE)


def copies(host, mark):
    return occurrences(host.path, mark * 8)


def holds(host, session, *parts):
    """True if the session's rows are these (mark, tokens), one after the other."""
    want = b"".join(rows(mark, tokens, heads=1).tobytes() for mark, tokens in parts)
    return all(host.drive.rows(session, 0, head, kind).tobytes() == want for head in range(2) for kind in abi.KvKind)


def test_nothing_of_it_is_left(host):
    """No byte remains in flash, waiting groups, staged rows or journal. Other sessions are unchanged."""
    store(host, 1, SECRET, 600)
    store(host, 2, OTHER, 610)
    host.flush()
    store(host, 1, SECRET, 37, first=600)
    host.flush()
    assert host.trim(from_token=620).status == S.SUCCESS  # tokens trimmed before are erased as well
    assert copies(host, SECRET) > 4 * 600
    before, flash = copies(host, OTHER), host.drive.flash_stats()
    reply = host.erase()
    after = host.drive.flash_stats()
    assert (reply.status, reply.result) == (S.SUCCESS, after["erases"] - flash["erases"])
    assert copies(host, SECRET) == 0
    assert before >= copies(host, OTHER) > 4 * 600  # fewer copies in the journal
    assert holds(host, 2, (OTHER, 610))
    assert host.drive.sessions() == [2]
    store(host, 3, KEPT, 300)
    host.reopen()
    assert copies(host, SECRET) == 0
    assert host.drive.check() == []
    assert holds(host, 3, (KEPT, 300))


def test_a_fork_keeps_what_it_shares(host):
    """Erasing the fork erases the shared rows, although they were written with the other session's number."""
    store(host, 1, SECRET, 1200)
    store(host, 1, OTHER, 400, first=1200)
    assert host.fork(1, 2, 1200).status == S.SUCCESS
    store(host, 2, KEPT, 100, first=1200)
    host.flush()
    assert host.erase(1).status == S.SUCCESS
    assert copies(host, OTHER) == 0
    assert holds(host, 2, (SECRET, 1200), (KEPT, 100))
    assert host.erase(2).status == S.SUCCESS
    assert (copies(host, SECRET), copies(host, KEPT), host.drive.check()) == (0, 0, [])


def test_tokens_from_one_on(host):
    """The erase cuts a group in the middle. Its remaining rows are staged in drive memory."""
    store(host, 1, KEPT, 300)
    store(host, 1, SECRET, 300, first=300)
    host.flush()
    assert host.erase(from_token=300).status == S.SUCCESS
    assert copies(host, SECRET) == 0
    assert holds(host, 1, (KEPT, 300))
    store(host, 1, OTHER, 50, first=300)
    host.reopen()
    assert (holds(host, 1, (KEPT, 300), (OTHER, 50)), host.drive.check()) == (True, [])


def aged(host, rounds=12):
    """Sessions are created and removed around one that grows slowly, so collection moves it. Returns that session."""
    for number in range(rounds):
        store(host, 1, SECRET, 25, first=25 * number)
        store(host, 2 + number, KEPT, 1000)
        host.flush()
        if number >= 2:
            assert host.trim(number).status == S.SUCCESS
    assert host.trim(rounds).status == S.SUCCESS
    assert host.drive.flash_stats()["groups_moved"] > 0
    return 1 + rounds


def test_copies_that_collection_left_are_gone(make_drive, folder):
    host = make_drive(path=folder / "drive.kv", **SMALL)
    last = aged(host)
    host.reopen()
    assert copies(host, SECRET) > 0
    assert host.erase().status == S.SUCCESS
    assert copies(host, SECRET) == 0
    assert (holds(host, last, (KEPT, 1000)), host.drive.check()) == (True, [])


def test_what_a_loss_of_power_left_behind_is_gone(make_drive, folder):
    """Rows that reached the flash but were never committed, so no map has ever had them."""
    host = make_drive(path=folder / "drive.kv", **SMALL)
    store(host, 1, OTHER, 64)
    host.flush()
    host.drive.inject("power_cut", after=1)  # contents are written, their spares are not
    store(host, 1, SECRET, 1200, first=64)
    assert host.flush().status == S.INTERNAL_ERROR
    host.reopen()
    assert holds(host, 1, (OTHER, 64))
    assert copies(host, SECRET) > 0
    assert host.erase().status == S.SUCCESS
    assert (copies(host, SECRET), copies(host, OTHER), host.drive.check()) == (0, 0, [])


def test_rows_of_a_refused_append_are_gone(make_drive, folder):
    """They were in flash when the drive was full, in lists that are unreferenced now."""
    host = make_drive(path=folder / "drive.kv", **SMALL)
    store(host, 1, KEPT, 100)
    host.drive.inject("full", after=300)
    status = host.append(rows(SECRET, 10_000), layer=1).status
    host.flush()
    assert (status, copies(host, SECRET) > 0) == (S.CAPACITY_EXCEEDED, True)
    assert host.erase().status == S.SUCCESS
    assert (copies(host, SECRET), host.drive.check()) == (0, [])


@pytest.mark.parametrize("fault", ["erase_fail", "program_fail"])
def test_blocks_that_fail_on_the_way(make_drive, folder, fault):
    host = make_drive(path=folder / "drive.kv", **SMALL)
    last = aged(host)
    host.drive.inject(fault, after=1, count=2)
    assert host.erase().status == S.SUCCESS
    assert host.drive.flash_stats()["bad_blocks"] == 2
    assert (copies(host, SECRET), holds(host, last, (KEPT, 1000)), host.drive.check()) == (0, True, [])
    store(host, 1, SECRET, 600)  # over bands that lack a block
    host.flush()
    assert host.erase().status == S.SUCCESS
    assert (copies(host, SECRET), host.drive.check()) == (0, [])


def test_places_that_a_lost_block_left_empty(make_drive, folder):
    """Bands are programmed again without a lost block, so the file keeps the old bytes at its places."""
    host = make_drive(path=folder / "drive.kv", **SMALL)
    store(host, 1, KEPT, 20)
    store(host, 1, SECRET, 2000, first=20)
    host.flush()
    assert host.trim(from_token=20).status == S.SUCCESS
    for session in range(2, 8):
        host.drive.inject("erase_fail", after=7, count=1)
        store(host, session, OTHER, 700)
        store(host, session, OTHER, 700, first=700)
        host.flush()
        assert host.trim(session).status == S.SUCCESS
    assert host.drive.flash_stats()["bad_blocks"] >= 4
    assert copies(host, SECRET) > 0
    assert host.erase().status == S.SUCCESS
    assert (copies(host, SECRET), host.drive.check()) == (0, [])


@pytest.mark.parametrize("torn", [0, 1, 2, 3])
def test_a_cut_at_every_write(make_drive, folder, torn):
    """When the drive is opened again, either the whole session exists, or no byte of it remains."""
    host = make_drive(path=folder / "aged.kv", **SMALL)
    last = aged(host)
    store(host, 1, SECRET, 20, first=300)
    host.flush()
    host.drive = None
    outcomes, cut = set(), 0
    while "done" not in outcomes:
        subprocess.run(["cp", "--sparse=always", folder / "aged.kv", folder / "copy.kv"], check=True)
        host = make_drive(path=folder / "copy.kv")
        host.drive.inject("power_cut", after=cut, argument=torn + (cut << 8 if torn > 1 else 0))
        status = host.erase().status
        assert status in (S.SUCCESS, S.INTERNAL_ERROR)
        host.reopen()
        assert (holds(host, last, (KEPT, 1000)), host.drive.check()) == (True, []), cut
        if 1 in host.drive.sessions():
            assert status == S.INTERNAL_ERROR
            assert holds(host, 1, (SECRET, 320)), cut
            outcomes.add("there")
        else:
            assert copies(host, SECRET) == 0, cut
            outcomes.add("done" if status == S.SUCCESS else "finished at mount")
        host.drive, cut = None, cut + 1
    assert outcomes == {"there", "finished at mount", "done"}


def test_it_takes_device_time(make_drive, folder):
    host = make_drive(path=folder / "drive.kv", preset="mqsim-default", pages_per_block=4, capacity_bytes=1 << 24)
    store(host, 1, SECRET, 2000)
    host.flush()
    before = host.drive.flash_stats()["device_ns"]
    reply = host.erase()
    assert reply.result > 0
    assert host.drive.flash_stats()["device_ns"] - before >= 3_800_000  # tBERS of the preset


def test_refusals(make_drive, folder):
    host = make_drive(path=folder / "drive.kv", **SMALL)
    store(host, 1, KEPT, 100)
    assert host.erase(7).status == S.UNKNOWN_SESSION
    assert host.raw(host.entry("erase", session=1, reserved0=1)).status == S.INVALID_FIELD
    assert host.raw(host.entry("erase", session=1, nsid=3)).status == S.INVALID_NAMESPACE
    assert host.raw(host.entry("erase", session=1), np.zeros(64, np.uint8)).status == S.DATA_LENGTH
    assert holds(host, 1, (KEPT, 100))
    assert abi.Opcode.SESSION_ERASE & 3 == 0  # no data in either direction
