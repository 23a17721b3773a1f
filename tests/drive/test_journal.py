# SPDX-License-Identifier: Apache-2.0
"""The journal and the superblocks: one bad page loses nothing, leftovers are ignored, missing parts are reported."""

import numpy as np
import pytest
from disk import DAMAGES, JOURNAL, PAGE, SECTOR, SUPERBLOCK, copy, damage, head_of, put, superblock, transactions
from kv_model import Model
from pairs import some_quick

from kvdrive import abi
from kvdrive._native import Drive

S = abi.NvmeStatus
HEADS, D = 200, 256


def rows(seed, heads=2, tokens=40, d=64):
    return np.random.default_rng(seed).standard_normal((heads, tokens, d)).astype(np.float16)


def fill(host, layers):
    """Rows that do not fill a page: 0.7 MB of drive memory, and so of the journal, for each layer's K or V."""
    for layer in range(layers):
        for kind in abi.KvKind:
            reply = host.append(rows(2 * layer + kind, HEADS, 7, D), session=1, layer=layer, kind=kind)
            assert reply.status == S.SUCCESS


def holds(drive, layers):
    """True if the drive holds what `fill` stored."""
    return all(
        drive.rows(1, layer, head, kind).tobytes() == rows(2 * layer + kind, HEADS, 7, D)[head].tobytes()
        for layer in range(layers)
        for kind in abi.KvKind
        for head in (0, HEADS - 1)
    )


def kill_before_snapshot(make_drive, folder, layers, snapshot_bytes):
    """A drive, closed by a kill, whose next commit takes a snapshot of several transactions."""
    host = make_drive(path=folder / "base.kv", snapshot_bytes=snapshot_bytes)
    assert host.append(rows(98), session=2).status == S.SUCCESS
    fill(host, layers)
    assert host.flush().status == S.SUCCESS
    host.drive.inject("power_cut")
    host.drive = None
    return folder / "base.kv"


def cut_in_snapshot(make_drive, path, layers, cut, torn, snapshot_bytes=1 << 20):
    """Cut the power at write `cut` of a commit that starts the other half. Returns (True if cut, writes)."""
    host = make_drive(path=path, snapshot_bytes=snapshot_bytes)
    host.sequence = {1: 2 * layers, 2: 1}
    host.append(rows(99), session=2, first_token=40)
    before = host.drive.flash_stats()["file_writes"]
    host.drive.inject("power_cut", after=cut, argument=torn + (cut << 8 if torn > 1 else 0))
    status = host.flush().status
    writes = host.drive.flash_stats()["file_writes"] - before
    host.drive = None
    return status == S.INTERNAL_ERROR, writes


def leftovers_never_count(make_drive, base, layers, torn, snapshot_bytes):
    """A cut at every write of a snapshot. Then less is stored, so the next snapshot is shorter than the leftovers."""
    cuts = 0
    while True:
        path = copy(base, base.with_name("cut.kv"))
        if not cut_in_snapshot(make_drive, path, layers, cuts, torn, snapshot_bytes)[0]:
            return cuts
        cuts += 1
        host = make_drive(path=path, snapshot_bytes=1 << 16)
        assert holds(host.drive, layers)
        assert host.drive.sessions() == [1, 2]
        assert host.trim(session=1).status == S.SUCCESS
        generation = superblock(path)["generation"]
        assert host.flush().status == S.SUCCESS
        assert superblock(path)["generation"] in (generation, generation + 1)
        host.reopen()
        assert host.drive.sessions() == [2]
        assert host.drive.rows(2, 0, 0, 0).tobytes()[: 40 * 128] == rows(98)[0].tobytes()
        assert host.drive.check() == []
        host.drive = None


@pytest.fixture
def outgrown(make_drive, memory_folder):
    return kill_before_snapshot(make_drive, memory_folder, 2, 1 << 20), 2


@pytest.mark.parametrize("torn", some_quick(range(4), [0, 3]))
def test_leftovers_of_an_interrupted_snapshot_never_count(make_drive, outgrown, torn):
    assert leftovers_never_count(make_drive, *outgrown, torn, 1 << 20) >= 12


