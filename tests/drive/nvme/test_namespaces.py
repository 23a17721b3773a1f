# SPDX-License-Identifier: Apache-2.0
"""Blocks through rings, beyond what `kvdrive drive conformance` checks of every drive."""

import numpy as np
import pytest

from kvdrive import abi
from kvdrive.nvme import admin, namespaces, wire

S = abi.NvmeStatus


def noise(seed, count):
    return np.random.default_rng(seed).integers(0, 256, count * wire.LBA_BYTES).astype(np.uint8)


@pytest.mark.parametrize("prp", [False, True])
def test_blocks_read_as_they_were_written(make_nvme, prp):
    nvme = make_nvme(prp=prp)
    for first, count in ((0, 1), (5, 2), (100, 3), (1000, 700)):  # one page, two, a PRP list, two lists
        data = noise(count, count)
        nvme.ok(namespaces.write_blocks(first, data))
        assert nvme.ok(namespaces.read_blocks(first, count)).data.tobytes() == data.tobytes()
    nvme.ok(namespaces.write_blocks(101, noise(9, 1)))
    found = nvme.ok(namespaces.read_blocks(99, 5)).data.reshape(5, -1)
    want = noise(3, 3).reshape(3, -1)
    assert not found[0].any()
    assert not found[4].any()
    assert [found[1].tobytes(), found[3].tobytes()] == [want[0].tobytes(), want[2].tobytes()]
    assert found[2].tobytes() == noise(9, 1).tobytes()
    assert nvme.drive.check() == []


def test_a_damaged_block_is_reported_and_raises_an_event(nvme):
    nvme.ok(namespaces.write_blocks(0, noise(1, 1000)))
    nvme.admin(admin.set_feature(wire.Feature.FEATURE_ASYNC_EVENTS, 0x4))
    event = nvme.pairs.submit(0, admin.command(wire.AdminOpcode.ASYNC_EVENT_REQUEST).entry)
    nvme.drive.inject("read_uncorrectable")
    assert nvme.send(namespaces.read_blocks(0, 16)).status == S.UNRECOVERED_READ
    entry, _ = nvme.pairs.wait(event)
    assert int(np.frombuffer(entry, abi.Cqe)["result"][0]) == 1 | wire.LogPage.LOG_SMART << 16
    smart = admin.decode(wire.SmartLog, nvme.admin(admin.get_log_page(wire.LogPage.LOG_SMART, 512)).data)
    assert smart["media_errors"] >= 1
    assert smart["critical_warning"] == 0x4
