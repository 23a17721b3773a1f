# SPDX-License-Identifier: Apache-2.0
"""K and V, weights and writes on one disk: all arrive with the same bits, are counted, and are on the timeline."""

import json
import mmap
import threading

import numpy as np
import pytest
from random_halves import halves

from kvdrive import abi
from kvdrive._native import DiskQueue, PieceReader, crc32c

PIECE = 1 << 19
OK = abi.NvmeStatus.SUCCESS


@pytest.fixture
def weights(tmp_path):
    """A file of 64 pieces, their checksums, and its contents."""
    contents = np.random.default_rng(2).integers(0, 256, 64 * PIECE, np.uint8)
    path = tmp_path / "weights"
    path.write_bytes(contents.tobytes())
    sums = np.array([crc32c(contents[at : at + PIECE]) for at in range(0, contents.size, PIECE)], np.uint32)
    return path, sums, contents


def memory(size):
    return np.frombuffer(mmap.mmap(-1, size), np.uint8)


def counted(queue, before=None):
    """Transfers and bytes by kind, those since `before` if it is given.

    Drives of other tests may still be open, and the disk is theirs, too.
    """
    found = {kind: (count["transfers"], count["bytes"]) for kind, count in queue.counters().items()}
    return {
        kind: tuple(new - old for new, old in zip(now, before[kind] if before else (0, 0), strict=True))
        for kind, now in found.items()
    }


def test_two_readers_of_a_disk_both_get_everything(weights):
    path, sums, contents = weights
    queue = DiskQueue(path)
    readers = [PieceReader(path, PIECE) for _ in range(2)]
    if not readers[0].asynchronous:
        pytest.skip("the kernel provides no io_uring")
    to = [memory(contents.size) for _ in readers]
    before = counted(queue)
    tickets = [readers[0].start(0, to[0], sums), readers[1].start(0, to[1], sums, ahead=True)]
    for reader, ticket, arrived in zip(readers, tickets, to, strict=True):
        assert reader.wait(ticket) == (0, -1)
        np.testing.assert_array_equal(arrived, contents)
    assert counted(queue, before) == {
        "attention": (0, 0),
        "weights": (64, contents.size),
        "ahead": (64, contents.size),
        "background": (0, 0),
    }
    for kind in queue.counters().values():
        assert kind["waited"] <= kind["transfers"]
        assert kind["most_waited_ns"] <= kind["waited_ns"]


def test_a_reader_that_is_alone_never_waits(weights):
    path, sums, contents = weights
    queue, reader = DiskQueue(path), PieceReader(path, PIECE)
    before = queue.counters()["weights"]
    assert reader.wait(reader.start(0, memory(contents.size), sums)) == (0, -1)
    after = queue.counters()["weights"]
    assert after["waited"] == before["waited"]
    assert after["transfers"] == before["transfers"] + (64 if reader.asynchronous else 0)
    if reader.asynchronous:
        assert reader.counters()["most_in_flight"] == 64


def test_a_reader_that_goes_away_leaves_its_room_to_others(weights):
    path, sums, contents = weights
    queue, other = DiskQueue(path), PieceReader(path, PIECE)
    for _ in range(5):
        reader = PieceReader(path, PIECE)
        gone = memory(contents.size)
        reader.start(0, gone, sums)
        ticket = other.start(0, memory(contents.size), sums)
        del reader
        assert other.wait(ticket) == (0, -1)
    before = queue.counters()["weights"]["waited"]
    assert other.wait(other.start(0, memory(contents.size), sums)) == (0, -1)
    assert queue.counters()["weights"]["waited"] == before


def test_attention_beside_weights_has_the_same_bits(weights, make_drive):
    path, sums, contents = weights
    rng = np.random.default_rng(1)
    heads, tokens, d = 2, 16384, 128
    host = make_drive(preset="plain", run_groups=16)
    host.store(halves(rng, heads, tokens, d), halves(rng, heads, tokens, d))
    assert host.flush().status == OK
    queue, reader = DiskQueue(path), PieceReader(path, PIECE)
    if not reader.asynchronous:
        pytest.skip("the kernel provides no io_uring")
    q = halves(rng, heads, 2, d)
    before = counted(queue)
    alone = host.attend(q, tokens)
    kv = counted(queue, before)["attention"]
    assert kv == (2 * heads * tokens * 2 * d >> 20, 2 * heads * tokens * 2 * d)
    stop, outcomes, to = threading.Event(), [], memory(contents.size)

    def stream():
        while not stop.is_set():
            outcomes.append(reader.wait(reader.start(0, to, sums)))

    thread = threading.Thread(target=stream)
    thread.start()
    beside = [host.attend(q, tokens) for _ in range(3)]
    stop.set()
    thread.join()
    assert set(outcomes) == {(0, -1)}
    np.testing.assert_array_equal(to, contents)
    for result in beside:
        assert result.status == OK
        np.testing.assert_array_equal(result.data, alone.data)
    assert counted(queue, before)["attention"] == (4 * kv[0], 4 * kv[1])
    assert counted(queue, before)["weights"] == (64 * len(outcomes), contents.size * len(outcomes))


def test_writes_are_counted_as_background(weights, make_drive):
    path, _, _ = weights
    rng, queue = np.random.default_rng(3), DiskQueue(path)
    host = make_drive(preset="plain", run_groups=16)
    if not host.drive.read_stats()["asynchronous"]:
        pytest.skip("the kernel provides no io_uring")
    before = counted(queue)
    host.store(halves(rng, 2, 4096, 128), halves(rng, 2, 4096, 128))
    assert host.flush().status == OK
    assert counted(queue, before)["background"][1] >= 4 * 4096 * 256


def test_the_timeline_shows_every_kind(weights, make_drive):
    path, sums, contents = weights
    rng, queue = np.random.default_rng(4), DiskQueue(path)
    host, reader = make_drive(preset="plain", run_groups=16), PieceReader(path, PIECE)
    if not reader.asynchronous:
        pytest.skip("the kernel provides no io_uring")
    before = counted(queue)
    queue.keep_trace(10_000)
    host.store(halves(rng, 2, 4096, 128), halves(rng, 2, 4096, 128))
    assert host.flush().status == OK
    assert host.attend(halves(rng, 2, 2, 128), 4096).status == OK
    to = memory(contents.size)
    assert reader.wait(reader.start(0, to, sums)) == (0, -1)
    assert reader.wait(reader.start(0, to[:PIECE], sums[:1], ahead=True)) == (0, -1)
    trace = json.loads(queue.trace())
    events = [event for event in trace["traceEvents"] if event["ph"] == "X"]
    assert len(events) == trace["otherData"]["events_in_all"]
    moved, free = dict.fromkeys(queue.counters(), 0), {}
    for event in events:
        assert event["ts"] >= free.get(event["tid"], 0) - 0.2  # events of a track do not overlap
        free[event["tid"]] = event["ts"] + event["dur"]
        moved[event["name"]] += event["args"]["bytes"]
    assert moved == {kind: size for kind, (_, size) in counted(queue, before).items()}
    assert all(moved.values())
    queue.keep_trace(3)
    assert reader.wait(reader.start(0, to, sums)) == (0, -1)
    trace = json.loads(queue.trace())
    assert trace["otherData"]["events_in_all"] == 64
    assert sum(event["ph"] == "X" for event in trace["traceEvents"]) == 3
