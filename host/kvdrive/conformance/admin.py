"""Checks of the admin commands that do not belong to programs."""

from __future__ import annotations

import numpy as np

from kvdrive import abi
from kvdrive.conformance.bench import Bench, status_name
from kvdrive.conformance.device import Ability
from kvdrive.conformance.suite import check
from kvdrive.nvme import admin, namespaces, wire
from kvdrive.nvme.command_set import COMMANDS
from kvdrive.nvme.commands import Command
from kvdrive.nvme.completions import Completion

A, C, F, L = wire.AdminOpcode, wire.Cns, wire.Feature, wire.LogPage
_SETS = {
    1: wire.CommandSet.CSI_NVM,
    2: wire.CommandSet.CSI_MEMORY,
    3: wire.CommandSet.CSI_PROGRAMS,
    4: wire.CommandSet.CSI_KEY_VALUE,
}


def ask(bench: Bench, command: Command) -> Completion:
    """Execute an admin command that must succeed."""
    return bench.ok(command, admin=True)


@check("IDENTIFY", "the controller names its engine and the version of the command set")
def _(bench: Bench) -> None:
    found = bench.identity
    bench.same("version of the command set", found["abi_version"], abi.ABI_VERSION)
    bench.same("an engine's name", bool(found["engine"]), True)
    bench.same("sizes of queue entries", (found["sqes"], found["cqes"]), (0x66, 0x44))
    bench.same("namespaces", found["nn"], wire.MAX_NSID)
    bench.same("a volatile write cache", found["vwc"] & 1, 1)
    bench.same("commands of blocks", found["oncs"] & 0x18D, 0x18D)
    bench.same("capacity", found["kv_capacity_bytes"] > 0, True)


@check("IDENTIFY", "the four namespaces have their command sets")
def _(bench: Bench) -> None:
    active = ask(bench, admin.identify(C.CNS_ACTIVE_NAMESPACES)).data.view(np.uint32)
    bench.same("active namespaces", active[:5].tolist(), [1, 2, 3, 4, 0])
    for nsid, csi in _SETS.items():
        descriptors = ask(bench, admin.identify(C.CNS_NAMESPACE_DESCRIPTORS, nsid)).data
        bench.same("the NGUID's descriptor", descriptors[:2].tolist(), [2, 16])
        bench.same("the command set's descriptor", descriptors[20:25].tolist(), [4, 1, 0, 0, csi])
        bench.same("bytes behind them", int(descriptors[25:].sum()), 0)
        of_set = ask(bench, admin.identify(C.CNS_CSI_ACTIVE_NAMESPACES, 0, csi)).data.view(np.uint32)
        bench.same("namespaces of the set", of_set[:2].tolist(), [nsid, 0])
        independent = ask(bench, admin.identify(C.CNS_INDEPENDENT_NAMESPACE, nsid)).data
        bench.same("ready", admin.decode(wire.IndependentNamespace, independent)["nstat"], 1)
        ask(bench, admin.identify(C.CNS_CSI_NAMESPACE, nsid, csi))
        ask(bench, admin.identify(C.CNS_CSI_CONTROLLER, 0, csi))
    sets = ask(bench, admin.identify(C.CNS_COMMAND_SETS)).data.view(np.uint64)
    bench.same("command sets", int(sets[0]), sum(1 << csi for csi in _SETS.values()))
    block = admin.decode(wire.IdentifyNamespace, ask(bench, admin.identify(C.CNS_NAMESPACE, 1)).data)
    bench.same("bytes of a block", 1 << (block["lbaf"][0] >> 16 & 0xFF), wire.LBA_BYTES)


@check("IDENTIFY", "unknown structures, namespaces and command sets are refused")
def _(bench: Bench) -> None:
    refused = [
        ("INVALID_FIELD", admin.identify(0x55)),  # type: ignore[arg-type]
        ("INVALID_NAMESPACE", admin.identify(C.CNS_NAMESPACE, 0)),
        ("INVALID_NAMESPACE", admin.identify(C.CNS_NAMESPACE, 5)),
        ("INVALID_NAMESPACE", admin.identify(C.CNS_ACTIVE_NAMESPACES, 0xFFFFFFFE)),
        ("INVALID_FIELD", admin.identify(C.CNS_NAMESPACE, 2)),
        ("BAD_COMMAND_SET", admin.identify(C.CNS_CSI_NAMESPACE, 1, 2)),
    ]
    for status, command in refused:
        bench.refused(status, command, admin=True)


