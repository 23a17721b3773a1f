"""An index costs time, never an answer: a damaged one is made again from the drive, at once and with a message."""

from __future__ import annotations

import json
import logging
import os
import re
import shutil
import sqlite3
import subprocess

import killed
import numpy as np
import pytest
import torch
from pairs import by_value
from small_models import prompts

from kvdrive.cli.stored_sessions import open_index
from kvdrive.errors import InputError
from kvdrive.generation.generate import greedy
from kvdrive.plugins.transformers import attach
from kvdrive.prefix.entry import NewEntry
from kvdrive.prefix.index import Index
from kvdrive.targets.emulator import Emulator

PROMPT, OTHER = prompts(1, 100), prompts(1, 60, seed=5)
STORED = (
    "drive.kv",
    "drive.kv.sessions",
    "drive.kv.sessions-wal",
    "drive.kv.sessions-shm",
    "drive.kv.sessions.pins",
)


@pytest.fixture(scope="module")
def answer(model):
    return greedy(model, PROMPT, 10)


def copy_sparse(source, target):
    """Copy a file without its holes, of which a drive has more than it has data."""
    target.touch(source.stat().st_mode & 0o777)
    with source.open("rb") as one, target.open("wb") as other:
        size, at = source.stat().st_size, 0
        other.truncate(size)
        while at < size:
            try:
                at = os.lseek(one.fileno(), at, os.SEEK_DATA)
            except OSError:  # there are no more data
                break
            end = os.lseek(one.fileno(), at, os.SEEK_HOLE)
            while at < end:
                at += os.pwrite(other.fileno(), os.pread(one.fileno(), min(end - at, 1 << 20), at), at)


def turn(model, folder, new_tokens=10):
    """Continues with what is stored. Tokens found, and the answer."""
    with (
        Emulator(folder / "drive.kv", "fast", capacity_bytes=1 << 24) as drive,
        attach(model, drive, sessions=True) as at,
    ):
        cache = at.sessions.cache(PROMPT)
        found = cache.get_seq_length()
        return found, greedy(model, PROMPT, new_tokens, past_key_values=cache)


@pytest.fixture(scope="module")
def closed(model, answer, tmp_path_factory):
    """A folder with a drive that stores a pinned session, closed well."""
    folder = tmp_path_factory.mktemp("closed")
    assert turn(model, folder)[0] == 0
    index = Index(folder / "drive.kv.sessions")
    with index.transaction():
        index.set(1, pinned=True)
        index.set_quota("", 1 << 30)
    index.close()
    return folder


@pytest.fixture(scope="module")
def live(model, answer, tmp_path_factory):
    """The same as a process left it that was killed: the index is in its -wal."""
    folder, there = tmp_path_factory.mktemp("live"), tmp_path_factory.mktemp("there")
    with (
        Emulator(there / "drive.kv", "fast", capacity_bytes=1 << 24) as drive,
        attach(model, drive, sessions=True) as at,
    ):
        cache = at.sessions.cache(PROMPT)
        greedy(model, PROMPT, 10, past_key_values=cache)
        at.sessions.release(cache)
        for name in STORED:
            if (there / name).exists():
                copy_sparse(there / name, folder / name)
    assert (folder / "drive.kv.sessions-wal").stat().st_size > 0
    return folder


def restore(source, folder):
    for one in folder.iterdir():
        shutil.rmtree(one) if one.is_dir() else one.unlink()
    for name in STORED:
        if (source / name).exists():
            copy_sparse(source / name, folder / name)


def json_bit(path):
    good = path.read_bytes()
    at = good.rfind(b'"kv_heads"')
    path.write_bytes(good[:at] + bytes([good[at] ^ 1]) + good[at + 1 :])


def half(path):
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def overwritten(path):
    path.write_bytes(b"x" * path.stat().st_size)


def emptied(path):
    path.write_bytes(b"")


def folder_instead(path):
    path.unlink(missing_ok=True)
    path.mkdir()
    (path / "something").write_text("of the user")


def other_database(path):
    path.unlink()
    with sqlite3.connect(path) as db:
        db.execute("CREATE TABLE sessions(id)")
        db.execute("PRAGMA user_version=1")
    db.close()


