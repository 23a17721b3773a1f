"""Checks of what survives a reset and a loss of power, and of the commands that forget everything."""

from __future__ import annotations

import numpy as np

from kvdrive.conformance.bench import Bench
from kvdrive.conformance.blocks import holds_blocks
from kvdrive.conformance.device import Ability
from kvdrive.conformance.queries import exact, holds
from kvdrive.conformance.sessions import SMALLER, SPARSE, sessions
from kvdrive.conformance.suite import check
from kvdrive.nvme import admin, commands, namespaces, wire

A, F = wire.AdminOpcode, wire.Feature
_FUA = 1


@check("FLUSH", "a reset of the controller loses neither sessions nor blocks, and appends go on after it")
def _(bench: Bench) -> None:
    stored, data = bench.store(tokens=100, options=SPARSE), bench.noise(3)
    bench.ok(namespaces.write_blocks(bench.first_block, data))
    bench.device.reset()
    holds(bench, stored)
    holds_blocks(bench, bench.first_block, data)
    bench.extend(stored, 30, SPARSE)
    bench.device.reset()
    holds(bench, stored)


@check("FLUSH", "everything before it survives a loss of power", Ability.POWER)
def _(bench: Bench) -> None:
    stored, data = bench.store(tokens=100, options=SPARSE), bench.noise(3)
    trimmed = bench.store()
    bench.ok(namespaces.write_blocks(bench.first_block, data))
    bench.ok(commands.session_trim(trimmed.number, 0))
    bench.ok(commands.flush())
    bench.device.lose_power()
    holds(bench, stored)
    holds_blocks(bench, bench.first_block, data)
    bench.refused("UNKNOWN_SESSION", exact(bench, trimmed).submit(trimmed.number))
    bench.extend(stored, 5, SPARSE)
    holds(bench, stored)


@check("FLUSH", "rows in 8 and 4 bits survive a loss of power, in whole groups and staged", Ability.POWER)
def _(bench: Bench) -> None:
    kept = [bench.store(tokens=200, stored_as=one) for one in SMALLER]
    bench.ok(commands.flush())
    bench.device.lose_power()
    for stored in kept:
        holds(bench, stored)
        bench.extend(stored, 70)
    bench.device.reset()
    for stored in kept:
        holds(bench, stored)


@check("KV_APPEND", "an append with FUA survives a loss of power, with everything before it", Ability.POWER)
def _(bench: Bench) -> None:
    stored = bench.store(tokens=40)
    bench.extend(stored, 9, _FUA)
    bench.device.lose_power()
    holds(bench, stored)


@check("WRITE", "blocks with FUA survive a loss of power", Ability.POWER)
def _(bench: Bench) -> None:
    data = bench.noise(2)
    bench.ok(namespaces.write_blocks(bench.first_block, data, fua=True))
    bench.device.lose_power()
    holds_blocks(bench, bench.first_block, data)


@check("SET_FEATURES", "without the write cache every command's effects survive a loss of power", Ability.POWER)
def _(bench: Bench) -> None:
    data = bench.noise(2)
    bench.ok(admin.set_feature(F.FEATURE_WRITE_CACHE, 0), admin=True)
    bench.ok(namespaces.write_blocks(bench.first_block, data))
    bench.device.lose_power()
    holds_blocks(bench, bench.first_block, data)
    bench.ok(admin.set_feature(F.FEATURE_WRITE_CACHE, 0), admin=True)
    stored = bench.store(tokens=20)
    bench.device.lose_power()
    holds(bench, stored)


@check("WRITE_ZEROES", "zeros with FUA survive a loss of power", Ability.POWER)
def _(bench: Bench) -> None:
    first, data = bench.first_block, bench.noise(3)
    bench.ok(namespaces.write_blocks(first, data, fua=True))
    bench.ok(namespaces.write_zeroes(first + 1, 1, fua=True))
    bench.device.lose_power()
    data[wire.LBA_BYTES : 2 * wire.LBA_BYTES] = 0
    holds_blocks(bench, first, data)


