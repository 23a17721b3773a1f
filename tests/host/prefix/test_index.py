"""The index alone: chains, prefixes, shared bytes, order of eviction, several processes, many sessions."""

import random
import sqlite3
import subprocess
import sys
import time

import pytest

from kvdrive.errors import InputError
from kvdrive.prefix.chain import Chain, GrowingChain, block_tokens
from kvdrive.prefix.entry import NewEntry
from kvdrive.prefix.eviction import EVICTIONS, make_eviction
from kvdrive.prefix.index import Index
from kvdrive.prefix.notes import Notes

MODEL = bytes(range(32))
BLOCK = 4


def chain(**changes):
    fields = {"fingerprint": MODEL, "tenant": "", "layout": "0/1", "block": BLOCK}
    return Chain(**(fields | changes))


@pytest.fixture
def index(tmp_path):
    index = Index(tmp_path / "index")
    yield index
    index.close()


def add(index, ids, number=1, of=None, tenant="", **fields):
    of = of or chain()
    growing = GrowingChain(of)
    growing.extend(ids)
    entry = NewEntry(
        of.root, tenant, MODEL.hex(), [[0, number, 0, 1]], "{}", 10, of.block, tokens=len(ids),
        tail=ids[len(growing.keys) * of.block :], last=growing.last, **fields,
    )  # fmt: skip
    with index.transaction():
        return index.add(entry, growing.keys)


def found(index, ids, of=None):
    of = of or chain()
    depth, entries = index.find(of.root, of.keys(ids))
    return depth, [entry.id for entry in entries]


def test_keys_are_the_same_on_every_machine():
    assert chain().root == KEYS[0]
    assert list(chain().keys(range(9))) == KEYS[1:]


KEYS = [7392321060806903971, 4273860079852573234, 9051828011423289202]


def test_keys_name_the_whole_prefix_and_its_owner():
    ids = list(range(12))
    first = list(chain().keys(ids))
    assert len(set(first)) == 3
    assert list(chain().keys([99, *ids[1:]]))[2] != first[2]
    for change in ({"fingerprint": bytes(32)}, {"tenant": "a"}, {"layout": "2/1"}, {"block": 2}):
        assert not set(chain(**change).keys(ids)) & set(first)
    growing = GrowingChain(chain())
    for end in range(13):
        growing.extend(ids[:end])
    assert growing.keys == first