@check("GET_LOG_PAGE", "the supported pages are those of the specification, and each can be read")
def _(bench: Bench) -> None:
    pages = ask(bench, admin.get_log_page(L.LOG_SUPPORTED_PAGES, 1024)).data.view(np.uint32)
    bench.same("supported pages", set(np.flatnonzero(pages).tolist()), {int(page) for page in L})
    for page in L:
        size = {L.LOG_COMMAND_EFFECTS: 4096, L.LOG_PROGRAMS: 192}.get(page, 512)
        bench.same(f"length of page {page:#x}", ask(bench, admin.get_log_page(page, size, retain=True)).data.size, size)


@check("GET_LOG_PAGE", "the effects log lists the commands of the specification")
def _(bench: Bench) -> None:
    for nsid, csi in _SETS.items():
        log = ask(bench, admin.get_log_page(L.LOG_COMMAND_EFFECTS, 4096, csi=csi)).data.view(np.uint32)
        want = {row.opcode for row in COMMANDS.values() if row.namespace == nsid}
        bench.same(f"commands of namespace {nsid}", set(np.flatnonzero(log[256:512] & 1).tolist()), want)
        admin_opcodes = {row.opcode for row in COMMANDS.values() if row.namespace == 0}
        bench.same("admin commands", set(np.flatnonzero(log[:256] & 1).tolist()), admin_opcodes)


@check("GET_LOG_PAGE", "commands that no log lists are refused, in every namespace")
def _(bench: Bench) -> None:
    known = {(row.namespace, row.opcode) for row in COMMANDS.values()}
    everywhere = {row.opcode for row in COMMANDS.values() if row.namespace}
    for nsid in (1, 2, 3, 4, 5) if Ability.RAW in bench.device.abilities else (1, 2, 3, 4):
        for opcode in range(0, 256, 3):
            if (nsid, opcode) in known:
                continue
            done = bench.send(admin.command(opcode, nsid=nsid))
            want = "INVALID_NAMESPACE" if nsid == 5 or opcode in everywhere else "INVALID_OPCODE"
            bench.same(f"opcode {opcode:#x} in namespace {nsid}", status_name(done.status), want)


@check("GET_LOG_PAGE", "part of a page is its bytes, and what lies beyond the page is zeros")
def _(bench: Bench) -> None:
    whole = ask(bench, admin.get_log_page(L.LOG_COMMAND_EFFECTS, 2048)).data
    part = ask(bench, admin.get_log_page(L.LOG_COMMAND_EFFECTS, 64, offset=1024)).data
    bench.same("a part of the page", part, whole[1024:1088])
    beyond = ask(bench, admin.get_log_page(L.LOG_FIRMWARE, 512, offset=256)).data
    bench.same("bytes beyond the page", int(beyond[256:].sum()), 0)


@check("GET_LOG_PAGE", "a failed command is in the error log")
def _(bench: Bench) -> None:
    bench.send(admin.command(0x33, nsid=1))
    entry = ask(bench, admin.get_log_page(L.LOG_ERRORS, 64)).data.view(wire.ErrorEntry)[0]
    bench.same("its opcode", int(entry["opcode"]), 0x33)
    bench.same("its status", status_name(int(entry["status"]) >> 1 & 0x7FF), "INVALID_OPCODE")


@check("GET_LOG_PAGE", "the statistics count jobs and blocks")
def _(bench: Bench) -> None:
    def counted() -> tuple[int, int]:
        data = ask(bench, admin.get_log_page(L.LOG_STATISTICS, 512)).data
        found = admin.decode(wire.DriveStatistics, data)
        return found["block_writes"], found["commands"]

    writes, sent = counted()
    bench.ok(namespaces.write_blocks(bench.first_block, bench.noise(3)))
    bench.same("written blocks", counted()[0] - writes >= 3, True)
    bench.same("commands", counted()[1] - sent >= 1, True)


@check("GET_LOG_PAGE", "unknown pages, offsets, lengths, namespaces and command sets are refused")
def _(bench: Bench) -> None:
    refused = [
        ("BAD_LOG_PAGE", admin.get_log_page(0x77, 512)),
        ("INVALID_FIELD", admin.get_log_page(L.LOG_FIRMWARE, 512, offset=516)),
        ("INVALID_FIELD", admin.get_log_page(L.LOG_FIRMWARE, 512, offset=2)),
        ("BAD_COMMAND_SET", admin.get_log_page(L.LOG_COMMAND_EFFECTS, 4096, csi=9)),
        ("INVALID_NAMESPACE", admin.command(A.GET_LOG_PAGE, room=4, nsid=9, cdw10=int(L.LOG_SMART))),
    ]
    for status, command in refused:
        bench.refused(status, command, admin=True)