@check("COPY", "copies with FUA survive a loss of power", Ability.POWER)
def _(bench: Bench) -> None:
    first, data = bench.first_block, bench.noise(3)
    bench.ok(namespaces.write_blocks(first, data))
    bench.ok(namespaces.copy_blocks([(first, 3)], first + 9, fua=True))
    bench.device.lose_power()
    holds_blocks(bench, first + 9, data)


@check("SESSION_ERASE", "the erase survives a loss of power, and so does everything before it", Ability.POWER)
def _(bench: Bench) -> None:
    stored, gone = bench.store(), bench.store()
    bench.ok(commands.session_erase(gone.number))
    bench.device.lose_power()
    bench.same("the session in the log", gone.number in sessions(bench), False)
    holds(bench, stored)


@check("SET_FEATURES", "a saved value survives a loss of power, another one a reset does not", Ability.POWER)
def _(bench: Bench) -> None:
    feature = F.FEATURE_ERROR_RECOVERY
    bench.ok(admin.set_feature(feature, 7, save=True), admin=True)
    bench.device.lose_power()
    bench.same("the saved value", bench.ok(admin.get_feature(feature), admin=True).result, 7)
    bench.ok(admin.set_feature(feature, 9), admin=True)
    bench.device.reset()
    bench.same("the value after a reset", bench.ok(admin.get_feature(feature), admin=True).result, 7)
    bench.ok(admin.set_feature(feature, 0, save=True), admin=True)


@check("FORMAT_NVM", "unknown formats, secure erase and namespaces without blocks are refused")
def _(bench: Bench) -> None:
    stored = bench.store(tokens=9)
    for status, nsid, cdw10 in (
        ("BAD_FORMAT", 1, 1),
        ("BAD_FORMAT", 1, 1 << 5),
        ("INVALID_FIELD", 1, 1 << 9),
        ("INVALID_NAMESPACE", 2, 0),
    ):
        bench.refused(status, admin.command(A.FORMAT_NVM, nsid=nsid, cdw10=cdw10), admin=True)
    holds(bench, stored)


@check("FORMAT_NVM", "all sessions and blocks are removed", Ability.EMPTY)
def _(bench: Bench) -> None:
    bench.store()
    bench.ok(namespaces.write_blocks(bench.first_block, bench.noise(2)))
    bench.ok(admin.command(A.FORMAT_NVM, nsid=1), admin=True)
    bench.same("sessions", sessions(bench), set())
    holds_blocks(bench, bench.first_block, np.zeros(2 * wire.LBA_BYTES, np.uint8))
    holds(bench, bench.store())


@check("SANITIZE", "other actions are refused and erase nothing")
def _(bench: Bench) -> None:
    stored = bench.store(tokens=9)
    for action in (0, 3, 4, 2 | 1 << 9):
        bench.refused("INVALID_FIELD", admin.command(A.SANITIZE, cdw10=action), admin=True)
    bench.ok(admin.command(A.SANITIZE, cdw10=1), admin=True)  # leave failure mode, in which the drive is not
    holds(bench, stored)


@check("SANITIZE", "sessions, blocks and drive memory are gone, and the status log says so", Ability.EMPTY)
def _(bench: Bench) -> None:
    bench.store()
    bench.ok(namespaces.write_blocks(bench.first_block, bench.noise(2)))
    bench.ok(namespaces.write_memory(0, bench.noise(1)))
    bench.ok(admin.sanitize(), admin=True)
    page = bench.ok(admin.get_log_page(wire.LogPage.LOG_SANITIZE_STATUS, 512), admin=True).data
    status = admin.decode(wire.SanitizeStatus, page)
    bench.same("the log's state", (status["sprog"], status["sstat"]), (0xFFFF, 1 | 1 << 8))
    bench.same("sessions", sessions(bench), set())
    bench.same("drive memory", int(bench.ok(namespaces.read_memory(0, 4096)).data.sum()), 0)
    holds_blocks(bench, bench.first_block, np.zeros(2 * wire.LBA_BYTES, np.uint8))
    holds(bench, bench.store())
