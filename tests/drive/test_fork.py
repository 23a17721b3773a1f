# SPDX-License-Identifier: Apache-2.0
"""What is open belongs to the process that opened it: a forked child can neither use it nor keep its lock."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from kvdrive import _native

SENTENCE = "this was opened by the process that forked this one, which alone may use it"
# Classes that own no thread, file or socket. Every other class of the module must refuse a forked child.
HARMLESS = {
    "Engine": "computes in the thread that calls it; its other threads only help",
    "FastEngine": "the same",
    "NeuronWindow": "a table in memory",
    "TransferSchedule": "a list in memory",
    "RingError": "an exception",
}
PAGE = np.zeros(4096, np.uint8)
ENTRY = bytes(64)
FIRST = np.zeros(1, np.int64)
OWNERS = {
    "Drive": {
        "submit": (ENTRY,),
        "inject": ("full",),
        "heads": (1,),
        "rows": (1, 0, 0, 0),
        "keep_trace": (1,),
        "write_trace": ("x",),
    },
    "Subsystem": {},
    "QueuePairs": {
        "submit": (1, ENTRY),
        "wait": (0,),
        "done": (0,),
        "execute": (1, ENTRY),
        "ask": (1, ENTRY, PAGE, 8),
        "repeat": (1, ENTRY, 1),
    },
    "RingServer": {},
    "TcpServer": {"inject": ("not_ready",)},
    "PieceReader": {
        "start": (0, PAGE, np.zeros(1, np.uint32)),
        "start_rows": (FIRST, PAGE.reshape(1, -1), FIRST, np.zeros((1, 1), np.uint32)),
        "wait_all": ([0],),
        "hurry": (0,),
        "cancel": (0,),
        "has_ended": (0,),
        "wait": (0,),
    },
    "DiskQueue": {"keep_trace": (1,)},
    "PassthroughRing": {"execute": ([],)},
}


def in_a_child(work) -> str:
    """What `work` returns in a forked child, which then ends without running this process's handlers."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.close(read)
            os.write(write, str(work()).encode())
        except BaseException as error:
            os.write(write, repr(error).encode())
        finally:
            os._exit(0)
    os.close(write)
    with os.fdopen(read) as answer:
        text = answer.read()
    assert os.waitpid(child, 0)[1] == 0
    return text


@pytest.fixture
def opened(tmp_path):
    (tmp_path / "weights").write_bytes(bytes(1 << 16))
    drive = _native.Drive(tmp_path / "drive.kv", "fast", 1, 1 << 22)
    subsystem = _native.Subsystem(drive)
    return {
        "Drive": drive,
        "Subsystem": subsystem,
        "QueuePairs": _native.QueuePairs(subsystem, 1 << 22),
        "RingServer": _native.RingServer(subsystem, tmp_path / "socket"),
        "TcpServer": _native.TcpServer(subsystem),
        "PieceReader": _native.PieceReader(tmp_path / "weights", 4096),
        "DiskQueue": _native.DiskQueue(tmp_path),
        "PassthroughRing": _native.PassthroughRing(4),
    }


def calls(name: str, thing: object) -> dict[str, object]:
    """A function for each public method and property of an object, which uses it."""
    found = {}
    for attribute in dir(type(thing)):
        value = getattr(type(thing), attribute)
        if attribute.startswith("_") or attribute == "connect":  # makes a new object
            continue
        if isinstance(value, property):
            found[attribute] = lambda attribute=attribute: getattr(thing, attribute)
        else:
            arguments = OWNERS[name].get(attribute, ())
            found[attribute] = lambda attribute=attribute, arguments=arguments: getattr(thing, attribute)(*arguments)
    return found


def refusals(name: str, thing: object) -> dict[str, str]:
    answers = {}
    for attribute, call in calls(name, thing).items():
        try:
            answers[attribute] = f"worked: {call()}"
        except RuntimeError as error:
            answers[attribute] = str(error)
        except Exception as error:
            answers[attribute] = repr(error)
    return {attribute: answer for attribute, answer in answers.items() if not answer.startswith(SENTENCE)}