def text_for_numbers(path):
    with sqlite3.connect(path) as db:
        db.execute("UPDATE tenants SET bytes='many'")
    db.close()


def missing(path):
    path.unlink()


@pytest.mark.parametrize(
    "damage", [json_bit, half, overwritten, emptied, folder_instead, other_database, text_for_numbers, missing]
)
def test_a_damaged_index_is_made_again_at_once(model, answer, closed, tmp_path, caplog, damage):
    restore(closed, tmp_path)
    path = tmp_path / "drive.kv.sessions"
    damage(path)
    with caplog.at_level(logging.WARNING):
        found, tokens = turn(model, tmp_path)
    assert found == 99
    assert torch.equal(tokens, answer)
    said = " ".join(caplog.messages)
    assert "the index of sessions was made again: 1 sessions" in said
    if damage not in (missing, emptied):
        assert f"{path} is damaged" in said
        assert path.with_name(path.name + ".damaged").exists()
    index = Index(path)
    assert (index.made, len(index.pinned()), index.accounts.quota("")) == (False, 1, 1 << 30)
    index.close()
    caplog.clear()
    assert turn(model, tmp_path)[0] == 99
    assert "made again" not in " ".join(caplog.messages)


@pytest.mark.parametrize(
    ("part", "damage"),
    [
        pytest.param(part, damage, marks=pytest.mark.slow if part == "-shm" and damage in (emptied, half) else ())
        for part in ("-wal", "-shm")
        for damage in (half, overwritten, emptied, folder_instead, missing)
    ],
)
def test_the_index_continues_when_only_a_part_of_it_is_damaged(model, answer, live, tmp_path, part, damage):
    """Without its -wal the index is older or empty: what it does not name any more is computed again."""
    restore(live, tmp_path)
    damage(tmp_path / f"drive.kv.sessions{part}")
    found, tokens = turn(model, tmp_path)
    assert found in (0, 99)
    assert found == 99 or part == "-wal"
    assert torch.equal(tokens, answer)
    assert turn(model, tmp_path)[0] == 99


@by_value(
    {
        "content": [b"", b"{", b"[]", b'{"pins": 7, "quotas": {"": "x"}, "counters": {"hits": []}}', b"\xff\xfe"],
        "name": ["drive.kv.sessions.pins", "drive.kv.costs"],
    }
)
def test_other_files_beside_a_drive_may_be_damaged(model, answer, closed, tmp_path, name, content):
    restore(closed, tmp_path)
    (tmp_path / "drive.kv.sessions").unlink()
    (tmp_path / name).write_bytes(content)
    found, tokens = turn(model, tmp_path)
    assert found == 99
    assert torch.equal(tokens, answer)


def test_damage_while_the_index_is_open_costs_what_it_named_until_the_next_start(
    model, answer, closed, tmp_path, caplog
):
    restore(closed, tmp_path)
    path = tmp_path / "drive.kv.sessions"
    with Emulator(tmp_path / "drive.kv", "fast") as drive, attach(model, drive, sessions=True) as at:
        first = at.sessions.cache(PROMPT)
        assert first.get_seq_length() == 99
        at.sessions.index._db._db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        size = path.stat().st_size
        with path.open("r+b") as file:
            file.seek(4096)
            file.write(b"x" * (size - 4096))
        at.sessions.index._db._db.execute("PRAGMA shrink_memory")
        for _ in range(3):
            cache = at.sessions.cache(PROMPT)
            assert torch.equal(greedy(model, PROMPT, 10, past_key_values=cache), answer)
            at.sessions.release(cache)
        assert torch.equal(greedy(model, PROMPT, 10, past_key_values=first), answer)
        at.sessions.release(first)
    assert "goes on in memory" in " ".join(caplog.messages)
    assert turn(model, tmp_path)[0] == 99
    index = Index(path)
    assert (index.made, len(index.pinned()), index.accounts.quota("")) == (False, 1, 1 << 30)
    index.close()


