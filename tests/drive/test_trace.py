# SPDX-License-Identifier: Apache-2.0
"""The timeline of device time: what a command used, one thing at a time on each track, bounded."""

import itertools
import json

import numpy as np


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
    moved = sum(event["args"]["value"] for event in spans if names[event["pid"]] == "channel")
    assert moved == sum(after["channel_bytes"]) - sum(before["channel_bytes"]) > 0
    assert set(names.values()) >= {"channel", "die", "engine", "PCIe", "commands"}
    for track in {(event["pid"], event["tid"]) for event in spans if names[event["pid"]] != "commands"}:
        own = sorted(
            (event["ts"], event["ts"] + event["dur"]) for event in spans if (event["pid"], event["tid"]) == track
        )
        assert all(first[1] <= second[0] + 1e-3 for first, second in itertools.pairwise(own))


def test_a_trace_keeps_what_it_has_room_for(host, tmp_path):
    attend(host, 100)
    assert host.drive.write_trace(tmp_path / "trace.json") == 100
    host.drive.keep_trace(0)
    host.flush()
    assert host.drive.write_trace(tmp_path / "trace.json") == 0
