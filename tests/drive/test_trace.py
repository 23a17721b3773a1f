# SPDX-License-Identifier: Apache-2.0
"""The timeline of device time: the resources of each command, without overlap on a track, of bounded size."""

import itertools
import json

import numpy as np

from kvdrive import abi
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


def spans_of_a_command(host, heads, **fields):
    """Start and end of the sensings of all dies, and of the engine's jobs by kernel, of one command over 8,192 tokens.

    The 2-bit index and the embedding-indexed copy of K exist.
    """
    tokens, options = 8192, abi.AppendOption.APPEND_GROUPS | abi.AppendOption.APPEND_SPARSE
    rows = np.random.default_rng(2).standard_normal((heads, tokens, 128)).astype(np.float16)
    host.store(rows, rows, options=options)
    host.flush()
    host.drive.keep_trace(1 << 20)
    host.submit(rows[:, :4], tokens, **fields)
    events = json.loads(host.drive.trace())["traceEvents"]
    names = {event["pid"]: event["args"]["name"] for event in events if event["name"] == "process_name"}
    spans = {"die": [], "engine": []}
    for event in events:
        if event["ph"] == "X" and names[event["pid"]] in spans:
            spans[names[event["pid"]]].append((event["ts"], event["ts"] + event["dur"], event["tid"]))
    jobs = {kernel: sorted(job[:2] for job in spans["engine"] if job[2] == kernel) for kernel in (0, 1)}
    return sorted(span[:2] for span in spans["die"]), jobs


def test_no_unit_is_read_before_it_is_chosen(make_drive):
    sensed, jobs = spans_of_a_command(make_drive(preset="instcsd"), 1, mode=abi.Mode.GROUPS, r=32, k_top=32)
    choice, attention = sorted(jobs[0] + jobs[1])
    index = [end for start, end in sensed if start < choice[0]]
    units = [start for start, _ in sensed if start >= choice[0]]
    assert max(index) <= choice[0]
    assert choice[1] <= min(units) <= max(units) < attention[0]


def test_no_row_of_sparf_is_read_before_it_is_chosen(make_drive):
    sensed, jobs = spans_of_a_command(make_drive(preset="instcsd"), 1, mode=abi.Mode.SPARF_ATTEND, r=32, k_top=1024)
    rows, tokens, attention = jobs[0]
    starts = [start for start, _ in sensed]
    assert min(starts) >= rows[1]
    assert not any(tokens[0] <= start < tokens[1] for start in starts)
    assert tokens[1] <= max(starts) < attention[0]


def test_the_next_head_is_scored_while_units_of_this_one_arrive(make_drive):
    heads = 3
    sensed, jobs = spans_of_a_command(make_drive(preset="instcsd"), heads, mode=abi.Mode.GROUPS, r=32, k_top=32)
    attentions, choices = jobs[0], jobs[1]
    assert len(choices) == len(attentions) == heads
    units = [start for start, _ in sensed if start >= choices[0][1]]
    assert units[0] < choices[1][1] < attentions[0][0]
    assert choices[-1][1] < attentions[-1][0]


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
