# SPDX-License-Identifier: Apache-2.0
"""Counters, errors and saved features persist when the drive is opened again."""

import dataclasses

import numpy as np
import pytest
from stored_bytes import place_of

from kvdrive import abi
from kvdrive.nvme import admin, commands, namespaces, wire
from kvdrive.nvme.rows_command import attn_submit_rows

S, SC, L, F = abi.NvmeStatus, wire.StatusCode, wire.LogPage, wire.Feature
LAST_BLOCK = (1 << 26) // wire.LBA_BYTES - 1
CDW10, CDW11, NSID, OPCODE = 40, 44, 4, 0  # bytes of an entry


def smart(nvme):
    return admin.decode(wire.SmartLog, nvme.admin(admin.get_log_page(L.LOG_SMART, 512)).data)


def errors(nvme, count):
    return nvme.admin(admin.get_log_page(L.LOG_ERRORS, 64 * count)).data.view(wire.ErrorEntry)


def test_counters_and_errors_survive_reopening(make_nvme):
    nvme = make_nvme()
    nvme.ok(namespaces.write_blocks(0, np.ones(3 * 4096, np.uint8)))
    nvme.ok(namespaces.read_blocks(0, 3))
    nvme.send(admin.command(0x33, nsid=1))
    before = smart(nvme)
    assert (before["power_cycles"], before["unsafe_shutdowns"], before["error_entries"]) == (1, 0, 1)
    assert (before["host_reads"], before["data_units_read"], before["data_units_written"]) == (1, 1, 1)
    nvme.close()
    nvme = make_nvme()
    nvme.send(admin.command(0x35, nsid=1))
    after = smart(nvme)
    assert (after["power_cycles"], after["unsafe_shutdowns"], after["error_entries"]) == (2, 0, 2)
    assert [after[name] - before[name] for name in ("host_reads", "host_writes")] == [0, 0]
    assert errors(nvme, 3)["count"].tolist() == [2, 1, 0]
    assert errors(nvme, 2)["opcode"].tolist() == [0x35, 0x33]


def test_a_drive_that_was_not_closed_counts_an_unsafe_shutdown(make_nvme):
    nvme = make_nvme()
    nvme.ok(namespaces.write_blocks(0, np.ones(4096, np.uint8), fua=True))
    nvme.drive.inject("power_cut")
    nvme.close()
    nvme = make_nvme()
    assert (smart(nvme)["power_cycles"], smart(nvme)["unsafe_shutdowns"]) == (2, 1)
    nvme.close()
    nvme = make_nvme()
    assert (smart(nvme)["power_cycles"], smart(nvme)["unsafe_shutdowns"]) == (3, 1)


def test_they_survive_a_journal_that_starts_anew(make_nvme):
    nvme = make_nvme()
    nvme.send(admin.command(0x33, nsid=1))
    nvme.admin(admin.set_feature(F.FEATURE_TEMPERATURE_THRESHOLD, 320, save=True))
    assert nvme.admin(admin.sanitize()).status == S.SUCCESS
    nvme.close()
    nvme = make_nvme()
    assert smart(nvme)["error_entries"] == 1
    assert nvme.admin(admin.get_feature(F.FEATURE_TEMPERATURE_THRESHOLD)).result == 320


@pytest.mark.parametrize(
    ("command", "status", "location", "lba"),
    [
        (namespaces.read_blocks(LAST_BLOCK, 2), SC.SC_LBA_OUT_OF_RANGE, CDW10, LAST_BLOCK + 1),
        (namespaces.read_blocks(1 << 40, 1), SC.SC_LBA_OUT_OF_RANGE, CDW10, 1 << 40),
        (namespaces.compare_blocks(4, np.ones(2 * 4096, np.uint8)), SC.SC_COMPARE_FAILURE, 0xFFFF, 4),
        (admin.command(0x33, nsid=1), S.INVALID_OPCODE, OPCODE, 0),
        (admin.command(wire.NvmOpcode.NVM_READ, nsid=9, room=4096), S.INVALID_NAMESPACE, NSID, 0),
        (admin.command(wire.NvmOpcode.NVM_FLUSH, nsid=1, flags=1), S.INVALID_FIELD, 1, 0),
    ],
)
def test_the_error_log_says_where(nvme, command, status, location, lba):
    assert nvme.send(command).status == status
    entry = errors(nvme, 1)[0]
    assert (entry["status"] >> 1 & 0x7FF, entry["location"], entry["lba"]) == (status, location, lba)