@check("GET_FEATURES", "current, default and saved values and the capabilities are returned")
def _(bench: Bench) -> None:
    for select in (0, 1, 2):
        value = ask(bench, admin.get_feature(F.FEATURE_WRITE_CACHE, select)).result
        bench.same("the write cache", value in (0, 1), True)
    bench.same("its default", ask(bench, admin.get_feature(F.FEATURE_WRITE_CACHE, 1)).result, 1)
    bench.same("its capabilities", ask(bench, admin.get_feature(F.FEATURE_WRITE_CACHE, 3)).result & 5, 5)
    for feature in F:
        room = {F.FEATURE_TIMESTAMP: 8, F.FEATURE_HOST_BEHAVIOR: 512, F.FEATURE_HOST_ID: 16}.get(feature, 0)
        cdw11 = int(feature == F.FEATURE_HOST_ID)
        done = ask(bench, admin.get_feature(feature, room=room, cdw11=cdw11))
        bench.same(f"data of {feature.name}", done.data.size, room)


@check("GET_FEATURES", "unknown features, selections and namespaces are refused")
def _(bench: Bench) -> None:
    bench.refused("INVALID_FIELD", admin.get_feature(0x7E), admin=True)
    bench.refused("INVALID_FIELD", admin.get_feature(F.FEATURE_WRITE_CACHE, 5), admin=True)
    threshold = admin.get_feature(F.FEATURE_TEMPERATURE_THRESHOLD, cdw11=3 << 16)
    bench.refused("INVALID_FIELD", threshold, admin=True)
    other = admin.command(A.GET_FEATURES, nsid=9, cdw10=int(F.FEATURE_WRITE_CACHE))
    bench.refused("INVALID_NAMESPACE", other, admin=True)


@check("SET_FEATURES", "a value is kept until it is changed again")
def _(bench: Bench) -> None:
    feature = F.FEATURE_WRITE_CACHE
    before = ask(bench, admin.get_feature(feature)).result
    try:
        for value in (0, 1, 0):
            ask(bench, admin.set_feature(feature, value))
            bench.same("the value", ask(bench, admin.get_feature(feature)).result, value)
    finally:
        ask(bench, admin.set_feature(feature, before))
    stamp = np.frombuffer((1_700_000_000_000).to_bytes(8, "little"), np.uint8)
    ask(bench, admin.set_feature(F.FEATURE_TIMESTAMP, data=stamp))
    now = int(ask(bench, admin.get_feature(F.FEATURE_TIMESTAMP, room=8)).data.view(np.uint64)[0]) & (1 << 48) - 1
    bench.same("the clock goes on from the timestamp", 0 <= now - 1_700_000_000_000 < 600_000, True)


@check("SET_FEATURES", "unknown features, values, namespaces, and what cannot be saved or changed are refused")
def _(bench: Bench) -> None:
    refused = [
        ("INVALID_FIELD", admin.set_feature(0x7E, 1)),
        ("INVALID_FIELD", admin.set_feature(F.FEATURE_WRITE_CACHE, 2)),
        ("INVALID_FIELD", admin.set_feature(F.FEATURE_POWER, 1)),
        ("FEATURE_NOT_SAVEABLE", admin.set_feature(F.FEATURE_POWER, 0, save=True)),
        ("FEATURE_NOT_CHANGEABLE", admin.set_feature(F.FEATURE_WRITE_ATOMICITY, 1)),
        (
            "FEATURE_NOT_NAMESPACE_SPECIFIC",
            admin.command(A.SET_FEATURES, nsid=1, cdw10=int(F.FEATURE_WRITE_CACHE), cdw11=1),
        ),
        ("INVALID_NAMESPACE", admin.command(A.SET_FEATURES, nsid=9, cdw10=int(F.FEATURE_WRITE_CACHE), cdw11=1)),
    ]
    for status, command in refused:
        bench.refused(status, command, admin=True)


@check("KEEP_ALIVE", "it succeeds")
def _(bench: Bench) -> None:
    ask(bench, admin.command(A.KEEP_ALIVE))


@check("ABORT", "a command that does not exist is not aborted")
def _(bench: Bench) -> None:
    bench.same("the result", ask(bench, admin.command(A.ABORT, cdw10=0xFFFF << 16 | 0x3F)).result & 1, 1)


@check("ABORT", "a pending request ends with status ABORTED", Ability.PENDING)
def _(bench: Bench) -> None:
    request = admin.command(A.ASYNC_EVENT_REQUEST)
    ticket = bench.device.begin(request)
    done = ask(bench, admin.command(A.ABORT, cdw10=(ticket & 0xFFFF) << 16))
    bench.same("the result", done.result & 1, 0)
    ended = bench.note(request, bench.device.finish(ticket), admin=True)
    bench.same("the request's status", status_name(ended.status), "ABORTED")