def test_every_class_is_owned_or_known_to_be_harmless(opened):
    classes = {name for name in dir(_native) if isinstance(getattr(_native, name), type) and not name.startswith("_")}
    assert classes == opened.keys() | HARMLESS.keys()
    assert all(type(thing) is getattr(_native, name) for name, thing in opened.items())


@pytest.mark.parametrize("name", sorted(OWNERS))
def test_every_entry_point_refuses_a_forked_child(opened, name):
    assert calls(name, opened[name])
    assert in_a_child(lambda: refusals(name, opened[name])) == "{}"


def test_a_child_that_ends_leaves_the_drive_as_it_is(tmp_path):
    """The child deletes what it inherited, as Python does at its end. The parent's appends go on."""
    code = f"""
import os, sys
from kvdrive._native import Drive, QueuePairs, Subsystem, TcpServer
drive = Drive({str(tmp_path / "drive.kv")!r}, "fast", 2, 1 << 22)
things = [Subsystem(drive)]
things += [QueuePairs(things[0], 1 << 22), TcpServer(things[0])]
if os.fork() == 0:
    del drive, things
    sys.exit(0)
assert os.wait()[1] == 0
assert drive.check() == []
del drive, things
drive = Drive({str(tmp_path / "drive.kv")!r}, "fast", 2)
assert drive.notices() == []
print("as it was")
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert (done.stdout, done.stderr, done.returncode) == ("as it was\n", "", 0)


def test_a_child_keeps_neither_lock_nor_address(tmp_path):
    """While a child that was forked with everything open lives on, the parent opens all of it again."""
    read, write = os.pipe()
    drive = _native.Drive(tmp_path / "drive.kv", "fast", 1, 1 << 22)
    subsystem = _native.Subsystem(drive)
    tcp, rings = _native.TcpServer(subsystem), _native.RingServer(subsystem, tmp_path / "socket")
    port = tcp.port
    child = os.fork()
    if child == 0:
        os.close(write)
        os.read(read, 1)  # until the parent closes its end
        os._exit(0)
    os.close(read)
    try:
        del tcp, rings, subsystem, drive
        drive = _native.Drive(tmp_path / "drive.kv", "fast", 1)
        subsystem = _native.Subsystem(drive)
        assert _native.TcpServer(subsystem, "127.0.0.1", port).port == port
        _native.RingServer(subsystem, tmp_path / "socket")
    finally:
        os.close(write)
        os.waitpid(child, 0)


def test_a_killed_parent_leaves_no_lock_with_its_child(tmp_path):
    code = f"""
import os, signal, sys
from kvdrive._native import Drive
drive = Drive({str(tmp_path / "drive.kv")!r}, "fast", 1, 1 << 22)
if os.fork() == 0:
    print(os.getpid(), flush=True)
    sys.stdin.read()
    os._exit(0)
signal.pause()
"""
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as parent:
        child = int(parent.stdout.readline())
        parent.kill()
        os.waitid(os.P_PID, parent.pid, os.WEXITED | os.WNOWAIT)
        assert Path(f"/proc/{child}").exists()
        assert _native.Drive(tmp_path / "drive.kv", "fast", 1).check() == []
        parent.stdin.close()


def test_a_child_opens_a_drive_of_its_own(tmp_path):
    drive = _native.Drive(tmp_path / "drive.kv", "fast", 1, 1 << 22)

    def work():
        own = _native.Drive(tmp_path / "own.kv", "fast", 1, 1 << 22)
        return own.check()

    assert in_a_child(work) == "[]"
    assert drive.check() == []


def test_an_engine_works_in_a_child(tmp_path):
    engine = _native.Engine("fast", 2)
    keys = np.array([3, 1, 2], np.uint32)
    wanted = engine.argtopk(keys, 1)[1].tolist()
    assert in_a_child(lambda: engine.argtopk(keys, 1)[1].tolist()) == str(wanted)
