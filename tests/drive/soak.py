# SPDX-License-Identifier: Apache-2.0
"""A soak test of the drive: `make soak MINUTES=n` compares it with arrays under random commands and faults.

Each round forks a process that opens the drive and sends random commands. It ends by SIGKILL, by a power cut, by a full
disk or cleanly. Then the drive must hold a state between the last durable command and the last one sent. Some rounds
damage a page of the closed file. Damage in superblocks and journal may lose nothing. Damage elsewhere may lose only the
content of the page, and only with an error.
"""

from __future__ import annotations

import argparse
import copy
import os
import select
import signal
import struct
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from conftest import DriveHost, check_attention
from disk import DAMAGES, JOURNAL, PAGE, SUPERBLOCK, damage, put, transactions, written_pages
from kv_model import HEADS, LAYERS, D, Model, apply, durable, halves, random_step, send
from stored_values import read_value, stored_keys

from kvdrive import abi
from kvdrive._native import Drive

OK, FULL = abi.NvmeStatus.SUCCESS, abi.NvmeStatus.CAPACITY_EXCEEDED
OPTIONS = {"preset": "970pro", "pages_per_block": 1, "capacity_bytes": PAGE * 500}
MOST_STEPS = 80
SPARES_IN_PAGE = PAGE // 40 + 2


@dataclass
class State:
    """The expected content of the drive, and the next sequence number of each session."""

    model: Model = field(default_factory=Model)
    sequence: dict[int, int] = field(default_factory=dict)

    def clone(self) -> State:
        return State(self.model.clone(), dict(self.sequence))

    def after(self, name: str, arguments: tuple) -> State:
        """The state after the step has succeeded."""
        state = self.clone()
        if name == "erase":
            state.model.trim(*arguments)
        elif name != "attend":
            apply(state.model, name, arguments)
        if name == "append":
            state.sequence[arguments[0]] = state.sequence.get(arguments[0], 0) + 1
        elif name in ("trim", "erase") and arguments[1] == 0:
            state.sequence[arguments[0]] = 0
        elif name == "fork":
            state.sequence[arguments[1]] = 0
        return state


def steps(rng: np.random.Generator, state: State) -> Iterator[tuple[str, tuple]]:
    """Random steps. After each one, the caller sends the new state back."""
    while True:
        name, arguments = random_step(rng, state.model)
        chance = rng.random()
        if state.model.rows and chance < 0.06:
            session = int(rng.choice(sorted(state.model.rows)))
            name, arguments = "erase", (session, int(rng.choice([0, 1, 100])))
        elif state.model.rows and chance < 0.2:
            name, arguments = "attend", (int(rng.choice(sorted(state.model.rows))), int(rng.integers(LAYERS)))
        state = yield name, arguments


def do(host: DriveHost, state: State, name: str, arguments: tuple) -> int:
    """Do a step on a drive that holds `state`. Returns its status. Compares attention with the golden model."""
    if name == "erase":
        return host.erase(*arguments).status
    if name != "attend":
        return send(host, state.model, name, arguments)
    session, layer = arguments
    heads = state.model.rows[session]
    tokens = min(heads[layer, kind].shape[1] if (layer, kind) in heads else 0 for kind in abi.KvKind)
    if tokens == 0:
        return OK
    q = halves(np.random.default_rng(tokens), HEADS, 1, D)
    reply = host.attend(q, tokens, session=session, layer=layer)
    k, v = (heads[layer, kind][:, :tokens] for kind in abi.KvKind)
    check_attention(reply, q, k, v)
    return OK


