# SPDX-License-Identifier: Apache-2.0
"""Salvage of a drive whose journal is damaged in more than one page: recovered tokens, and reports of lost ones."""

from __future__ import annotations

import json

import in_process
import numpy as np
import pytest
from disk import PAGE, copy, damage, journal_start, put, superblock, transactions
from kv_model import HEADS, LAYERS, Model, apply, random_step, send
from pairs import some_quick
from stored_values import KEYS, read_value, stored_keys
from stored_values import put as put_value

from kvdrive import abi
from kvdrive._native import Drive

S = abi.NvmeStatus
# A row of 970pro with one plane's worth of dies: few groups wait in drive memory.
OPTIONS = {"preset": "mqsim-default", "pages_per_block": 2, "capacity_bytes": PAGE * 4000}
GROUP = 32  # tokens of head dimension 64


def kvdrive(*arguments):
    return in_process.kvdrive("drive", *arguments)


def rows(seed, tokens, heads=2):
    return np.random.default_rng(seed).standard_normal((heads, tokens, 64)).astype(np.float16)


@pytest.fixture
def stored(make_drive):
    """Two sessions of many groups and a few tokens of a partial group. Each append is a transaction. Closed cleanly."""
    host = make_drive(**OPTIONS)
    for session in (1, 2):
        for part in range(4):
            first = part * GROUP * 100
            for kind in abi.KvKind:
                data = rows(10 * session + kind, 4 * GROUP * 100)[:, first : first + GROUP * 100]
                assert host.append(data, session=session, kind=kind, first_token=first, options=1).status == S.SUCCESS
        tail = rows(5, 7)
        assert host.append(tail, session=session, first_token=4 * GROUP * 100, options=1).status == S.SUCCESS
    host.drive = None
    return host


def spoil(path, number):
    """Damage two pages of transaction `number`, one more than parity can replace."""
    offset, _ = transactions(path)[number]
    for page in range(2):
        damage(path, offset + page * PAGE, "noise", np.random.default_rng(page))