def changed(layout, command, data=None, **fields):
    """A command with other values in some fields."""
    entry = np.frombuffer(command.entry, layout).copy()
    for name, value in fields.items():
        entry[name] = value
    return dataclasses.replace(command, entry=entry.tobytes(), data=command.data if data is None else data)


HALVES = np.ones((1, 8, 64), np.float16)


def append(session=1, **fields):
    rows = commands.kv_append(session, 0, 0, abi.KvKind.KEYS, 0, 0, HALVES)
    return changed(abi.KvAppend, rows, **fields)


def submit(**fields):
    query = commands.attn_submit(1, 0, 0, np.ones((1, 1, 64), np.float16), 8, 0x3C000000)
    return changed(abi.AttnSubmit, query, **fields)


def rows(**fields):
    query = commands.attention_query(1, 0, 0, np.ones((1, 1, 64), np.float16), 8, 0x3C000000)
    return changed(wire.AttnRows, attn_submit_rows([query, query]), **fields)


def fetch(**fields):
    return changed(abi.AttnFetch, commands.attn_fetch(1, 1, 1, 64), **fields)


WRONG_FIELDS = {
    "append heads": (append(heads=0), S.DATA_LENGTH, None),
    "append kind": (append(kind=7), S.INVALID_FIELD, "kind"),
    "append type": (append(type=7), S.INVALID_FIELD, "type"),
    "append options": (append(options=1 << 9), S.INVALID_FIELD, "options"),
    "append sequence": (append(sequence=5), S.OUT_OF_SEQUENCE, "sequence"),
    "append gap": (append(session=9, first_token=4), S.UNKNOWN_SESSION, "session"),
    "append checksum": (append(crc32c=1), S.CRC_MISMATCH, "crc32c"),
    "trim session": (commands.session_trim(9, 0), S.UNKNOWN_SESSION, "session"),
    "erase reserved": (changed(abi.SessionTrim, commands.session_erase(1), reserved0=1), S.INVALID_FIELD, "reserved0"),
    "remove session": (commands.session_remove(9, range(32, 64), 8), S.UNKNOWN_SESSION, "session"),
    "remove first": (commands.session_remove(1, range(64), 8), S.INVALID_FIELD, "first_token"),
    "remove nothing": (commands.session_remove(1, range(32, 32), 8), S.INVALID_FIELD, "tokens"),
    "remove again": (commands.session_remove(1, range(32, 64), 9), S.TOKEN_GAP, "before"),
    "remove more": (commands.session_remove(1, range(32, 64), 8), S.TOKENS_MISSING, "tokens"),
    "fork onto itself": (commands.session_fork(1, 1, 4), S.INVALID_FIELD, "target"),
    "fork of nothing": (commands.session_fork(9, 2, 4), S.UNKNOWN_SESSION, "session"),
    "submit mode": (submit(mode=99), S.INVALID_FIELD, "mode"),
    "submit group": (submit(group=17), S.INVALID_FIELD, "group"),
    "submit session": (submit(session=9), S.UNKNOWN_SESSION, "session"),
    "submit local": (submit(local=1), S.INVALID_FIELD, "local"),
    "submit tokens": (submit(tokens=9), S.TOKENS_MISSING, "tokens"),
    "submit checksum": (submit(crc32c=1), S.CRC_MISMATCH, "crc32c"),
    "rows number": (rows(rows=0), S.INVALID_FIELD, "rows"),
    "rows more": (rows(rows=3), S.INVALID_FIELD, "data_bytes"),
    "rows reserved": (rows(reserved1=[0, 0, 1]), S.INVALID_FIELD, "reserved1"),
    "rows checksum": (rows(crc32c=1), S.CRC_MISMATCH, "crc32c"),
    "fetch ticket": (fetch(ticket=77), S.UNKNOWN_TICKET, "ticket"),
    "fetch reserved": (fetch(reserved0=[0, 1]), S.INVALID_FIELD, "reserved0"),
}
LAYOUTS = {
    "append": abi.KvAppend,
    "fork": abi.SessionFork,
    "remove": wire.SessionRemove,
    "submit": abi.AttnSubmit,
    "rows": wire.AttnRows,
    "fetch": abi.AttnFetch,
}