def test_an_index_of_an_earlier_version_has_no_checksums_and_opens(model, closed, tmp_path, caplog):
    restore(closed, tmp_path)
    with sqlite3.connect(tmp_path / "drive.kv.sessions") as db:
        db.execute("ALTER TABLE sessions DROP COLUMN sum")
    db.close()
    with caplog.at_level(logging.WARNING):
        assert turn(model, tmp_path)[0] == 99
    assert "made again" not in " ".join(caplog.messages)
    index = Index(tmp_path / "drive.kv.sessions")
    assert len(index.pinned()) == 1
    index.close()


def small_index(path):
    rng = np.random.default_rng(3)
    index = Index(path)
    with index.transaction():
        for number in range(40):
            record = json.dumps({"model": rng.bytes(8).hex(), "layers": [[0, 2, 64]] * 4})
            entry = NewEntry(
                int(rng.integers(1 << 60)), "tenant", "m" * 16, [[0, number, 0, 2]], record, 512, 16,
                f"name {number}", "", 40, rng.integers(1000, size=8).tolist(), int(rng.integers(1 << 60)),
            )  # fmt: skip
            index.add(entry, rng.integers(1 << 60, size=2).tolist())
        index.filled()
    index.close()


def guarded(index):
    """What decides which session of a drive is used or removed."""
    return [
        (e.root, e.name, e.tenant, e.model, e.tokens, e.tail, e.last, e.slices, e.record, e.bytes_per_token, e.block)
        for e in sorted(index.entries(), key=lambda entry: entry.slices)
    ]


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (1, 2))])
def test_bytes_of_an_index_that_change_are_noticed_or_change_nothing(tmp_path, seed):
    """50 random damages each: bits, bytes, pages, an early end. A session is as it was then, or the index is new."""
    path, rng = tmp_path / "index", np.random.default_rng(seed)
    small_index(path)
    clean = path.read_bytes()
    index = Index(path)
    before = guarded(index)
    index.close()
    made = 0
    for _ in range(50):
        content = bytearray(clean)
        at, way = int(rng.integers(len(clean))), int(rng.integers(4))
        if way == 0:
            content[at] ^= 1 << int(rng.integers(8))
        elif way == 1:
            content[at : at + 16] = rng.bytes(min(16, len(content) - at))
        elif way == 2:
            content[at // 4096 * 4096 : at // 4096 * 4096 + 4096] = bytes(4096)
        else:
            del content[at:]
        for one in tmp_path.iterdir():
            one.unlink()
        path.write_bytes(content)
        index = Index(path)
        found = guarded(index)
        assert index.made or set(map(repr, found)) <= set(map(repr, before)), (at, way)
        assert not index.made or found == []
        made += index.made
        with index.transaction():
            index.use(1)
        index.close()
    assert made > 10


def test_the_command_line_sends_to_who_can_fill_an_index(closed, tmp_path):
    restore(closed, tmp_path)
    overwritten(tmp_path / "drive.kv.sessions")
    with pytest.raises(InputError, match=r"`kvdrive sessions gc .*` fills it"), open_index(str(tmp_path / "drive.kv")):
        pass
    with pytest.raises(InputError, match=r"`kvdrive sessions gc .*` fills it"), open_index(str(tmp_path / "drive.kv")):
        pass  # it is new by now, and empty: nobody may take that for what the drive holds


def of_an_earlier_version(path):
    """Without checksums, which opening adds."""
    with sqlite3.connect(path) as db:
        db.execute("ALTER TABLE sessions DROP COLUMN sum")
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    db.close()


@pytest.fixture(scope="module")
def several(model, closed, tmp_path_factory):
    """A folder with a drive that stores two sessions: the pinned one, and one with a name."""
    folder = tmp_path_factory.mktemp("several")
    restore(closed, folder)
    with Emulator(folder / "drive.kv", "fast") as drive, attach(model, drive, sessions=True) as at:
        cache = at.sessions.cache(OTHER, "notes")
        greedy(model, OTHER, 4, past_key_values=cache)
        at.sessions.release(cache)
    return folder


def said_by_commands(folder):
    """The sessions that the command line knows, or what it says instead."""
    try:
        with open_index(str(folder / "drive.kv")) as index:
            return index.count()
    except InputError as error:
        return str(error)


@pytest.mark.parametrize("most", [3, pytest.param(1 << 30, marks=pytest.mark.slow)])
@pytest.mark.parametrize("state", [missing, half, of_an_earlier_version])
def test_a_kill_while_an_index_is_made_again_loses_no_session(model, answer, several, tmp_path, caplog, state, most):
    """The next process finds everything. Whoever looks earlier is sent to it, or finds everything as well."""
    path = tmp_path / "drive.kv.sessions"
    aside = path.with_name(path.name + ".damaged")

    def begin():
        restore(several, tmp_path)
        state(path)

    begin()
    damaged = path.read_bytes() if state is half else None

    def work():
        torch.set_num_threads(1)
        with Emulator(tmp_path / "drive.kv", "fast") as drive:
            attach(model, drive, sessions=True).detach()

    seen = set()
    try:
        for _ in killed.at_every_call(work, begin, most):
            seen.add((path.exists(), aside.exists()))
            there = said_by_commands(tmp_path)
            assert there == 2 or re.search(r"there is no index|`kvdrive sessions gc .*` fills it", there), there
            caplog.clear()
            with (
                Emulator(tmp_path / "drive.kv", "fast") as drive,
                attach(model, drive, sessions=True) as at,
            ):
                index = at.sessions.index
                assert (index.count(), len(index.pinned()), index.accounts.quota("")) == (2, 1, 1 << 30)
                assert index.named("notes", "") is not None
                assert at.sessions.cache(OTHER).get_seq_length() == 59
                cache = at.sessions.cache(PROMPT)
                assert cache.get_seq_length() == 99
                assert torch.equal(greedy(model, PROMPT, 4, past_key_values=cache), answer[:, :104])
            for one in caplog.messages:
                assert "the index of sessions was made again: 2 sessions" in one or f"{path} is damaged" in one
            assert not aside.exists() or aside.read_bytes() == damaged
            assert {one.name for one in tmp_path.iterdir()} <= {*STORED, aside.name, aside.name + "-wal"}
    except killed.NoTracingError:
        pytest.skip("this machine lets no process trace its child")
    if state is half:
        assert {(True, False), (True, True)} <= seen


@pytest.fixture
def small_tmpfs(tmp_path):
    """A file system in memory of 64 MiB."""
    command = ["mount", "-t", "tmpfs", "-o", "size=64m", "tmpfs", str(tmp_path)]
    if subprocess.run(command, capture_output=True).returncode != 0:
        pytest.skip("mounting a file system needs root")
    yield tmp_path
    subprocess.run(["umount", "--lazy", str(tmp_path)], check=True)


def fill(folder):
    command = ["dd", "if=/dev/zero", f"of={folder / 'rest'}", "bs=4096"]
    assert "No space" in subprocess.run(command, capture_output=True, text=True).stderr


@pytest.mark.parametrize("state", ["whole", "killed", "damaged", "missing"])
def test_a_full_disk_keeps_no_session_from_being_found(model, answer, closed, live, small_tmpfs, state):
    restore(live if state == "killed" else closed, small_tmpfs)
    if state == "damaged":
        half(small_tmpfs / "drive.kv.sessions")
    if state == "missing":
        (small_tmpfs / "drive.kv.sessions").unlink()
    fill(small_tmpfs)
    found, tokens = turn(model, small_tmpfs, new_tokens=4)
    assert found == 99
    assert torch.equal(tokens, answer[:, :104])
    (small_tmpfs / "rest").unlink()
    found, tokens = turn(model, small_tmpfs)
    assert found == 99
    assert torch.equal(tokens, answer)


def test_a_disk_that_becomes_full_leaves_the_index_working(model, answer, closed, small_tmpfs):
    restore(closed, small_tmpfs)
    with Emulator(small_tmpfs / "drive.kv", "fast") as drive, attach(model, drive, sessions=True) as at:
        fill(small_tmpfs)
        for _ in range(3):
            cache = at.sessions.cache(PROMPT)
            assert cache.get_seq_length() == 99
            assert torch.equal(greedy(model, PROMPT, 4, past_key_values=cache), answer[:, :104])
            at.sessions.release(cache)
        (small_tmpfs / "rest").unlink()
    assert turn(model, small_tmpfs)[0] == 99
