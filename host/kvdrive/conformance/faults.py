"""Checks of a drive whose flash fails, fills up or loses contents."""

from __future__ import annotations

from kvdrive import abi
from kvdrive.conformance.bench import Bench
from kvdrive.conformance.blocks import holds_blocks
from kvdrive.conformance.device import Ability
from kvdrive.conformance.queries import exact, holds
from kvdrive.conformance.sessions import append
from kvdrive.conformance.suite import check
from kvdrive.nvme import admin, commands, namespaces, wire

A = wire.AdminOpcode
FAULTS = Ability.FAULTS | Ability.POWER


@check("READ", "a lost block is reported and not returned", Ability.FAULTS)
def _(bench: Bench) -> None:
    first = _in_flash(bench)
    bench.device.inject("read_uncorrectable")
    bench.same("data", bench.refused("UNRECOVERED_READ", namespaces.read_blocks(first, 8)).data.size, 0)


@check("VERIFY", "a lost block is reported", Ability.FAULTS)
def _(bench: Bench) -> None:
    first = _in_flash(bench)
    bench.device.inject("read_uncorrectable")
    bench.refused("UNRECOVERED_READ", namespaces.verify_blocks(first, 8))


@check("COMPARE", "a lost block is reported", Ability.FAULTS)
def _(bench: Bench) -> None:
    first = _in_flash(bench)
    bench.device.inject("read_uncorrectable")
    bench.refused("UNRECOVERED_READ", namespaces.compare_blocks(first, bench.noise(8)))


@check("COPY", "a lost source is reported and nothing is copied", Ability.FAULTS)
def _(bench: Bench) -> None:
    first, data = _in_flash(bench), bench.noise(8)
    bench.ok(namespaces.write_blocks(first + 20, data))
    bench.device.inject("read_uncorrectable")
    bench.refused("UNRECOVERED_READ", namespaces.copy_blocks([(first, 8)], first + 20))
    holds_blocks(bench, first + 20, data)


@check("KV_READ", "a lost group is reported and no rows are sent", Ability.FAULTS)
def _(bench: Bench) -> None:
    stored = bench.store(tokens=64)
    _in_flash(bench)
    bench.device.inject("read_uncorrectable")
    read = commands.kv_read(stored.number, 0, 0, abi.KvKind.KEYS, 0, (2, 64, 64))
    bench.same("data", bench.refused("UNRECOVERED_READ", read).data.size, 0)
    holds(bench, stored)


@check("ATTN_FETCH", "a lost group of K or V is reported", Ability.FAULTS)
def _(bench: Bench) -> None:
    stored = bench.store(tokens=64)
    _in_flash(bench)
    query = exact(bench, stored)
    bench.device.inject("read_uncorrectable")
    bench.refused("UNRECOVERED_READ", query.fetch(bench.ok(query.submit(stored.number)).result))


@check("SESSION_TRIM", "a lost group that must be shortened is reported and nothing is removed", Ability.FAULTS)
def _(bench: Bench) -> None:
    stored = bench.store(tokens=64)
    _in_flash(bench)
    bench.device.inject("read_uncorrectable")
    bench.refused("UNRECOVERED_READ", commands.session_trim(stored.number, 40))
    bench.device.inject("read_uncorrectable")
    bench.refused("UNRECOVERED_READ", commands.session_erase(stored.number, 40))
    bench.device.inject("read_uncorrectable")
    free = bench.session()
    bench.refused("UNRECOVERED_READ", commands.session_fork(stored.number, free, 40))
    bench.refused("UNKNOWN_SESSION", commands.session_trim(free, 0))
    holds(bench, stored)


@check("SESSION_REMOVE", "a lost group whose rows are in a sum is reported and nothing is removed", Ability.FAULTS)
def _(bench: Bench) -> None:
    stored = bench.store(tokens=100, options=int(abi.AppendOption.APPEND_SPARSE))
    _in_flash(bench)
    bench.device.inject("read_uncorrectable")
    bench.refused("UNRECOVERED_READ", commands.session_remove(stored.number, range(32, 64), 100))
    holds(bench, stored)