@check(
    "ASYNC_EVENT_REQUEST",
    "a crossed temperature is reported, and no more requests than the limit wait",
    Ability.PENDING,
)
def _(bench: Bench) -> None:
    request = admin.command(A.ASYNC_EVENT_REQUEST)
    limit = bench.identity["aerl"] + 1
    ask(bench, admin.set_feature(F.FEATURE_ASYNC_EVENTS, 0x2))
    tickets = [bench.device.begin(request) for _ in range(limit)]
    bench.refused("ASYNC_EVENT_LIMIT", request, admin=True)
    ask(bench, admin.set_feature(F.FEATURE_TEMPERATURE_THRESHOLD, 1))
    done = bench.note(request, bench.device.finish(tickets[0]), admin=True)
    bench.same("the event", (done.status, done.result), (0, 1 | 1 << 8 | int(L.LOG_SMART) << 16))
    threshold = ask(bench, admin.get_feature(F.FEATURE_TEMPERATURE_THRESHOLD, 1)).result
    ask(bench, admin.set_feature(F.FEATURE_TEMPERATURE_THRESHOLD, threshold))
    for ticket in tickets[1:]:
        ask(bench, admin.command(A.ABORT, cdw10=(ticket & 0xFFFF) << 16))
        bench.device.finish(ticket)
    ask(bench, admin.get_log_page(L.LOG_SMART, 512))
    ask(bench, admin.set_feature(F.FEATURE_ASYNC_EVENTS, 0))


_FREE = 33  # number of a queue that no connection of the checks has


@check("CREATE_CQ", "wrong numbers, sizes and scattered queues are refused", Ability.QUEUES)
def _(bench: Bench) -> None:
    refused = [
        ("BAD_QUEUE_ID", 0 | 15 << 16, 1),
        ("BAD_QUEUE_ID", 1 | 15 << 16, 1),
        ("BAD_QUEUE_ID", 0xFFFF | 15 << 16, 1),
        ("BAD_QUEUE_SIZE", _FREE, 1),
        ("BAD_QUEUE_SIZE", _FREE | 0xFFFF << 16, 1),
        ("INVALID_FIELD", _FREE | 15 << 16, 0),
    ]
    for status, cdw10, cdw11 in refused:
        bench.refused(status, admin.command(A.CREATE_CQ, cdw10=cdw10, cdw11=cdw11), admin=True)


@check("CREATE_SQ", "wrong numbers, sizes, completion queues and scattered queues are refused", Ability.QUEUES)
def _(bench: Bench) -> None:
    refused = [
        ("BAD_QUEUE_ID", 0 | 15 << 16, 1 | 1 << 16),
        ("BAD_QUEUE_ID", 1 | 15 << 16, 1 | 1 << 16),
        ("BAD_QUEUE_SIZE", _FREE, 1 | 1 << 16),
        ("BAD_COMPLETION_QUEUE", _FREE | 15 << 16, 1 | _FREE << 16),
        ("INVALID_FIELD", _FREE | 15 << 16, 0 | 1 << 16),
    ]
    for status, cdw10, cdw11 in refused:
        bench.refused(status, admin.command(A.CREATE_SQ, cdw10=cdw10, cdw11=cdw11), admin=True)


@check("DELETE_CQ", "unknown queues and queues in use are refused, others can be deleted", Ability.QUEUES)
def _(bench: Bench) -> None:
    bench.refused("BAD_QUEUE_ID", admin.command(A.DELETE_CQ, cdw10=_FREE), admin=True)
    bench.refused("BAD_QUEUE_DELETION", admin.command(A.DELETE_CQ, cdw10=1), admin=True)
    try:
        ask(bench, admin.command(A.DELETE_SQ, cdw10=1))
        ask(bench, admin.command(A.DELETE_CQ, cdw10=1))
    finally:
        bench.device.reset()


@check("DELETE_SQ", "unknown queues are refused, others can be deleted once", Ability.QUEUES)
def _(bench: Bench) -> None:
    bench.refused("BAD_QUEUE_ID", admin.command(A.DELETE_SQ, cdw10=0), admin=True)
    bench.refused("BAD_QUEUE_ID", admin.command(A.DELETE_SQ, cdw10=_FREE), admin=True)
    try:
        ask(bench, admin.command(A.DELETE_SQ, cdw10=1))
        bench.refused("BAD_QUEUE_ID", admin.command(A.DELETE_SQ, cdw10=1), admin=True)
    finally:
        bench.device.reset()