@pytest.mark.slow
@pytest.mark.parametrize("torn", [0, 1])
def test_leftovers_of_a_snapshot_of_more_than_64_mib_never_count(make_drive, memory_folder, torn):
    base = kill_before_snapshot(make_drive, memory_folder, 48, 16 << 20)
    assert base.stat().st_blocks * 512 > 64 << 20
    cuts = leftovers_never_count(make_drive, base, 48, torn, 16 << 20)
    assert cuts >= 16
    print(f"{cuts} cuts")


def test_no_room_in_a_snapshot_changes_nothing_and_later_ones_work(make_drive, outgrown, memory_folder):
    base, layers = outgrown
    for good in range(9):
        path = copy(base, memory_folder / "full.kv")
        host = make_drive(path=path, snapshot_bytes=1 << 20)
        host.sequence = {1: 2 * layers, 2: 1}
        assert host.append(rows(99), session=2, first_token=40).status == S.SUCCESS
        host.drive.inject("disk_full", after=good, count=1)
        assert host.flush().status == S.INTERNAL_ERROR
        other = copy(path, memory_folder / "killed.kv")  # a copy as after a kill now
        killed = make_drive(path=other, snapshot_bytes=1 << 20)
        assert holds(killed.drive, layers)
        assert killed.drive.check() == []
        killed.drive = None
        assert host.flush().status == S.SUCCESS
        host.reopen()
        assert holds(host.drive, layers)
        assert host.drive.rows(2, 0, 0, 0).tobytes() == np.concatenate([rows(98), rows(99)], axis=1)[0].tobytes()
        host.drive = None


@pytest.fixture
def acknowledged(make_drive, memory_folder):
    """A drive that was killed after ten durable appends, each a transaction; and the model of its contents."""
    host, model = make_drive(path=memory_folder / "drive.kv"), Model()
    for number in range(5):
        for kind in abi.KvKind:
            part = rows(10 * number + kind)
            assert host.append(part, kind=kind, first_token=40 * number, options=1).status == S.SUCCESS
            model.append(1, 0, kind, part)
    host.drive.inject("power_cut")
    host.drive = None
    return host, model


# One way to damage every third page, or two ways for each.
@pytest.mark.parametrize(("turn", "step"), some_quick([(0, 3), (0, 1), (1, 1)], [(0, 3)]))
def test_any_one_damaged_page_of_superblocks_and_journal_loses_nothing(acknowledged, turn, step):
    host, model = acknowledged
    rng = np.random.default_rng(1)
    found = transactions(host.path)
    assert len(found) == 12
    pages = [0, PAGE] + [offset + i * PAGE for offset, count in found for i in range(count)]
    clean = head_of(host.path, pages[-1] + PAGE)
    for number, page in (*enumerate(pages[:2]), *list(enumerate(pages))[2::step]):
        size = SUPERBLOCK if page < JOURNAL else PAGE
        damage(host.path, page, DAMAGES[(number + turn * (len(pages) + 1)) % 4], rng, size)
        host.reopen(read_only=True)
        assert model.equals(host.drive)
        assert len(host.drive.notices()) == 1
        host.reopen()
        assert model.equals(host.drive)
        assert len(host.drive.notices()) == 1
        host.drive.inject("power_cut")  # no clean close
        host.reopen()  # it was repaired
        assert host.drive.notices() == []
        host.drive = None
        put(host.path, 0, clean)


def test_one_flipped_bit_in_either_superblock_never_brings_back_the_past(make_drive):
    """A regression: durable tokens of the newer generation were lost, and closing the drive overwrote the good half."""
    host = make_drive(snapshot_bytes=1 << 14)
    model, number = Model(), 0
    while superblock(host.path)["generation"] < 4:
        part = rows(number)
        assert host.append(part, first_token=40 * number, options=1).status == S.SUCCESS
        model.append(1, 0, 0, part)
        number += 1
    host.drive.inject("power_cut")
    for copy_number in range(2):
        host.drive = None
        assert superblock(host.path, 0) == superblock(host.path, 1)
        damage(host.path, copy_number * PAGE, "bit", np.random.default_rng(copy_number), SUPERBLOCK)
        host.reopen()
        assert model.equals(host.drive)
        assert "superblock was damaged" in host.drive.notices()[0]
    assert host.drive.check() == []