@check("ATTN_SUBMIT", "an engine that does not answer is an error, and the next query is computed", Ability.FAULTS)
def _(bench: Bench) -> None:
    stored = bench.store(tokens=20)
    bench.device.inject("engine_hang")
    bench.refused("INTERNAL_ERROR", exact(bench, stored).submit(stored.number))
    holds(bench, stored)


@check("WRITE", "a full drive refuses blocks, copies and appends, and keeps what it has", Ability.FAULTS)
def _(bench: Bench) -> None:
    first, data = bench.first_block, bench.noise(4)
    stored = bench.store(tokens=20)
    bench.ok(namespaces.write_blocks(first, data))
    bench.device.inject("full", 1)
    bench.refused("CAPACITY_EXCEEDED", namespaces.write_blocks(first, bench.noise(4)))
    bench.device.inject("full", 1)
    bench.refused("CAPACITY_EXCEEDED", namespaces.copy_blocks([(first, 4)], first + 8))
    bench.device.inject("full")
    rows = bench.halves(2, 64, 64)
    bench.refused("CAPACITY_EXCEEDED", commands.kv_append(bench.session(), 0, 0, 0, 0, 0, rows))  # type: ignore[arg-type]
    bench.device.inject("full", 0, 0)
    holds_blocks(bench, first, data)
    bench.ok(append(stored, bench))


@check("SESSION_FORK", "a fork beyond the session's budget is refused, a shorter one is not", Ability.FAULTS)
def _(bench: Bench) -> None:
    stored, free = bench.store(tokens=128), bench.session()
    bench.device.open_again(session_bytes=4 * abi.PAGE_BYTES)
    bench.refused("CAPACITY_EXCEEDED", commands.session_fork(stored.number, free, 128))
    bench.refused("UNKNOWN_SESSION", commands.session_trim(free, 0))
    bench.ok(commands.session_fork(stored.number, free, 32))
    bench.device.open_again(session_bytes=0)
    bench.ok(commands.flush())
    holds(bench, stored)


@check("FLUSH", "flash that cannot be written is an error", FAULTS)
def _(bench: Bench) -> None:
    bench.store(tokens=64)
    bench.device.inject("power_cut")
    bench.refused("INTERNAL_ERROR", commands.flush())
    bench.device.lose_power()


@check("SESSION_ERASE", "flash that cannot be erased is an error, and the session is removed", FAULTS)
def _(bench: Bench) -> None:
    stored = bench.store(tokens=64)
    bench.ok(commands.flush())
    bench.device.inject("power_cut")
    bench.refused("INTERNAL_ERROR", commands.session_erase(stored.number))
    bench.refused("UNKNOWN_SESSION", commands.session_trim(stored.number, 0))
    bench.device.lose_power()


@check("FORMAT_NVM", "flash that cannot be written is an error", FAULTS)
def _(bench: Bench) -> None:
    bench.store(tokens=64)
    bench.device.inject("power_cut")
    bench.refused("INTERNAL_ERROR", admin.command(A.FORMAT_NVM, nsid=1), admin=True)
    bench.device.lose_power()


@check("SANITIZE", "a sanitize that fails says so until failure mode is left", FAULTS)
def _(bench: Bench) -> None:
    bench.store(tokens=64)
    bench.device.inject("power_cut")
    bench.refused("SANITIZE_FAILED", admin.sanitize(), admin=True)
    bench.same("the state", _sanitize_state(bench), 3)
    bench.ok(admin.command(A.SANITIZE, cdw10=1), admin=True)
    bench.same("the state", _sanitize_state(bench), 0)
    bench.device.lose_power()


def _sanitize_state(bench: Bench) -> int:
    page = bench.ok(admin.get_log_page(wire.LogPage.LOG_SANITIZE_STATUS, 512), admin=True).data
    return int(admin.decode(wire.SanitizeStatus, page)["sstat"]) & 7


def _in_flash(bench: Bench) -> int:
    """Write blocks that are in flash, and no longer in the write queue; returns the first of them."""
    bench.ok(namespaces.write_blocks(bench.first_block, bench.noise(64)))
    bench.ok(namespaces.write_blocks(0, bench.noise(1000)))
    bench.ok(commands.flush())
    return bench.first_block
