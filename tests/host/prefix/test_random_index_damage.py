"""Random damage of an index and of its -wal and -shm: it opens, names no session that never was, and continues."""

from __future__ import annotations

import random
import shutil

import pytest

from kvdrive.prefix.chain import Chain, GrowingChain
from kvdrive.prefix.entry import Entry, NewEntry
from kvdrive.prefix.index import Index

SESSIONS, BLOCK = 12, 4
CHAIN = Chain(fingerprint=bytes(32), tenant="", layout="0/1", block=BLOCK)
PARTS = ("", "", "-wal", "-wal", "-shm")  # of the index, as often as they are damaged


def new_entry(ids: list[int], number: int) -> tuple[NewEntry, list[int]]:
    growing = GrowingChain(CHAIN)
    growing.extend(ids)
    slices, tail = [[0, number, 0, 1]], ids[len(growing.keys) * BLOCK :]
    entry = NewEntry(
        CHAIN.root, "", "00", slices, "{}", 10, BLOCK, tokens=len(ids), tail=tail, last=growing.last
    )  # fmt: skip
    return entry, growing.keys


def ids_of(number: int) -> list[int]:
    return [number % 3, *range(number, 2 * number + 9)]


def content(entry: Entry) -> tuple:
    return entry.id, entry.tokens, str(entry.tail), entry.last, str(entry.slices), entry.record, entry.name, entry.root


@pytest.fixture(scope="module")
def stored(tmp_path_factory):
    """An index with half of its sessions in its -wal, as a kill leaves it, and what it names."""
    folder, there = tmp_path_factory.mktemp("stored"), tmp_path_factory.mktemp("there")
    index = Index(there / "index")
    with index.transaction():
        index.filled()
    for number in range(SESSIONS):
        with index.transaction():
            index.add(*new_entry(ids_of(number), number))
        if number == SESSIONS // 2:
            index._db._db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    for path in there.glob("index*"):
        shutil.copy(path, folder)
    known = {content(entry) for entry in index.entries()}
    index.close()
    assert len(known) == SESSIONS
    assert (folder / "index-wal").stat().st_size > 0
    return folder, known


def damage(path, rng: random.Random) -> str:
    """Changes a file at random. What was done."""
    good = path.read_bytes()
    at, kind = rng.randrange(len(good)), rng.choice(("bit", "byte", "zeros", "noise", "cut", "moved", "gone"))
    length = min(1 << rng.randrange(13), len(good) - at)
    match kind:
        case "bit":
            bad = good[:at] + bytes([good[at] ^ 1 << rng.randrange(8)]) + good[at + 1 :]
        case "byte":
            bad = good[:at] + rng.randbytes(1) + good[at + 1 :]
        case "zeros" | "noise":
            bad = good[:at] + (bytes(length) if kind == "zeros" else rng.randbytes(length)) + good[at + length :]
        case "cut":
            bad = good[:at]
        case "moved":  # a piece of another place
            other = rng.randrange(len(good))
            bad = (good[:at] + good[other : other + length] + good[at + length :])[: len(good)]
        case _:
            path.unlink()
            return f"{path.name} {kind}"
    path.write_bytes(bad)
    return f"{path.name} {kind} at {at}, {length}"


def check(stored, folder, seed: int) -> None:
    source, known = stored
    rng = random.Random(seed)
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(source, folder)
    done = [damage(folder / f"index{rng.choice(PARTS)}", rng) for _ in range(rng.choice((1, 1, 1, 2)))
            if all((folder / f"index{part}").exists() for part in PARTS)]  # fmt: skip
    index = Index(folder / "index")
    found = {content(entry) for entry in index.entries()}
    assert found <= known, (seed, done, found - known)
    for number in range(SESSIONS):
        _, entries = index.find(CHAIN.root, CHAIN.keys(ids_of(number)))
        assert {content(entry) for entry in entries} <= known, (seed, done)
    with index.transaction():
        added = index.add(*new_entry([7] * 11, 99))
    kept = index.get(added)
    index.close()
    index = Index(folder / "index")
    if not index.made:  # else it was damaged where nothing had been read, and is filled again
        assert kept is None or content(kept) in {content(entry) for entry in index.entries()}, (seed, done)
    index.close()


@pytest.mark.parametrize("count", [20, pytest.param(4000, marks=pytest.mark.slow)])
def test_random_damage_of_an_index_names_no_session_that_there_never_was(stored, tmp_path, count):
    for seed in range(count):
        check(stored, tmp_path / "damaged", seed)