def test_a_cut_between_the_superblocks_is_put_right(make_drive, outgrown, memory_folder):
    base, layers = outgrown
    path = copy(base, memory_folder / "cut.kv")
    writes = cut_in_snapshot(make_drive, path, layers, 10**6, 0)[1]
    path = copy(base, memory_folder / "cut.kv")
    assert cut_in_snapshot(make_drive, path, layers, writes - 1, 0)[0]  # the second superblock is the last write
    assert superblock(path, 0)["generation"] == superblock(path, 1)["generation"] + 1
    host = make_drive(path=path)
    assert superblock(path, 0) == superblock(path, 1)
    assert host.drive.notices() == []
    assert holds(host.drive, layers)


def test_a_last_transaction_that_lost_two_pages_is_damage_and_said(acknowledged):
    host, _ = acknowledged
    offset, pages = transactions(host.path)[-1]
    clean = head_of(host.path, offset + pages * PAGE)
    for page in range(2):
        damage(host.path, offset + page * PAGE, "bit", np.random.default_rng(page))
    with pytest.raises(RuntimeError, match=r"journal of .* is damaged: transaction 11"):
        host.reopen()
    put(host.path, 0, clean)
    host.reopen()  # a clean close stores the number of transactions, so even one that left no trace is missed
    host.drive = None
    put(host.path, offset, bytes(pages * PAGE))
    with pytest.raises(RuntimeError, match="is damaged: transaction 11 cannot be read"):
        host.reopen()


def note(count):
    """The place of the note that `count` transactions were acknowledged."""
    return (count % 2 + 1) * PAGE - SECTOR


@pytest.mark.parametrize("kind", ["zeros", "noise", "sectors", "older"])
def test_a_last_transaction_that_vanished_after_a_kill_is_missed(acknowledged, kind):
    """All of it is gone, without a trace in the journal: acknowledged tokens would be lost without a word."""
    host, model = acknowledged
    found = transactions(host.path)
    offset, pages = found[-1]
    clean = head_of(host.path, offset + pages * PAGE)
    gone = bytes(pages * PAGE) if kind != "noise" else np.random.default_rng(1).bytes(pages * PAGE)
    if kind == "sectors":  # what a disk returns for some of them
        gone = bytes(SECTOR * 3) + clean[offset + SECTOR * 3 : offset + pages * PAGE - SECTOR] + bytes(SECTOR)
    if kind == "older":  # the pages of the transaction before
        gone = clean[found[-2][0] : found[-2][0] + pages * PAGE]
    put(host.path, offset, gone)
    for options in ({}, {"read_only": True}):
        with pytest.raises(RuntimeError, match=r"is damaged: transaction 11 (cannot be read|lost more)"):
            host.reopen(**options)
    host.reopen(salvage=True)
    assert "transaction 11" in " ".join(host.drive.notices())
    assert host.drive.rows(1, 0, 0, 0).tobytes() == model.rows[1][0, 0][0].tobytes()
    host.drive = None
    put(host.path, 0, clean)
    host.reopen()
    assert model.equals(host.drive)


@pytest.mark.parametrize("count", [8, pytest.param(1000, marks=pytest.mark.slow)])
def test_random_damage_of_the_last_transaction_loses_nothing_without_a_word(acknowledged, count):
    """Several pages of it at once, in any way: the drive has all, or says which transaction is damaged."""
    host, model = acknowledged
    offset, pages = transactions(host.path)[-1]
    clean = head_of(host.path, offset + pages * PAGE)
    said = 0
    for seed in range(count):
        rng = np.random.default_rng(seed)
        for page in rng.choice(pages, rng.integers(1, pages + 1), replace=False):
            damage(host.path, offset + int(page) * PAGE, str(rng.choice(DAMAGES)), rng)
        message = ""
        try:
            host.reopen(read_only=bool(rng.integers(2)))
        except RuntimeError as error:
            message = str(error)
        if message:
            said += 1
            assert "is damaged: transaction 11 " in message, seed
        else:
            assert model.equals(host.drive), seed
            host.drive = None
        put(host.path, 0, clean)
    assert said > 0
    assert said < count or count < 100  # how many pages can be lost depends on how many the transaction has