@pytest.mark.parametrize("case", WRONG_FIELDS)
def test_the_error_log_names_the_field_of_a_kv_command(nvme, case):
    command, status, field = WRONG_FIELDS[case]
    if not case.startswith("append"):
        for kind in abi.KvKind:
            nvme.ok(commands.kv_append(1, 0, 0, kind, 0, int(kind), HALVES))
    assert nvme.send(command).status == status
    layout = LAYOUTS.get(case.split()[0], abi.SessionTrim)
    assert errors(nvme, 1)[0]["location"] == (0xFFFF if field is None else layout.fields[field][1])


@pytest.mark.parametrize(
    ("command", "status", "location"),
    [
        (namespaces.fill_memory(3, 4), S.INVALID_FIELD, CDW10),
        (namespaces.fill_memory(0, 3), S.INVALID_FIELD, 48),
        (namespaces.execute_program(99, 1, 0), SC.SC_INVALID_PROGRAM_INDEX, 8),
        (namespaces.execute_program(wire.Program.PROGRAM_DENSE, 7, 0), SC.SC_INVALID_MEMORY_RANGE_SET_ID, 10),
    ],
)
def test_the_error_log_names_the_dword_of_memory_and_program_commands(nvme, command, status, location):
    assert nvme.send(command).status == status
    assert errors(nvme, 1)[0]["location"] == location


def test_the_error_log_names_the_damaged_block(nvme, tmp_path):
    data = np.ones((1000, 4096), np.uint8)
    data[11, :8] = np.frombuffer(b"find me!", np.uint8)
    nvme.ok(namespaces.write_blocks(0, data.reshape(-1), fua=True))
    path = tmp_path / "drive.kv"
    with path.open("r+b") as file:
        file.seek(place_of(path, b"find me!"))
        file.write(b"damaged!")
    for command in (namespaces.verify_blocks(0, 16), namespaces.read_blocks(10, 3)):
        assert nvme.send(command).status == S.UNRECOVERED_READ
        assert errors(nvme, 1)[0]["lba"] == 11
    assert smart(nvme)["critical_warning"] & 4
    nvme.ok(namespaces.read_blocks(0, 11))


@pytest.mark.parametrize("nsid", [5, 0xFFFFFFFE])
def test_namespaces_that_do_not_exist_are_invalid(nvme, nsid):
    A = wire.AdminOpcode
    commands = [
        admin.command(A.GET_LOG_PAGE, nsid=nsid, room=512, cdw10=L.LOG_SMART | 127 << 16),
        admin.command(A.GET_FEATURES, nsid=nsid, cdw10=F.FEATURE_WRITE_CACHE),
        admin.command(A.SET_FEATURES, nsid=nsid, cdw10=F.FEATURE_WRITE_CACHE),
        admin.command(A.FORMAT_NVM, nsid=nsid),
        admin.identify(wire.Cns.CNS_NAMESPACE, nsid),
    ]
    assert [nvme.admin(command).status for command in commands] == [S.INVALID_NAMESPACE] * len(commands)
    assert errors(nvme, 1)[0]["location"] == NSID


