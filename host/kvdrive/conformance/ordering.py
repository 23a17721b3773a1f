"""Checks of commands that are in flight together, in one queue and in two."""

from __future__ import annotations

import threading
from collections.abc import Sequence

import numpy as np

from kvdrive import abi
from kvdrive.conformance.bench import Bench, MismatchError, Stored, status_name, with_fields
from kvdrive.conformance.blocks import holds_blocks
from kvdrive.conformance.device import Ability
from kvdrive.conformance.queries import Query, compare, exact, holds
from kvdrive.conformance.sessions import SPARSE
from kvdrive.conformance.suite import check
from kvdrive.nvme import commands, namespaces
from kvdrive.nvme.commands import Command
from kvdrive.nvme.completions import Completion

_ROUNDS = 6
_FIRST_OF_PAIR, _SECOND_OF_PAIR = 1, 2  # flags of a fused operation
_PRP, _SGL = 0, 1 << 6  # flags: the way of the data pointer
_NOWHERE = 1 << 62  # an address that no host's memory has


def together(bench: Bench, here: Sequence[Command], beside: Sequence[Command]) -> list[Completion]:
    """Execute commands through two queues at the same time, those of each in flight together."""
    found: dict[bool, list[Completion]] = {}
    failures: list[Exception] = []

    def run(second: bool, queued: Sequence[Command]) -> None:
        try:
            found[second] = bench.device.send_many(queued, second=second)
        except Exception as error:  # raised in the caller's thread
            failures.append(error)

    thread = threading.Thread(target=run, args=(True, beside))
    thread.start()
    run(False, here)
    thread.join()
    if failures:
        raise failures[0]
    return [bench.note(*pair) for pair in zip([*here, *beside], found[False] + found[True], strict=True)]


def all_ok(bench: Bench, sent: Sequence[Command], completions: Sequence[Completion]) -> None:
    """Every command of `sent` has succeeded."""
    for command, completion in zip(sent, completions, strict=True):
        bench.same(f"the status of opcode {command.opcode:#04x}", status_name(completion.status), "SUCCESS")


def more(bench: Bench, stored: Stored, tokens: int, options: int = 0) -> list[Command]:
    """Appends of random tokens to a session, one for K and one for V, which count as executed."""
    heads, first, d = stored.k.shape
    made = []
    for kind in abi.KvKind:
        rows = bench.halves(heads, tokens, d)
        made.append(commands.kv_append(stored.number, 0, 0, kind, first, stored.sequence, rows, options))
        stored.sequence += 1
        if kind == abi.KvKind.KEYS:
            stored.k = np.concatenate([stored.k, rows], axis=1)
        else:
            stored.v = np.concatenate([stored.v, rows], axis=1)
    return made


@check("KV_APPEND", "what one queue has appended, queries and appends of another one see")
def _(bench: Bench) -> None:
    stored = bench.store(tokens=60, options=SPARSE)
    for number in range(_ROUNDS):
        for command in more(bench, stored, 7, SPARSE):
            all_ok(bench, [command], bench.device.send_many([command], second=number % 2 == 0))
        query = exact(bench, stored)
        (submitted,) = bench.device.send_many([query.submit(stored.number)], second=number % 2 == 1)
        fetch = query.fetch(submitted.result)
        (fetched,) = bench.device.send_many([fetch], second=number % 2 == 1)
        all_ok(bench, [query.submit(stored.number), fetch], [submitted, fetched])
        compare(bench, stored, query, fetched.data)
    holds(bench, stored)


@check("KV_APPEND", "of appends in flight together, one that overtakes is refused, and sent again it is executed")
def _(bench: Bench) -> None:
    stored = bench.store(tokens=40)
    left = [command for _ in range(_ROUNDS) for command in more(bench, stored, 3)]
    while left:
        completions = together(bench, left[::2], left[1::2])
        sent = [*left[::2], *left[1::2]]
        refused = {"OUT_OF_SEQUENCE", "TOKEN_GAP"}
        names = [status_name(one.status) for one in completions]
        if "SUCCESS" not in names or not set(names) <= {"SUCCESS", *refused}:
            raise MismatchError(f"appends in flight together answered {', '.join(sorted(set(names)))}")
        again = {id(one) for one, name in zip(sent, names, strict=True) if name != "SUCCESS"}
        left = [one for one in left if id(one) in again]
    holds(bench, stored)


@check("ATTN_SUBMIT", "a query over the first tokens has the same bits while others are appended")
def _(bench: Bench) -> None:
    stored = bench.store(tokens=100)
    for number in range(_ROUNDS):
        query = exact(bench, stored)
        before = Stored(stored.number, stored.k, stored.v)
        appends = more(bench, stored, 20)
        submit = query.submit(stored.number)
        here, beside = ([submit], appends[:1]) if number % 2 else ([submit, appends[0]], [])
        completions = together(bench, here, beside)
        all_ok(bench, [*here, *beside], completions)
        compare(bench, before, query, bench.ok(query.fetch(completions[0].result)).data)
        bench.ok(appends[1])
    holds(bench, stored)


@check("ATTN_SUBMIT", "a trim, an erase and an append after its completion do not change its result")
def _(bench: Bench) -> None:
    stored = bench.store(tokens=100)
    query = exact(bench, stored)
    before = Stored(stored.number, stored.k, stored.v)
    tickets = [bench.ok(query.submit(stored.number)).result for _ in range(3)]
    appends = more(bench, stored, 9)
    for change in ([*appends], [commands.session_trim(stored.number, 30)], [commands.session_erase(stored.number)]):
        all_ok(bench, change, [bench.note(one, *bench.device.send_many([one], second=True)) for one in change])
        compare(bench, before, query, bench.ok(query.fetch(tickets.pop())).data)