@pytest.mark.parametrize(
    ("head_dim", "tokens"), [(128, 64), (64, 64), (32, 64), (256, 64), (96, 84), (8, 256), (80, 75)]
)
def test_a_block_is_whole_groups(head_dim, tokens):
    assert block_tokens(head_dim) == tokens
    assert tokens % (4096 // (2 * head_dim)) == 0


def test_the_longest_prefix_is_found(index):
    ids = list(range(14))
    short, long = add(index, ids[:8]), add(index, ids)
    other = add(index, [7] * 9)
    assert found(index, ids) == (3, [long])
    assert found(index, [*ids[:10], 99, 99]) == (2, [short, long])  # the one that ends there first
    assert found(index, [7] * 4) == (1, [other])
    assert found(index, [5] * 9) == (0, [])
    tiny = add(index, [1, 2])
    assert found(index, [1, 2, 3]) == (0, [tiny])


def test_shared_blocks_count_once(index):
    ids = list(range(14))
    first, second = add(index, ids), add(index, [*ids[:8], 1, 2, 3, 4])
    assert index.blocks() == 4
    assert index.accounts.bytes() == (4 * BLOCK + 2) * 10
    with index.transaction():
        index.remove(first)
    assert index.accounts.bytes() == 3 * BLOCK * 10
    assert found(index, ids) == (2, [second])
    with index.transaction():
        assert index.remove(second).id == second
        assert index.remove(second) is None
    assert (index.accounts.bytes(), index.blocks(), index.count()) == (0, 0, 0)


def test_blocks_stay_that_an_older_session_shares(index):
    ids = list(range(14))
    older, younger = add(index, ids), add(index, [*ids[:8], 1, 2, 3, 4])
    with index.transaction():
        index.remove(younger)
    assert index.accounts.bytes() == (3 * BLOCK + 2) * 10
    assert found(index, ids) == (3, [older])


def test_a_session_grows(index):
    ids = list(range(14))
    number = add(index, ids[:6])
    growing = GrowingChain(chain())
    growing.extend(ids)
    with index.transaction():
        assert index.grow(number, growing.keys, 14, ids[12:], growing.last)
        assert not index.grow(99, [], 1, [1], 0)
    assert found(index, ids) == (3, [number])
    assert index.accounts.bytes() == 140


def test_names_are_unique_for_a_tenant(index):
    add(index, [1], name="a")
    with pytest.raises(sqlite3.IntegrityError):
        add(index, [2], name="a")
    number = add(index, [3])
    with index.transaction(), pytest.raises(InputError, match="choose another name"):
        index.set(number, name="a")
    assert index.count() == 2


@pytest.mark.parametrize(
    ("policy", "order"), [("lru", [2, 3, 1]), ("fifo", [1, 2, 3]), ("lfu", [3, 1, 2]), ("ttl", [2, 3, 1])]
)
def test_policies_choose_their_victims(index, policy, order):
    for number in range(3):
        add(index, [number])
    with index.transaction():
        for number in (2, 2, 3, 1):
            index.use(number)
    eviction, left = make_eviction(policy), []
    while (victim := eviction.victim(index)) is not None:
        left.append(victim.id)
        with index.transaction():
            index.remove(victim.id)
    assert left == order


def test_what_waiting_requests_use_stays(index):
    for number in range(4):
        add(index, [number])
    eviction = make_eviction("queue-aware")
    eviction.look_ahead([1, 3, 1, 2])
    left = []
    while (victim := eviction.victim(index)) is not None:
        left.append(victim.id)
        with index.transaction():
            index.remove(victim.id)
    assert left == [4, 2, 3, 1]  # the one that nobody wants, then from the end of the window


def test_there_is_no_other_policy():
    assert set(EVICTIONS) == {"lru", "fifo", "lfu", "ttl", "queue-aware"}
    with pytest.raises(InputError, match="choose lru"):
        make_eviction("random")


def test_pinned_and_open_sessions_stay(index):
    with index.transaction():
        index.set(add_inside(index, [1]), pinned=True)
        index.set(add_inside(index, [2]), owner="me")
    assert all(make_eviction(name).victim(index) is None for name in EVICTIONS)


def add_inside(index, ids):
    entry = NewEntry(1, "", "", [[0, ids[0], 0, 1]], "{}", 10, BLOCK, tokens=len(ids), tail=ids, last=1)
    return index.add(entry, [])


def test_a_failed_change_changes_nothing(index):
    add(index, list(range(9)))

    def fail():
        with index.transaction():
            index.remove(1)
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    assert found(index, list(range(9))) == (2, [1])


CHILD = """
import sys
from kvdrive.prefix.entry import NewEntry
from kvdrive.prefix.index import Index
from kvdrive.prefix.notes import Notes
index, me = Index(__import__("pathlib").Path(sys.argv[1])), int(sys.argv[2])
for i in range(100):
    with index.transaction():
        index.add(NewEntry(1, "", "", [[0, i, 0, 1]], "{}", 10, 4, tokens=4, last=me * 1000 + i), [me * 1000 + i])
"""


def test_processes_share_an_index(index, tmp_path):
    children = [subprocess.Popen([sys.executable, "-c", CHILD, tmp_path / "index", str(n)]) for n in range(3)]
    assert [child.wait() for child in children] == [0, 0, 0]
    assert (index.count(), index.blocks(), index.accounts.bytes()) == (300, 300, 300 * 40)


def test_a_file_that_is_no_index_is_set_aside_and_a_later_version_is_refused(tmp_path):
    (tmp_path / "text").write_text("no database" * 100)
    index = Index(tmp_path / "text")
    assert (index.made, index.count()) == (True, 0)
    index.close()
    assert (tmp_path / "text.damaged").read_text() == "no database" * 100
    with sqlite3.connect(tmp_path / "newer") as newer:
        newer.execute("PRAGMA user_version=99")
    newer.close()
    with pytest.raises(InputError, match="another version"):
        Index(tmp_path / "newer")


@pytest.mark.slow
def test_a_hundred_thousand_sessions(tmp_path):
    """Finding and evicting take about as long as with few. Bounded generously: the machine may be busy."""
    index, rng = Index(tmp_path / "index"), random.Random(1)
    with index.transaction():
        for number in range(100_000):
            keys = [1, 2, *(rng.getrandbits(62) for _ in range(8))]
            entry = NewEntry(7, "", "", [[0, number, 0, 1]], "{}", 10, BLOCK, tokens=40, last=keys[-1])
            index.add(entry, keys)
    assert (index.count(), index.blocks()) == (100_000, 800_002)
    began = time.perf_counter()
    for _ in range(1000):
        assert index.find(7, iter([1, 2, 3]))[0] == 2
    for _ in range(1000):
        with index.transaction():
            index.remove(make_eviction("lru").victim(index).id)
    assert time.perf_counter() - began < 60
    assert index.count() == 99_000
    index.close()


def note(index, number):
    return index.notes.of(index.get(number))


def test_a_note_goes_with_its_session(tmp_path):
    index = Index(tmp_path / "index")
    one, other = add(index, list(range(9))), add(index, list(range(5)), tenant="other")
    for number in (one, other):
        index.notes.put(index.get(number), b"text %d" % number)
    index.notes.put(index.get(one), b"another text")
    index.close()
    index = Index(tmp_path / "index")
    assert (note(index, one), note(index, other)) == (b"another text", b"text %d" % other)
    entry = index.remove(one)
    assert index.notes.of(entry) is None
    assert note(index, other) == b"text %d" % other
    index.close()


def test_notes_of_a_tenant_are_bounded_by_count_and_bytes(index):
    numbers = [add(index, [number] * 5, tenant=tenant) for number, tenant in enumerate("aaaab")]
    *own, others = numbers
    bounded = Notes(index._db, most=3, most_bytes=10)
    bounded.put(index.get(others), bytes(9))
    for number in own:
        bounded.put(index.get(number), b"abc")
    assert [note(index, number) for number in numbers] == [None, b"abc", b"abc", b"abc", bytes(9)]
    index.use(own[1])  # the last used one
    index.use(own[0])
    bounded.put(index.get(own[0]), bytes(7))
    assert [note(index, number) for number in numbers] == [bytes(7), b"abc", None, None, bytes(9)]
    bounded.put(index.get(own[3]), bytes(11))
    assert note(index, own[3]) is None
    assert note(index, others) == bytes(9)


@pytest.mark.parametrize(
    "change", ["text=CAST('tex' AS BLOB)", "text='text'", "text=NULL", "sum=NULL", "session=2", "sum=sum+1"]
)
def test_a_note_that_was_not_written_like_that_is_removed(tmp_path, change, caplog):
    index = Index(tmp_path / "index")
    first, second = add(index, list(range(9))), add(index, list(range(5)))
    assert second == 2
    index.notes.put(index.get(first), b"text")
    index.close()
    with sqlite3.connect(tmp_path / "index") as db:
        db.execute(f"UPDATE notes SET {change}")
    db.close()
    index = Index(tmp_path / "index")
    assert note(index, first) is None
    assert note(index, second) is None
    assert "damaged" in caplog.text
    index.close()
    index = Index(tmp_path / "index")
    assert index._db.rows("SELECT count(*) FROM notes") == [(0,)]
    index.close()


def test_an_index_of_an_earlier_version_gets_notes_and_loses_those_of_sessions_that_are_gone(tmp_path):
    index = Index(tmp_path / "index")
    one, other = add(index, list(range(9))), add(index, list(range(5)))
    for number in (one, other):
        index.notes.put(index.get(number), b"text")
    index._db.write("DELETE FROM sessions WHERE id=?", (one,))  # as a program does that knows no notes
    index.close()
    index = Index(tmp_path / "index")
    assert index._db.rows("SELECT session FROM notes") == [(other,)]
    index._db.write("DROP TABLE notes")
    index.close()
    index = Index(tmp_path / "index")
    assert note(index, other) is None
    index.notes.put(index.get(other), b"new")
    assert note(index, other) == b"new"
    index.close()