def test_temperature_thresholds_raise_a_warning_and_an_event(nvme):
    def threshold(value):
        return nvme.admin(admin.set_feature(F.FEATURE_TEMPERATURE_THRESHOLD, value)).status

    nvme.admin(admin.set_feature(F.FEATURE_ASYNC_EVENTS, 0x2))
    request = admin.command(wire.AdminOpcode.ASYNC_EVENT_REQUEST)
    event = nvme.pairs.submit(0, request.entry)
    assert smart(nvme)["critical_warning"] == 0
    under = 1 << 20
    for crossed, calm in ((290, 343), (300 | under, 200 | under)):
        assert threshold(crossed) == S.SUCCESS
        entry, _ = nvme.pairs.wait(event)
        assert int(np.frombuffer(entry, abi.Cqe)["result"][0]) == 1 | 1 << 8 | L.LOG_SMART << 16
        event = nvme.pairs.submit(0, request.entry)
        assert smart(nvme)["critical_warning"] == 0x2
        assert not nvme.pairs.done(event)
        assert threshold(calm) == S.SUCCESS
        assert smart(nvme)["critical_warning"] == 0
    assert threshold(300 | 1 << 16) == S.INVALID_FIELD  # a sensor that does not exist


def test_what_oncs_promises_works(make_nvme):
    nvme = make_nvme()
    identify = admin.decode(wire.IdentifyController, nvme.admin(admin.identify(wire.Cns.CNS_CONTROLLER)).data)
    assert identify["oncs"] == 0b1_1101_1101  # all but Write Uncorrectable and Reservations

    def get(select):
        return nvme.admin(admin.get_feature(F.FEATURE_WRITE_CACHE, select)).result

    assert get(3) == 0b101
    assert nvme.admin(admin.get_feature(F.FEATURE_QUEUES, 3)).result == 0b100
    assert nvme.admin(admin.set_feature(F.FEATURE_WRITE_CACHE, 0, save=True)).status == S.SUCCESS
    assert [get(0), get(1), get(2)] == [0, 1, 0]
    assert nvme.admin(admin.set_feature(F.FEATURE_WRITE_CACHE, 1)).status == S.SUCCESS
    assert [get(0), get(1), get(2)] == [1, 1, 0]
    nvme.close()
    nvme = make_nvme()
    assert [get(0), get(1), get(2)] == [0, 1, 0]
    pages = nvme.admin(admin.get_log_page(L.LOG_FEATURE_EFFECTS, 1024)).data.view(np.uint32)
    assert np.flatnonzero(pages & 1).tolist() == sorted(F)


def test_every_controller_tells_one_story_of_shared_namespaces(nvme):
    controller = admin.decode(wire.IdentifyController, nvme.admin(admin.identify(wire.Cns.CNS_CONTROLLER)).data)
    assert controller["cmic"] & 0b1010 == 0b1010
    assert (controller["nanagrpid"], controller["anagrpmax"]) == (1, 1)
    block = admin.decode(wire.IdentifyNamespace, nvme.admin(admin.identify(wire.Cns.CNS_NAMESPACE, 1)).data)
    assert (block["nmic"], block["anagrpid"]) == (1, 1)
    for nsid in (1, 2, 3, 4):
        data = nvme.admin(admin.identify(wire.Cns.CNS_INDEPENDENT_NAMESPACE, nsid)).data
        independent = admin.decode(wire.IndependentNamespace, data)
        assert (independent["nmic"], independent["anagrpid"]) == (1, 1)
    log = admin.decode(wire.AnaLog, nvme.admin(admin.get_log_page(L.LOG_ANA, 64)).data)
    assert (log["groups"], log["group"], log["namespaces"], log["state"], log["nsid"]) == (1, 1, 4, 1, [1, 2, 3, 4])
