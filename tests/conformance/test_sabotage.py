"""Drives with one broken command do not conform, and the report names that command."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from pairs import some_quick
from tests.conformance.test_conformance import ONLY_REFUSED, failures

from kvdrive import abi
from kvdrive.conformance import suite
from kvdrive.conformance.bench import MismatchError
from kvdrive.conformance.device import OwnDevice
from kvdrive.errors import TargetError
from kvdrive.nvme import commands, wire
from kvdrive.nvme.command_set import COMMANDS

WITH_REFUSALS = sorted(name for name, row in COMMANDS.items() if row.statuses)
# Checks of a status share their comparison, so that every third command shows whether it is made.
THIRD = some_quick(WITH_REFUSALS, WITH_REFUSALS[::3])


def is_command(name, command, admin):
    nsid = 0 if admin else int.from_bytes(command.entry[4:8], "little")
    row = COMMANDS[name]
    return (1 if nsid == wire.NSID_ALL else nsid, command.opcode) == (row.namespace, row.opcode)


class Broken(OwnDevice):
    """A drive that answers a command as `spoil` changes its completions."""

    def __init__(self, path, name, spoil):
        self.name, self.spoil = name, spoil
        super().__init__(path, fresh=True)

    def send(self, command, *, admin=False):
        done = super().send(command, admin=admin)
        return self.spoil(done) if is_command(self.name, command, admin) else done

    def send_many(self, many, *, second=False):
        done = super().send_many(many, second=second)
        return [self.spoil(x) if is_command(self.name, one, False) else x for one, x in zip(many, done, strict=True)]

    def finish(self, ticket):
        done = super().finish(ticket)
        return self.spoil(done) if self.name == "ASYNC_EVENT_REQUEST" else done


def is_caught(path, name, spoil, checked=""):
    """True if the checks of a command fail. A drive that cannot be identified is not even checked."""
    try:
        return not suite.run(Broken(path / "drive.kv", name, spoil), [checked or name]).conforms
    except MismatchError:
        return True


@pytest.mark.parametrize("name", COMMANDS)
def test_an_intact_drive_conforms(tmp_path, name):
    assert not is_caught(tmp_path, name, lambda done: done)


@pytest.mark.parametrize("name", sorted(set(COMMANDS) - ONLY_REFUSED))
def test_a_command_that_fails_is_caught(tmp_path, name):
    assert is_caught(tmp_path, name, lambda done: done if done.status else replace(done, status=2))


@pytest.mark.parametrize("name", WITH_REFUSALS)
def test_a_command_that_does_not_refuse_is_caught(tmp_path, name):
    assert is_caught(tmp_path, name, lambda done: replace(done, status=0))


@pytest.mark.parametrize("name", THIRD)
def test_a_command_that_refuses_with_another_status_is_caught(tmp_path, name):
    other = abi.NvmeStatus.DATA_LENGTH  # listed for every command
    assert is_caught(tmp_path, name, lambda done: replace(done, status=other) if done.status else done)


@pytest.mark.parametrize("name", THIRD)
def test_a_status_that_is_not_listed_is_caught(tmp_path, name):
    assert is_caught(tmp_path, name, lambda done: replace(done, status=0x7F0) if done.status else done)


def flipped(done, bit):
    """The completion with one wrong bit of data."""
    if done.data.size == 0:
        return done
    data = done.data.copy()
    data[bit // 8 % data.size] ^= 1 << bit % 8
    return replace(done, data=data)


@pytest.mark.parametrize("bit", [0, 12345, 1000003])
@pytest.mark.parametrize("name", ["READ", "MEMORY_READ", "KV_READ", "RETRIEVE"])
def test_a_single_wrong_bit_of_data_is_caught(tmp_path, name, bit):
    assert is_caught(tmp_path, name, lambda done: flipped(done, bit))


@pytest.mark.parametrize("checked", ["ATTN_SUBMIT", "ATTN_FETCH"])
@pytest.mark.parametrize("place", ["out", "max", "sum", "alpha"])
def test_a_single_wrong_bit_of_attention_is_caught(tmp_path, place, checked):
    def flip(done):
        if done.data.size == 0:
            return done
        if place == "out":
            return flipped(done, 8 * done.data.size - 16)
        data = done.data.copy()
        data[: abi.AttentionResult.itemsize].view(abi.AttentionResult)[place][0, 0] ^= 1
        return replace(done, data=data)

    caught = is_caught(tmp_path, "ATTN_FETCH", flip, checked)
    assert caught == (checked == "ATTN_SUBMIT" or place != "alpha")  # only SparF has an alpha


@pytest.mark.parametrize("bit", [8, 70, -16])
def test_a_single_wrong_bit_of_rows_is_caught(tmp_path, bit):
    """In a row's status, in its size, and in the last row's outputs."""
    spoil = lambda done: flipped(done, bit % (8 * done.data.size)) if done.data.size else done  # noqa: E731
    assert is_caught(tmp_path, "ATTN_FETCH", spoil, "ATTN_SUBMIT_ROWS")


@pytest.mark.parametrize("name", ["IDENTIFY", "GET_LOG_PAGE", "GET_FEATURES"])
def test_a_page_of_other_data_is_caught(tmp_path, name):
    assert is_caught(tmp_path, name, lambda done: replace(done, data=done.data ^ 0xFF, result=done.result ^ 3))


WITH_RESULT = [
    "KV_APPEND",
    "KV_READ",
    "ATTN_SUBMIT",
    "ATTN_SUBMIT_ROWS",
    "EXECUTE_PROGRAM",
    "GET_FEATURES",
    "ABORT",
    "MEMORY_RANGE_SET",
    "STORE",
    "RETRIEVE",
]


@pytest.mark.parametrize("name", [*WITH_RESULT, "ASYNC_EVENT_REQUEST"])
def test_a_wrong_result_is_caught(tmp_path, name):
    assert is_caught(tmp_path, name, lambda done: replace(done, result=done.result ^ 1))


class Lazy(OwnDevice):
    """A drive that says that it executed a command and did not."""

    def __init__(self, path, name):
        self.name = name
        super().__init__(path, fresh=True)

    def send(self, command, *, admin=False):
        if is_command(self.name, command, admin):
            return replace(super().send(commands.kv_read(0, 0, 0, abi.KvKind.KEYS, 0, (1, 1, 64))), status=0)
        return super().send(command, admin=admin)


CHANGING = [
    "KV_APPEND", "SESSION_TRIM", "SESSION_ERASE", "SESSION_REMOVE", "SESSION_FORK",
    "WRITE", "WRITE_ZEROES", "DATASET_MANAGEMENT", "COPY",
    "MEMORY_WRITE", "MEMORY_FILL", "EXECUTE_PROGRAM", "SET_FEATURES", "PROGRAM_ACTIVATION", "FORMAT_NVM", "SANITIZE",
    "FLUSH", "DELETE_SQ", "STORE", "DELETE", "FLUSH_VALUES",
]  # fmt: skip


@pytest.mark.parametrize("name", CHANGING)
def test_a_command_that_only_says_yes_is_caught(tmp_path, name):
    assert not suite.run(Lazy(tmp_path / "drive.kv", name), [name]).conforms


class Forgetful(OwnDevice):
    """A drive that ignores force unit access."""

    def send(self, command, *, admin=False):
        entry = np.frombuffer(command.entry, abi.Sqe).copy()
        if is_command("KV_APPEND", command, admin):
            entry["cdw15"] &= ~np.uint32(abi.AppendOption.APPEND_FUA)
        elif is_command("STORE", command, admin):
            entry["cdw11"] &= ~np.uint32(wire.StoreOption.STORE_FUA << 8)
        elif not admin and entry["nsid"][0] == 1:
            entry["cdw12"] &= ~np.uint32(1 << 30)
        return super().send(replace(command, entry=entry.tobytes()), admin=admin)


@pytest.mark.parametrize("name", ["KV_APPEND", "WRITE", "WRITE_ZEROES", "COPY", "STORE"])
def test_a_drive_that_ignores_force_unit_access_is_caught(tmp_path, name):
    found = failures(suite.run(Forgetful(tmp_path / "drive.kv", fresh=True), [name]))
    assert any("loss of power" in sentence for _, sentence, _ in found)


class Dropping(OwnDevice):
    """A drive that is lost once, at its first COPY."""

    dropped = False

    def send(self, command, *, admin=False):
        if not self.dropped and is_command("COPY", command, admin):
            self.dropped = True
            raise TargetError("gone")
        return super().send(command, admin=admin)


def test_a_lost_connection_fails_a_check_and_the_others_go_on(tmp_path):
    report = suite.run(Dropping(tmp_path / "drive.kv", fresh=True), ["COPY", "READ"])
    assert [reason for _, _, reason in failures(report)] == ["the connection to the drive was lost: gone"]
    assert report.count("passed") >= 4