def test_the_count_of_transactions_survives_the_loss_of_either_note(acknowledged):
    """One note is lost with its page; the other says one transaction less, so a file without damage opens."""
    host, model = acknowledged
    count, (offset, pages) = len(transactions(host.path)), transactions(host.path)[-1]
    clean = head_of(host.path, offset + 16 * PAGE)
    for lost in (count, count - 1):
        put(host.path, note(lost), bytes(SECTOR))
        host.reopen()
        assert model.equals(host.drive)
        assert host.drive.notices() == []
        host.drive = None
        put(host.path, 0, clean)
    put(host.path, note(count - 1), bytes(SECTOR))
    put(host.path, offset, bytes(pages * PAGE))
    with pytest.raises(RuntimeError, match="transaction 11 cannot be read"):
        host.reopen()


def test_a_file_of_an_earlier_version_without_notes_opens(acknowledged):
    host, model = acknowledged
    for count in range(2):
        put(host.path, note(count), bytes(SECTOR))
    host.reopen()
    assert model.equals(host.drive)
    host.drive.inject("power_cut")
    host.drive = None
    offset, pages = transactions(host.path)[11]
    put(host.path, offset, bytes(pages * PAGE))
    with pytest.raises(RuntimeError, match="transaction 11 cannot be read"):  # it was noted when the file was opened
        host.reopen()


def test_notes_of_an_earlier_half_never_count(make_drive):
    """The other half of the journal begins with few transactions; the notes are those of the half before."""
    host = make_drive(snapshot_bytes=1 << 14)
    number = 0
    while superblock(host.path)["generation"] < 3:
        assert host.append(rows(number), first_token=40 * number, options=1).status == S.SUCCESS
        number += 1
    host.drive.inject("power_cut")
    host.reopen()
    assert host.drive.notices() == []
    assert host.drive.check() == []


def test_a_torn_last_transaction_is_no_damage(acknowledged):
    """Sectors that the transaction never reached still have the stamps of an older one."""
    host, model = acknowledged
    offset, pages = transactions(host.path)[-1]
    for page in range(pages):
        put(host.path, offset + page * PAGE + 1024, bytes(512))
    put(host.path, note(len(transactions(host.path))), bytes(SECTOR))  # it was not acknowledged
    before = Model()
    for (_, kind), stored in model.rows[1].items():
        before.append(1, 0, kind, stored[:, : 160 if kind == abi.KvKind.VALUES else 200])
    host.reopen()
    assert before.equals(host.drive)
    part = rows(7, tokens=9)  # a shorter transaction uses the place again
    host.sequence[1] = 9
    assert host.append(part, kind=1, first_token=160, options=1).status == S.SUCCESS
    host.drive.inject("power_cut")
    host.reopen()
    before.append(1, 0, 1, part)
    assert before.equals(host.drive)


def test_a_read_only_drive_shows_everything_and_writes_nothing(acknowledged):
    host, model = acknowledged
    host.path.chmod(0o444)
    size = transactions(host.path)[-1][0] + PAGE
    clean = head_of(host.path, size)
    with pytest.raises(RuntimeError, match="No such file"):
        Drive(host.path.with_name("missing.kv"), "fast", read_only=True)
    assert not host.path.with_name("missing.kv").exists()
    host.reopen(read_only=True)
    other = Drive(host.path, "fast", read_only=True)
    assert model.equals(other)
    assert model.equals(host.drive)
    assert host.drive.check() == []
    for reply in (host.append(rows(1), session=7), host.trim(), host.erase(), host.fork(1, 2, 8)):
        assert (reply.status, reply.retry) == (0x20, False)
    with pytest.raises(RuntimeError, match="another drive has it open"):
        Drive(host.path, "fast")
    host.drive = other = None
    assert head_of(host.path, size) == clean


def test_a_file_that_was_cut_to_nothing_is_no_new_drive(tmp_path):
    path = tmp_path / "drive.kv"
    path.touch()
    for options in ({}, {"read_only": True}):
        with pytest.raises(RuntimeError, match="it is an empty file"):
            Drive(path, "fast", 1, 64 * PAGE, **options)
        assert path.stat().st_size == 0
    Drive(path, "fast", 1, 64 * PAGE, format=True)
    assert path.stat().st_size > 0
