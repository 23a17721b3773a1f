# SPDX-License-Identifier: Apache-2.0
"""Sanitize: no stored byte remains in the backing file or in the drive's memory, and the status reports it."""

import numpy as np
from stored_bytes import occurrences

from kvdrive import abi
from kvdrive._native import Drive
from kvdrive.nvme import admin, commands, namespaces, wire

S = abi.NvmeStatus
MARK = b"\x5a\x3c\x11\x2f\x66\x1e\x49\x2d"  # four finite binary16
BLOCK_ERASE = 2


def marked(count):
    return np.frombuffer(MARK * (count // len(MARK)), np.uint8)


def copies(path):
    return occurrences(path, MARK)


def sanitize(nvme, action=BLOCK_ERASE):
    return nvme.admin(admin.command(wire.AdminOpcode.SANITIZE, cdw10=action)).status


def status(nvme, retain=True):
    page = nvme.admin(admin.get_log_page(wire.LogPage.LOG_SANITIZE_STATUS, 512, retain=retain)).data
    return admin.decode(wire.SanitizeStatus, page)


def store(nvme):
    """Store whole flash rows, groups that wait for a row, and staged rows: in flash, drive memory and journal."""
    nvme.ok(namespaces.write_blocks(0, marked(4096 * 700)))
    rows = marked(2 * 100 * 128).view(np.float16).reshape(2, 100, 64)
    for sequence, kind in enumerate(abi.KvKind):
        nvme.ok(commands.kv_append(1, 0, 0, kind, 0, sequence, rows))
    nvme.ok(commands.flush())
    nvme.ok(namespaces.write_memory(0, marked(4096)))


def test_nothing_is_left(nvme, tmp_path):
    assert status(nvme)["sstat"] == 0
    store(nvme)
    path = tmp_path / "drive.kv"
    assert copies(path) > 700 * 500
    before = nvme.drive.flash_stats()
    nvme.admin(admin.command(wire.AdminOpcode.FORMAT_NVM, nsid=1))
    assert copies(path) > 700 * 500  # format leaves these copies in the file
    assert sanitize(nvme) == S.SUCCESS
    assert copies(path) == 0
    after = nvme.drive.flash_stats()
    assert after["erases"] > before["erases"]
    assert after["device_ns"] >= before["device_ns"]
    assert (after["groups_live"], nvme.drive.sessions()) == (0, [])
    assert not nvme.ok(namespaces.read_memory(0, 4096)).data.any()
    assert not nvme.ok(namespaces.read_blocks(0, 700)).data.any()
    found = status(nvme)
    assert (found["sprog"], found["sstat"], found["scdw10"]) == (0xFFFF, 1 | 1 << 8, BLOCK_ERASE)
    assert nvme.drive.check() == []


def test_the_drive_goes_on_afterwards(nvme, tmp_path):
    store(nvme)
    assert sanitize(nvme) == S.SUCCESS
    nvme.ok(namespaces.write_blocks(3, marked(4096), fua=True))
    assert status(nvme)["sstat"] == 1  # data were written since the last sanitize
    nvme.close()
    drive = Drive(tmp_path / "drive.kv")
    assert (drive.check(), drive.flash_stats()["groups_live"], drive.sessions()) == ([], 1, [])
    assert copies(tmp_path / "drive.kv") >= 512


def test_the_host_hears_of_it(nvme):
    request = nvme.pairs.submit(0, admin.command(wire.AdminOpcode.ASYNC_EVENT_REQUEST).entry)
    assert sanitize(nvme) == S.SUCCESS
    entry, _ = nvme.pairs.wait(request)
    assert int(np.frombuffer(entry, abi.Cqe)["result"][0]) == 6 | 1 << 8 | wire.LogPage.LOG_SANITIZE_STATUS << 16