@check("SESSION_FORK", "a fork has exactly its tokens while others are appended to the session")
def _(bench: Bench) -> None:
    for number, options in enumerate((0, SPARSE) * (_ROUNDS // 2)):
        stored = bench.store(tokens=90, options=options)
        fork = Stored(bench.session(), stored.k[:, :70], stored.v[:, :70], 0)
        forking = commands.session_fork(stored.number, fork.number, 70)
        appends = more(bench, stored, 33, options)
        here, beside = ([forking], appends[:1]) if number % 2 else ([appends[0], forking], [])
        all_ok(bench, [*here, *beside], together(bench, here, beside))
        bench.ok(appends[1])
        holds(bench, fork)
        holds(bench, stored)
        bench.extend(fork, 5, options)
        holds(bench, fork)


@check("FLUSH", "flushes and appends of two queues in flight together all succeed")
def _(bench: Bench) -> None:
    stored = bench.store(tokens=40)
    for _ in range(_ROUNDS):
        appends = more(bench, stored, 40)
        for append in appends:
            sent = [append], [commands.flush(), commands.flush()]
            all_ok(bench, [*sent[0], *sent[1]], together(bench, *sent))
    holds(bench, stored)


@check("FLUSH", "through another queue it makes durable what was completed before", Ability.POWER)
def _(bench: Bench) -> None:
    stored, data = bench.store(tokens=100, options=SPARSE), bench.noise(3)
    bench.ok(namespaces.write_blocks(bench.first_block, data))
    all_ok(bench, [commands.flush()], bench.device.send_many([commands.flush()], second=True))
    bench.device.lose_power()
    holds(bench, stored)
    holds_blocks(bench, bench.first_block, data)


@check("COMPARE", "a fused compare and write are both refused, and nothing is written", Ability.RAW)
def _(bench: Bench) -> None:
    first, before = bench.first_block, bench.noise(1)
    bench.ok(namespaces.write_blocks(first, before))
    pair = [
        with_fields(namespaces.compare_blocks(first, before), flags=_FIRST_OF_PAIR),
        with_fields(namespaces.write_blocks(first, bench.noise(1)), flags=_SECOND_OF_PAIR),
    ]
    completions = [bench.note(*each) for each in zip(pair, bench.device.send_many(pair), strict=True)]
    bench.same("the statuses", [status_name(one.status) for one in completions], ["INVALID_FIELD"] * 2)
    holds_blocks(bench, first, before)


@check(
    "KV_APPEND", "fused with another command it is refused and changes nothing, as every other command is", Ability.RAW
)
def _(bench: Bench) -> None:
    stored, ended = bench.store(tokens=50), bench.store(tokens=50)
    rows = bench.halves(2, 3, 64)
    query = Query(bench.halves(2, 1, 64), 50)
    changing = [
        commands.kv_append(stored.number, 0, 0, abi.KvKind.KEYS, 50, 2, rows),
        commands.session_trim(stored.number, 0),
        commands.session_erase(stored.number),
        commands.session_fork(stored.number, bench.session(), 20),
        query.submit(stored.number),
        namespaces.read_blocks(bench.first_block, 1),
    ]
    for flags in (_FIRST_OF_PAIR, _SECOND_OF_PAIR):
        for command in changing:
            bench.refused("INVALID_FIELD", with_fields(command, flags=flags))
    holds(bench, stored)
    holds(bench, ended)


@check("READ", "a data pointer beyond the host's memory is an error, and nothing is moved", Ability.POINTERS)
def _(bench: Bench) -> None:
    data = bench.noise(1)
    bench.ok(namespaces.write_blocks(bench.first_block, data))
    for command in (namespaces.read_blocks(bench.first_block, 1), namespaces.write_blocks(bench.first_block, data)):
        for flags in (_PRP, _SGL):
            # Without data of their own the commands keep this pointer; dword 8 is the length of an SGL's block.
            without_data = Command(command.entry)
            pointing = with_fields(without_data, flags=flags, prp1=_NOWHERE, prp2=data.size if flags else 0)
            bench.refused("DATA_TRANSFER", pointing)
    holds_blocks(bench, bench.first_block, data)


@check("WRITE", "a drive that was opened read-only refuses every change, and answers queries and reads", Ability.FAULTS)
def _(bench: Bench) -> None:
    stored, data = bench.store(tokens=50), bench.noise(2)
    bench.ok(namespaces.write_blocks(bench.first_block, data))
    bench.ok(commands.flush())
    refused = [
        namespaces.write_blocks(bench.first_block, bench.noise(1)),
        namespaces.write_zeroes(bench.first_block, 1),
        commands.kv_append(stored.number, 0, 0, abi.KvKind.KEYS, 50, 2, bench.halves(2, 3, 64)),
        commands.session_trim(stored.number, 10),
        commands.session_erase(stored.number),
        commands.session_fork(stored.number, bench.session(), 10),
    ]
    bench.device.open_again(read_only=True)
    try:
        for command in refused:
            bench.refused("NAMESPACE_WRITE_PROTECTED", command)
        holds(bench, stored)
        holds_blocks(bench, bench.first_block, data)
    finally:
        bench.device.open_again()
    holds(bench, stored)
