# SPDX-License-Identifier: Apache-2.0
"""The timeline of device time: the resources of each command, without overlap on a track, of bounded size."""

import itertools
import json

import numpy as np

from kvdrive._native import QueuePairs, Subsystem
from kvdrive.nvme import namespaces
from kvdrive.nvme.completions import decode


def attend(host, events):
    rows, q = np.ones((1, 8192, 128), np.float16), np.ones((1, 1, 128), np.float16)
    host.store(rows, rows)
    host.flush()
    host.drive.keep_trace(events)
    before = host.drive.flash_stats()
    host.attend(q, 8192)
    return before, host.drive.flash_stats()


def test_a_trace_shows_every_byte_of_the_channels_and_no_overlap(make_drive, tmp_path):
    host = make_drive(preset="instcsd")
    before, after = attend(host, 1 << 20)
    assert host.drive.write_trace(tmp_path / "trace.json") > 0
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    names = {event["pid"]: event["args"]["name"] for event in events if event["name"] == "process_name"}
    spans = [event for event in events if event["ph"] == "X"]
    moved = sum(event["args"]["bytes"] for event in spans if names[event["pid"]] == "channel")
    assert moved == sum(after["channel_bytes"]) - sum(before["channel_bytes"]) > 0
    assert set(names.values()) >= {"channel", "die", "engine", "PCIe", "queue"}
    cycles = [event["args"]["cycles"] for event in spans if names[event["pid"]] == "engine"]
    assert cycles == [after["engine_cycles"] - before["engine_cycles"]]
    for track in {(event["pid"], event["tid"]) for event in spans}:
        own = sorted(
            (event["ts"], event["ts"] + event["dur"]) for event in spans if (event["pid"], event["tid"]) == track
        )
        assert all(first[1] <= second[0] + 1e-3 for first, second in itertools.pairwise(own))


def test_each_queue_has_a_track_with_its_commands_by_name(make_drive, tmp_path):
    drive = make_drive().drive
    drive.keep_trace(1000)
    subsystem = Subsystem(drive)
    pairs = [QueuePairs(subsystem, 1 << 24, io_queues=2) for _ in range(2)]
    block = np.ones(4096, np.uint8)
    sent = [(0, 1, namespaces.write_blocks(0, block, fua=True)), (0, 2, namespaces.read_blocks(0, 1))]
    sent.append((1, 2, namespaces.write_blocks(1, block)))
    for host, queue, command in sent:
        decode(*pairs[host].execute(queue, command.entry, command.data, command.room)).check(command.opcode)
    events = json.loads(drive.trace())["traceEvents"]
    (process,) = {e["pid"] for e in events if e["name"] == "process_name" and e["args"]["name"] == "queue"}
    names = {e["tid"]: e["args"]["name"] for e in events if e["name"] == "thread_name" and e["pid"] == process}
    found = [(names[e["tid"]], e["name"]) for e in events if e["ph"] == "X" and e["pid"] == process]
    assert found == [
        ("controller 1, queue 1", "WRITE"),
        ("controller 1, queue 2", "READ"),
        ("controller 2, queue 2", "WRITE"),
    ]


def test_a_trace_keeps_what_it_has_room_for(host, tmp_path):
    attend(host, 100)
    assert host.drive.write_trace(tmp_path / "trace.json") == 100
    said = json.loads((tmp_path / "trace.json").read_text())["otherData"]
    assert said["clock"] == "modelled device time"
    assert said["events_in_all"] > 100
    host.drive.keep_trace(0)
    host.flush()
    assert host.drive.write_trace(tmp_path / "trace.json") == 0
