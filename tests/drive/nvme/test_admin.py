# SPDX-License-Identifier: Apache-2.0
"""Admin commands through real rings, beyond what `kvdrive drive conformance` checks of every drive."""

from kvdrive import abi
from kvdrive.nvme import admin, wire

S, SC = abi.NvmeStatus, wire.StatusCode


def test_identify_controller(nvme):
    found = admin.decode(wire.IdentifyController, nvme.admin(admin.identify(wire.Cns.CNS_CONTROLLER)).data)
    assert (found["sn"], found["engine"], found["preset"]) == ("TEST0001", "fast", "970pro")
    assert found["subnqn"] == nvme.subsystem.nqn
    assert (found["ver"], found["nn"], found["sqes"], found["cqes"]) == (wire.VERSION_2_1, 4, 0x66, 0x44)
    assert found["cntlid"] == 1
    assert found["vwc"] & 1
    assert found["tnvmcap"] == found["kv_capacity_bytes"] == 1 << 26


def test_queues_are_negotiated_and_the_keep_alive_time_is_held(nvme):
    F = wire.Feature
    assert nvme.admin(admin.set_feature(F.FEATURE_QUEUES, 0x00070007)).result == 0x00070007
    assert nvme.admin(admin.set_feature(F.FEATURE_QUEUES, 0x01000100)).result == 0x003F003F
    assert nvme.admin(admin.set_feature(F.FEATURE_QUEUES, 1, save=True)).status == SC.SC_FEATURE_NOT_SAVEABLE
    nvme.admin(admin.set_feature(F.FEATURE_KEEP_ALIVE, 15_000))
    assert nvme.admin(admin.get_feature(F.FEATURE_KEEP_ALIVE)).result == 15_000


def test_log_pages(nvme):
    L = wire.LogPage
    nvme.send(admin.command(0x33, nsid=1))
    nvme.send(admin.command(0x35, nsid=3))
    errors = nvme.admin(admin.get_log_page(L.LOG_ERRORS, 128)).data.view(wire.ErrorEntry)
    assert errors["count"].tolist() == [2, 1]
    assert errors["opcode"].tolist() == [0x35, 0x33]
    assert (errors["status"] >> 1 & 0x7FF).tolist() == [S.INVALID_OPCODE] * 2
    smart = admin.decode(wire.SmartLog, nvme.admin(admin.get_log_page(L.LOG_SMART, 512)).data)
    assert (smart["error_entries"], smart["spare_percent"], smart["critical_warning"]) == (2, 100, 0)
    firmware = nvme.admin(admin.get_log_page(L.LOG_FIRMWARE, 512)).data
    assert (firmware[0], firmware[8:16].tobytes()) == (1, b"1.0     ")
    statistics = admin.decode(wire.DriveStatistics, nvme.admin(admin.get_log_page(L.LOG_STATISTICS, 512)).data)
    stats = nvme.drive.stats()
    assert {name: statistics[name] for name in stats} == stats
    programs = nvme.admin(admin.get_log_page(L.LOG_PROGRAMS, 320)).data.view(wire.ProgramDescriptor)
    names = [bytes(name).strip(b"\0") for name in programs["name"]]
    assert names == [b"DENSE", b"SPARF", b"PARTIAL", b"GROUPS", b"FFN"]
