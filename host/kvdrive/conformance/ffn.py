"""Checks of FFN_SUBMIT."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from kvdrive.conformance.bench import Bench, Halves, status_name, with_fields
from kvdrive.conformance.suite import check
from kvdrive.kernels.oracle import GoldenKernels
from kvdrive.nvme import namespaces, values, wire
from kvdrive.nvme.commands import Command
from kvdrive.nvme.ffn import Weights, ffn_fetch, ffn_result, ffn_submit
from kvdrive.nvme.wire import FfnActivation, FfnLayout

_MOST_TICKETS = 4096  # more than any drive is expected to keep
_ROWS = {1: FfnLayout.FFN_DOWN, 2: FfnLayout.FFN_UP_DOWN, 3: FfnLayout.FFN_GATE_UP_DOWN}


def stored_rows(bench: Bench, rows: Halves, offset: int = 0) -> Weights:
    """Rows [neurons, matrices, hidden] in a new value, from byte `offset` on."""
    key = bench.key()
    content = np.concatenate([np.zeros(offset, np.uint8), rows.reshape(-1).view(np.uint8)])
    bench.ok(values.store(key, content))
    return Weights(key, offset, _ROWS[rows.shape[1]], rows.shape[2], len(rows))


def ask(bench: Bench, command: Command, want: NDArray[np.uint32]) -> None:
    """Submit and fetch; y must have these bits."""
    tokens, hidden = want.shape
    found = bench.ok(ffn_fetch(bench.ok(command).result, tokens, hidden)).data
    bench.same("y", ffn_result(found, tokens, hidden).view(np.uint32), want)


def golden(rows: Halves, x: Halves | None, activation: int, given: Halves | None = None) -> NDArray[np.uint32]:
    """y of the golden model, binary32 patterns [tokens, hidden]."""
    found: NDArray[np.uint32] = GoldenKernels().ffn(x, rows, activation, given)
    return found


@check("FFN_SUBMIT", "neurons with down alone, with up and with gate give the golden model's bits")
def _(bench: Bench) -> None:
    for hidden, neurons, tokens in ((8, 1, 1), (64, 70, 3), (264, 33, 2)):
        x = bench.halves(tokens, hidden)
        for matrices in _ROWS:
            rows = (bench.halves(neurons, matrices, hidden) * np.float16(0.25)).astype(np.float16)
            weights = stored_rows(bench, rows, 34)
            if matrices == 3:
                for activation in (FfnActivation.FFN_RELU, FfnActivation.FFN_SILU):
                    ask(bench, ffn_submit(weights, x, activation), golden(rows, x, activation))
                continue
            given, inputs = bench.halves(tokens, neurons), x if matrices == 2 else None
            ask(bench, ffn_submit(weights, inputs, activations=given), golden(rows, inputs, 0, given))


@check("FFN_SUBMIT", "chosen neurons and whole experts give the golden model's bits")
def _(bench: Bench) -> None:
    rows, x = (bench.halves(90, 3, 72) * np.float16(0.25)).astype(np.float16), bench.halves(2, 72)
    chosen = np.flatnonzero(bench.rng.random(90) < 0.3)
    command = ffn_submit(stored_rows(bench, rows), x, FfnActivation.FFN_SILU, chosen=chosen)
    ask(bench, command, golden(rows[chosen], x, FfnActivation.FFN_SILU))
    key = bench.key()
    front = np.concatenate([rows[:, 0], rows[:, 1]]).reshape(-1)
    expert = np.concatenate([np.pad(front, (0, -front.size % 32)), rows[:, 2].T.reshape(-1)])
    bench.ok(values.store(key, expert.view(np.uint8)))
    command = ffn_submit(Weights(key, 0, FfnLayout.FFN_EXPERT, 72, 90), x, FfnActivation.FFN_SILU)
    ask(bench, command, golden(rows, x, FfnActivation.FFN_SILU))


@check("FFN_SUBMIT", "wrong fields, data, keys and lists are refused, and the next command gives its bits")
def _(bench: Bench) -> None:
    rows, x = bench.halves(8, 3, 64), bench.halves(1, 64)
    weights = stored_rows(bench, rows)
    command = ffn_submit(weights, x, FfnActivation.FFN_RELU)
    refused: list[tuple[str, dict[str, int]]] = [
        ("INVALID_FIELD", {"hidden": 0}),
        ("INVALID_FIELD", {"hidden": 60}),
        ("INVALID_FIELD", {"hidden": wire.MAX_FFN_HIDDEN + 8}),
        ("INVALID_FIELD", {"neurons": 0}),
        ("INVALID_FIELD", {"tokens": 0}),
        ("INVALID_FIELD", {"tokens": wire.MAX_FFN_TOKENS + 1}),
        ("INVALID_FIELD", {"layout": 0}),
        ("INVALID_FIELD", {"layout": 5}),
        ("INVALID_FIELD", {"layout": FfnLayout.FFN_EXPERT | wire.FFN_LISTED}),
        ("INVALID_FIELD", {"layout": FfnLayout.FFN_UP_DOWN}),
        ("INVALID_FIELD", {"activation": 3}),
        ("INVALID_FIELD", {"activation": FfnActivation.FFN_GIVEN}),
        ("INVALID_FIELD", {"key_bytes": 17}),
        ("INVALID_KEY_SIZE", {"key_bytes": 0}),
        ("KEY_DOES_NOT_EXIST", {"key_bytes": 3}),
        ("INVALID_VALUE_SIZE", {"offset": 2}),
        ("INVALID_VALUE_SIZE", {"offset": 0xFFFFFFFF}),
        ("INVALID_VALUE_SIZE", {"neurons": 9}),
        ("CRC_MISMATCH", {"crc32c": 0}),
        ("DATA_LENGTH", {"tokens": 2}),
    ]
    for status, fields in refused:  # the length of the data follows from some of the fields
        bench.refused(status, with_fields(command, wire.FfnSubmit, **fields), also="DATA_LENGTH")
    for chosen in ([3, 3], [4, 2]):
        bench.refused("INVALID_FIELD", ffn_submit(weights, x, FfnActivation.FFN_RELU, chosen=np.array(chosen)))
    bench.refused("INVALID_VALUE_SIZE", ffn_submit(weights, x, FfnActivation.FFN_RELU, chosen=np.array([2, 8])))
    ask(bench, command, golden(rows, x, FfnActivation.FFN_RELU))


@check("FFN_SUBMIT", "a result is that of the value when it was asked for; more than the drive keeps are refused")
def _(bench: Bench) -> None:
    rows, given = bench.halves(4, 1, 64), bench.halves(1, 4)
    weights = stored_rows(bench, rows)
    command = ffn_submit(weights, None, activations=given)
    tickets: list[int] = []
    try:
        while (done := bench.send(command)).status == 0 and len(tickets) < _MOST_TICKETS:
            tickets.append(done.result)
        if len(tickets) < _MOST_TICKETS:
            bench.same("the status of one more", status_name(done.status), "TICKETS_EXHAUSTED")
        bench.ok(values.store(weights.key, np.zeros(rows.nbytes, np.uint8)))
        found = ffn_result(bench.ok(ffn_fetch(tickets.pop(), 1, 64)).data, 1, 64)
        bench.same("y", found.view(np.uint32), golden(rows, None, 0, given))
    finally:
        for ticket in tickets:
            bench.device.send(ffn_fetch(ticket, 1, 64))


@check("FFN_SUBMIT", "an infinity, or an activation beyond binary16, ends the ticket without data")
def _(bench: Bench) -> None:
    rows, x = bench.halves(4, 3, 64), bench.halves(1, 64)
    weights = stored_rows(bench, rows)
    x[0, 5] = np.inf
    for wrong in (x, np.full((1, 64), 60000, np.float16)):
        fetch = ffn_fetch(bench.ok(ffn_submit(weights, wrong, FfnActivation.FFN_RELU)).result, 1, 64)
        bench.refused("VALUE_NOT_FINITE", fetch)
        bench.refused("UNKNOWN_TICKET", fetch)


@check("FFN_SUBMIT", "it does not run while its program is off")
def _(bench: Bench) -> None:
    rows, given = bench.halves(4, 1, 64), bench.halves(1, 4)
    command = ffn_submit(stored_rows(bench, rows), None, activations=given)
    bench.ok(namespaces.activate_program(wire.Program.PROGRAM_FFN, False), admin=True)
    try:
        bench.refused("PROGRAM_NOT_ACTIVATED", command)
    finally:
        bench.ok(namespaces.activate_program(wire.Program.PROGRAM_FFN, True), admin=True)
    ask(bench, command, golden(rows, None, 0, given))
