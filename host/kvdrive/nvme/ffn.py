"""FFN_SUBMIT: feed-forward parts whose weights are values of namespace 4, computed in the drive."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kvdrive import abi
from kvdrive._native import crc32c
from kvdrive.nvme import wire
from kvdrive.nvme.commands import Command
from kvdrive.nvme.wire import FfnActivation, FfnLayout

Bytes = NDArray[np.uint8]
Halves = NDArray[np.float16]
_HALF_KEY = 8  # bytes of a key in each of the entry's two places


@dataclass(frozen=True)
class Weights:
    """Binary16 weights in a value: they begin at byte `offset` of the value `key` and lie there as `layout` says.

    `hidden`: numbers of x and of y. `neurons`: how many there are.
    """

    key: bytes
    offset: int
    layout: FfnLayout
    hidden: int
    neurons: int


def ffn_submit(
    weights: Weights,
    x: Halves | None,
    activation: FfnActivation = FfnActivation.FFN_GIVEN,
    activations: Halves | None = None,
    chosen: NDArray[np.integer] | None = None,
) -> Command:
    """FFN_SUBMIT: y = down(activation * up(x)) over the neurons `chosen`, ascending; None: over all of them.

    x [tokens, hidden] float16, None for the layout FFN_DOWN; activations [tokens, neurons] float16 of the chosen
    neurons, for FFN_GIVEN. The result is a ticket for `ffn_fetch`. At most wire.MAX_FFN_TOKENS tokens.
    """
    given = x if x is not None else activations
    assert given is not None, "x or activations say how many tokens there are"
    parts = []
    if chosen is not None:
        parts.append(_whole_beats(np.asarray(chosen, np.uint16)))
    if activations is not None:
        parts.append(_whole_beats(activations))
    if x is not None:
        parts.append(np.ascontiguousarray(x).reshape(-1).view(np.uint8))
    data = np.concatenate(parts)
    entry = np.zeros((), wire.FfnSubmit)
    entry["opcode"], entry["nsid"], entry["offset"] = abi.Opcode.FFN_SUBMIT, abi.Namespace.CP, weights.offset
    padded = np.frombuffer(weights.key[: wire.MAX_KEY_BYTES].ljust(wire.MAX_KEY_BYTES, b"\0"), np.uint8)
    entry["key_low"], entry["key_high"] = padded[:_HALF_KEY], padded[_HALF_KEY:]
    entry["key_bytes"], entry["hidden"], entry["tokens"] = len(weights.key), weights.hidden, len(given)
    entry["neurons"] = weights.neurons if chosen is None else len(chosen)
    entry["layout"] = weights.layout | (wire.FFN_LISTED if chosen is not None else 0)
    entry["activation"], entry["crc32c"] = activation, crc32c(data)
    return Command(entry.tobytes(), data)


def ffn_fetch(ticket: int, tokens: int, hidden: int) -> Command:
    """ATTN_FETCH for the ticket of an FFN_SUBMIT; `ffn_result` reads its data."""
    entry = np.zeros((), abi.AttnFetch)
    size = tokens * hidden * 4
    entry["opcode"], entry["nsid"] = abi.Opcode.ATTN_FETCH, abi.Namespace.CP
    entry["ticket"], entry["data_bytes"] = ticket, size
    return Command(entry.tobytes(), room=size)


def ffn_result(data: Bytes, tokens: int, hidden: int) -> NDArray[np.float32]:
    """y [tokens, hidden] of a successful `ffn_fetch`."""
    return data.view(np.float32).reshape(tokens, hidden)


def _whole_beats(array: NDArray[np.uint16] | Halves) -> Bytes:
    content = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    return np.pad(content, (0, -content.size % abi.BEAT_BYTES))