class Soak:
    """One drive in a file, its model, and counts of commands and faults."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.path = folder / "drive.kv"
        self.counts: Counter[str] = Counter()
        self.state = State()
        Drive(self.path, "fast", 1, **OPTIONS)

    def mount(self, **options: object) -> DriveHost:
        self.counts["mounts"] += 1
        snapshot_bytes = int(2 ** self.rng.integers(14, 21))
        host = DriveHost(self.path, "fast", OPTIONS["capacity_bytes"], snapshot_bytes=snapshot_bytes, **options)
        host.sequence = dict(self.state.sequence)
        return host

    def round(self) -> None:
        ending = str(self.rng.choice(["kill", "kill", "cut", "cut", "full", "close", "damage"]))
        if ending == "damage":
            self.damage()
            return
        seed, count = int(self.rng.integers(1 << 62)), int(self.rng.integers(1, MOST_STEPS))
        acknowledged = self.live(ending, seed, count)
        states, safe = self.possible(seed, acknowledged, count)
        self.counts[{"kill": "kills", "cut": "power cuts", "full": "full disks", "close": "clean closes"}[ending]] += 1
        host = self.mount()
        if ending == "close":
            safe = len(states) - 1
        found = next((state for state in states[safe:][::-1] if state.model.equals(host.drive)), None)
        assert found is not None, f"{ending}: none of {len(states) - safe} states (steps {acknowledged})"
        assert host.drive.check() == []
        self.state = found
        self.counts["bytes compared"] += sum(
            rows.nbytes for heads in found.model.rows.values() for rows in heads.values()
        )

    def live(self, ending: str, seed: int, count: int) -> list[int]:
        """Run up to `count` steps in a process that ends in the given way. Returns the statuses of completed steps."""
        after = float(self.rng.random()) * 0.5
        write, argument = int(self.rng.integers(1, 60)), int(self.rng.integers(6))
        snapshot_bytes = int(2 ** self.rng.integers(14, 21))
        reader, writer = os.pipe()
        child = os.fork()
        if child == 0:
            code = 1
            try:
                self.child(writer, ending, seed, count, (write, argument, snapshot_bytes))
                code = 0
            except Exception:
                traceback.print_exc()
            finally:
                os._exit(code)
        os.close(writer)
        received, deadline = b"", time.monotonic() + after
        while True:
            wait = max(deadline - time.monotonic(), 0) if ending == "kill" else 600
            if not select.select([reader], [], [], wait)[0]:
                assert ending == "kill", "a command did not end"
                os.kill(child, signal.SIGKILL)
                ending = "killed"
                deadline = time.monotonic() + 600
                continue
            piece = os.read(reader, 1 << 16)
            if not piece:
                break
            received += piece
        os.close(reader)
        status = os.waitpid(child, 0)[1]
        assert os.WIFSIGNALED(status) or os.WEXITSTATUS(status) == 0, "the drive's process failed"
        return list(struct.unpack(f"<{len(received) // 4}I", received[: len(received) // 4 * 4]))

    def child(self, writer: int, ending: str, seed: int, count: int, fault: tuple[int, int, int]) -> None:
        write, argument, snapshot_bytes = fault
        host = DriveHost(self.path, "fast", OPTIONS["capacity_bytes"], snapshot_bytes=snapshot_bytes)
        host.sequence = dict(self.state.sequence)
        if ending == "cut":
            host.drive.inject("power_cut", after=write, argument=argument + (write << 8 if argument > 1 else 0))
        elif ending == "full":
            host.drive.inject("disk_full", after=write, count=argument + 1)
        state, plan = self.state, steps(np.random.default_rng(seed), self.state)
        step = next(plan)
        for _ in range(count):
            status = do(host, state, *step)
            os.write(writer, struct.pack("<I", status))
            if status not in (OK, FULL):
                return
            state = state.after(*step) if status == OK else state
            step = plan.send(state)
        host.drive = None

    def possible(self, seed: int, acknowledged: list[int], count: int) -> tuple[list[State], int]:
        """The states from before the first step to after the last one sent, and the index of the first possible one."""
        states, safe = [self.state], 0
        plan = steps(np.random.default_rng(seed), self.state)
        step = next(plan)
        for status in acknowledged:
            self.counts["commands"] += 1
            self.counts[step[0]] += 1
            if status not in (OK, FULL):
                states.append(states[-1].after(*step))
                return states, safe
            states.append(states[-1].after(*step) if status == OK else states[-1])
            if status == OK and (step[0] == "erase" or durable(*step)):
                safe = len(states) - 1
            step = plan.send(states[-1])
        if len(acknowledged) < count:
            states.append(states[-1].after(*step))  # the step may have been sent
        return states, safe

    def damage(self) -> None:
        """Damage a page of the closed file, check the drive, then repair it in one of two ways."""
        area, page = self.pick_page()
        kind = str(self.rng.choice(DAMAGES))
        within = SUPERBLOCK if page < JOURNAL else PAGE
        old = damage(self.path, page, kind, self.rng, within)
        self.counts[f"damaged pages of {area}"] += 1
        host = self.mount(read_only=True)
        if area in ("superblocks", "journal"):
            assert self.state.model.equals(host.drive), (area, page, kind)
            assert host.drive.check() == []
            host.drive = None
            host = self.mount()  # mounting writes the page again
            assert self.state.model.equals(host.drive)
            return
        damaged = len(host.drive.check())
        assert damaged <= (SPARES_IN_PAGE if area == "spares" else 1), (area, page, kind, damaged)
        self.counts["groups damaged"] += damaged
        self.compare(host.drive)
        host.drive = None
        if damaged == 0 or self.rng.random() < 0.5:
            put(self.path, page, old)
            return
        host = self.mount(salvage=True)
        assert host.drive.check() == []
        assert host.drive.notices()
        self.take(host.drive)

    def pick_page(self) -> tuple[str, int]:
        layout = Drive(self.path, "fast", read_only=True).layout()
        spares, units = layout["spare_offset"], layout["unit_offset"]
        pages = {
            "superblocks": [0, PAGE],
            "journal": [offset + i * PAGE for offset, count in transactions(self.path) for i in range(count)],
            "spares": written_pages(self.path, spares, units),
            "data": written_pages(self.path, units, self.path.stat().st_size),
        }
        areas = [area for area in pages if pages[area]]
        area = areas[int(self.rng.integers(len(areas)))]
        return area, int(self.rng.choice(pages[area]))

    def compare(self, drive: Drive) -> None:
        """Check that all readable rows are those that were stored."""
        assert drive.sessions() == sorted(self.state.model.rows)
        assert stored_keys(drive) == sorted(self.state.model.values)
        for key, value in self.state.model.values.items():
            found = read_value(drive, key)
            assert found in (None, value)
            self.counts["reads refused"] += found is None
        for session, layer, kind, head, rows in self.heads():
            try:
                assert drive.rows(session, layer, head, kind).tobytes() == rows.tobytes()
            except RuntimeError:
                self.counts["reads refused"] += 1

    def take(self, drive: Drive) -> None:
        """After a repair, heads hold prefixes of their rows, values are whole. Removes the others from the model."""
        for session, layer, kind, head, rows in list(self.heads()):
            left = drive.rows(session, layer, head, kind).tobytes()
            assert rows.tobytes().startswith(left)
        host = DriveHost.__new__(DriveHost)
        host.path, host.engine, host.drive, host.sequence = self.path, "fast", drive, dict(self.state.sequence)
        for session in list(self.state.model.rows):
            whole = all(
                drive.rows(session, layer, head, kind).tobytes() == rows.tobytes()
                for number, layer, kind, head, rows in self.heads()
                if number == session
            )
            if whole:
                continue
            self.counts["sessions cut by a repair"] += 1
            if session in drive.sessions():
                assert host.trim(session).status == OK
            self.state = self.state.after("trim", (session, 0))
        for key in sorted(set(self.state.model.values) - set(stored_keys(drive))):
            self.counts["values dropped by a repair"] += 1
            self.state = self.state.after("delete", (key,))
        assert host.flush().status == OK
        assert self.state.model.equals(drive)

    def heads(self) -> Iterator[tuple[int, int, int, int, np.ndarray]]:
        for session, stored in copy.copy(self.state.model.rows).items():
            for (layer, kind), rows in stored.items():
                for head in range(HEADS):
                    yield session, layer, kind, head, rows[head]


def main() -> None:
    """Soak until the time is over; print seed and counts."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--seed", type=int, default=None)
    arguments = parser.parse_args()
    seed = arguments.seed if arguments.seed is not None else int.from_bytes(os.urandom(4), "little")
    print(f"soak: seed {seed}, {arguments.minutes:g} minutes", flush=True)
    shared = Path("/dev/shm")
    end, shown, rounds = time.monotonic() + 60 * arguments.minutes, time.monotonic(), 0
    with tempfile.TemporaryDirectory(dir=shared if shared.is_dir() else None) as folder:
        soak = Soak(Path(folder), seed)
        while time.monotonic() < end:
            try:
                soak.round()
            except BaseException:
                kept = Path(f"soak-{seed}.kv").absolute()
                os.system(f"cp --sparse=always {soak.path} {kept}")
                print(f"soak: seed {seed} failed in round {rounds}; the file is kept as {kept}", flush=True)
                raise
            rounds += 1
            if time.monotonic() - shown > 60:
                shown = time.monotonic()
                print(f"soak: {rounds} rounds, {dict(soak.counts)}", flush=True)
    print(f"soak: seed {seed}, {rounds} rounds, 0 lost bytes; {dict(sorted(soak.counts.items()))}")


if __name__ == "__main__":
    main()