def came_back(drive, session):
    """Recovered tokens of each head. Asserts that they are a prefix of the stored ones."""
    tokens = []
    for kind in abi.KvKind:
        want = rows(10 * session + kind, 4 * GROUP * 100)
        if kind == abi.KvKind.KEYS:
            want = np.concatenate([want, rows(5, 7)], axis=1)
        for head in range(HEADS):
            got = drive.rows(session, 0, head, kind).tobytes()
            assert want[head].tobytes().startswith(got)
            tokens.append(len(got) // 128)
    return tokens


@pytest.mark.parametrize("lost", some_quick([1, 9, 17], [1, 17]))
def test_sessions_come_back_from_their_spares(stored, tmp_path, lost):
    spoil(stored.path, lost)
    clean = stored.path.stat()
    for arguments in (("fsck", stored.path), ("info", stored.path)):
        refused = kvdrive(*arguments)
        assert refused.returncode != 0
        assert "is damaged" in refused.stderr
        assert "kvdrive drive recover" in refused.stderr.replace("\n", " ")
    new = tmp_path / "new.kv"
    report = kvdrive("recover", stored.path, new, "--json")
    assert report.returncode == 0, report.stderr
    found = json.loads(report.stdout)
    assert found["disagreements"] == []
    assert f"transaction {lost} " in found["notices"][0]
    assert found["sessions"] == [1, 2]
    drive = Drive(new, "fast")
    queued = 64 * 4  # groups of a row, which may have waited in drive memory
    for session in (1, 2):
        for tokens in came_back(drive, session):
            assert tokens >= 4 * GROUP * 100 - queued * GROUP
    assert drive.check() == []
    assert (stored.path.stat().st_mtime_ns, stored.path.stat().st_size) == (clean.st_mtime_ns, clean.st_size)


def test_a_journal_that_is_gone_altogether_is_made_again(stored):
    put(stored.path, journal_start(stored.path), bytes(1 << 22))
    with pytest.raises(RuntimeError, match="is damaged"):
        stored.reopen()
    stored.drive = Drive(stored.path, "fast", salvage=True)
    assert stored.drive.sessions() == [1, 2]
    assert all(tokens > 0 for session in (1, 2) for tokens in came_back(stored.drive, session))
    assert stored.drive.check() == []
    notices = stored.drive.notices()
    assert any("came back from their spares" in sentence for sentence in notices)
    stored.reopen()  # the repair is durable, and the drive works
    assert stored.drive.notices() == []
    data = rows(1, 5000)
    assert stored.append(data, session=3, sequence=0).status == S.SUCCESS
    assert stored.flush().status == S.SUCCESS
    stored.reopen()
    assert stored.drive.rows(3, 0, 1, 0).tobytes() == data[1].tobytes()
    assert stored.drive.check() == []


@pytest.mark.parametrize("seed", range(3))
def test_what_comes_back_is_a_state_that_the_session_had(make_drive, memory_folder, seed):
    """After a long history on flash that is collected all the time, with session numbers in use again."""
    options = {"preset": "970pro", "pages_per_block": 1, "capacity_bytes": PAGE * 350, "snapshot_bytes": 1 << 16}
    host = make_drive(path=memory_folder / "drive.kv", **options)
    rng, model = np.random.default_rng(seed), Model()
    had: dict[tuple, list[np.ndarray]] = {}
    values_had: dict[bytes, set[bytes]] = {key: set() for key in KEYS}
    for number in range(400):
        step = random_step(rng, model)
        if send(host, model, *step) != S.SUCCESS:
            continue
        apply(model, *step)
        for key, value in model.values.items():
            values_had[key].add(value)
        for session, stored in model.rows.items():
            for (layer, kind), data in stored.items():
                states = had.setdefault((session, layer, int(kind)), [])
                if not states or states[-1].shape != data.shape or not np.array_equal(states[-1], data):
                    states.append(data)
        if number % 90 == 0:
            host.reopen()
    host.drive = None
    found = transactions(host.path)
    for lost in (0, len(found) // 2, len(found) - 1):
        path = copy(host.path, memory_folder / "lost.kv")
        spoil(path, lost)
        with pytest.raises(RuntimeError, match="is damaged"):
            Drive(path, "fast")
        drive = Drive(path, "fast", salvage=True)
        assert drive.check() == []
        back = 0
        for session in drive.sessions():
            for layer in range(LAYERS):
                for kind in abi.KvKind:
                    for head in range(HEADS):
                        got = drive.rows(session, layer, head, kind).tobytes()
                        back += len(got)
                        states = had.get((session, layer, int(kind)), [])
                        assert not got or any(state[head].tobytes().startswith(got) for state in states)
        assert back > 0
        assert all(read_value(drive, key) in values_had[key] for key in stored_keys(drive))
        del drive


def test_a_file_that_was_cut_short_is_recovered_as_far_as_it_goes(stored, tmp_path):
    with stored.path.open("r+b") as file:
        file.truncate(stored.path.stat().st_size // 2)
    assert "shorter than its superblock" in kvdrive("fsck", stored.path).stderr.replace("\n", " ")
    report = json.loads(kvdrive("recover", stored.path, tmp_path / "new.kv", "--json").stdout)
    assert "truncated" in report["notices"][0]
    assert report["disagreements"] == []


def test_recover_never_writes_over_anything(stored, tmp_path):
    (tmp_path / "taken.kv").write_bytes(b"a thesis")
    refused = kvdrive("recover", stored.path, tmp_path / "taken.kv")
    assert refused.returncode != 0
    assert (tmp_path / "taken.kv").read_bytes() == b"a thesis"
    refused = kvdrive("recover", tmp_path / "taken.kv", tmp_path / "new.kv")
    assert "holds something else" in refused.stderr.replace("\n", " ")
    assert not (tmp_path / "new.kv").exists()
    stored.reopen()
    assert "has" in kvdrive("recover", stored.path, tmp_path / "new.kv").stderr
    assert not (tmp_path / "new.kv").exists()


def test_repair_in_place_says_what_is_gone(stored):
    unit = Drive(stored.path, "fast", read_only=True).layout()["unit_offset"]
    damage(stored.path, unit + 40 * PAGE, "zeros", np.random.default_rng(0))
    assert kvdrive("fsck", stored.path).returncode == 1
    before = superblock(stored.path)
    assert kvdrive("fsck", stored.path).returncode == 1  # a check repairs nothing
    assert superblock(stored.path) == before
    repaired = kvdrive("fsck", stored.path, "--repair", "--json")
    assert repaired.returncode == 0, repaired.stderr
    (notice,) = json.loads(repaired.stdout)["notices"]
    assert "session 1, layer 0, head" in notice
    assert "tokens are kept" in notice
    assert kvdrive("fsck", stored.path).returncode == 0


def test_salvage_does_not_join_groups_across_a_removal_that_the_journal_lost(make_drive, memory_folder):
    """Groups behind the removal continue the numbers of those before it. They must not be taken for one history."""
    rng = np.random.default_rng(8)
    host = make_drive(path=memory_folder / "drive.kv", run_groups=1, **OPTIONS)
    first, later = (rng.standard_normal((1, tokens, 64)).astype(np.float16) for tokens in (320, 12800))
    host.store(first, first)
    assert host.flush().status == S.SUCCESS
    assert host.remove(5 * GROUP, before=320).status == S.SUCCESS
    host.store(later, later, first_token=160)
    assert host.flush().status == S.SUCCESS
    host.drive = None
    kept = []
    for lost in (1, 2):
        path = copy(host.path, memory_folder / "lost.kv")
        spoil(path, lost)
        drive = Drive(path, "fast", salvage=True)
        assert drive.check() == []
        for session in drive.sessions():
            kept.append(drive.rows(session, 0, 0, 0))
            states = (first, np.concatenate([first[:, :GROUP], first[:, 6 * GROUP :], later], axis=1))
            assert any(state[0].tobytes().startswith(kept[-1].tobytes()) for state in states)
        del drive
    assert any(len(rows) for rows in kept)


def test_values_with_a_damaged_page_are_dropped_and_the_others_stay(stored):
    stored.reopen()
    contents = {key: np.random.default_rng(i).bytes(40_000) for i, key in enumerate(KEYS)}
    for key, value in contents.items():
        assert put_value(stored, key, value) == S.SUCCESS
    assert stored.append(rows(7, GROUP * 200), session=9, sequence=0).status == S.SUCCESS  # fills the row with others
    assert stored.flush().status == S.SUCCESS
    file = stored.path.read_bytes()
    page = file.index(contents[KEYS[1]][8192 : 8192 + PAGE])
    stored.drive = None
    damage(stored.path, page, "bit", np.random.default_rng(0))
    assert any("contents are damaged" in line for line in Drive(stored.path, "fast", read_only=True).check())
    drive = Drive(stored.path, "fast", salvage=True)
    assert drive.notices() == ["the value of key 6b6579 is dropped: one of its pages or spares is damaged"]
    assert stored_keys(drive) == sorted(set(KEYS) - {KEYS[1]})
    assert all(read_value(drive, key) == contents[key] for key in stored_keys(drive))
    assert drive.check() == []
    del drive
    stored.reopen()  # the repair is durable
    assert stored_keys(stored.drive) == sorted(set(KEYS) - {KEYS[1]})
