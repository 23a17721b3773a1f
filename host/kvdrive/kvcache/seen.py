# SPDX-License-Identifier: Apache-2.0
"""What the tokens of a call may attend to, and which of them can ask the drive together."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from kvdrive import abi
from kvdrive.errors import UnsupportedError

HIDDEN = -(2**31)  # the score of an inline token that a query does not see: its probability is 0
LOWEST_MAX = (HIDDEN >> abi.SCORE_FRACTION_BITS) + abi.P_FRACTION_BITS + 2  # with a maximum from here on


@dataclass(frozen=True)
class Seen:
    """What tokens that ask together see: tokens on the drive, their validity (None: all), and inline tokens.

    `inline`: places, counted from `stored`, of the tokens that a command brings along. `hidden` bool [tokens, inline]:
    which of them a token does not see, None where every token sees all.
    """

    stored: int
    valid: NDArray[np.bool_] | None
    inline: NDArray[np.intp]
    hidden: NDArray[np.bool_] | None


def blocks(new_tokens: int, group: int, together: bool) -> Iterator[range]:
    """The tokens of a call in the parts that ask together: as many as one call of a kernel takes for one KV head."""
    sizes = range(1, abi.MAX_GROUP // group + 1) if together else [1]
    first = 0
    while first < new_tokens:
        size = max((size for size in sizes if size <= new_tokens - first), default=1)
        yield range(first, first + size)
        first += size


def seen_by(
    mask: torch.Tensor | None, row: int, part: range, first_token: int, stored: int
) -> Iterator[tuple[range, Seen]]:
    """What the tokens `part` of a call see: together, or one by one where the mask tells them apart on the drive.

    The call's first token is number `first_token`; `stored` tokens are on the drive. Raises UnsupportedError for masks
    that the drive cannot follow.
    """
    stored = min(stored, first_token + part[0] + 1)
    masks = [_allowed(mask, row, token, first_token + token + 1) for token in part]
    valid = None
    if any(one is not None for one in masks):  # without a mask, nothing here takes as long as the context
        dense = np.array([np.ones(stored, np.bool_) if one is None else one[:stored] for one in masks])
        if (dense[1:] != dense[0]).any():
            for token in part:
                yield from seen_by(mask, row, range(token, token + 1), first_token, stored)
            return
        valid = None if dense[0].all() else dense[0]
    beyond = np.zeros((len(part), first_token + part[-1] + 1 - stored), np.bool_)
    for visible, one, token in zip(beyond, masks, part, strict=True):
        visible[: first_token + token + 1 - stored] = True if one is None else one[stored:]
    inline = np.flatnonzero(beyond.any(axis=0))
    hidden = ~beyond[:, inline]
    yield part, Seen(stored, valid, inline, hidden if hidden.any() else None)


def _allowed(mask: torch.Tensor | None, row: int, token: int, tokens: int) -> NDArray[np.bool_] | None:
    """Row `token` of the mask [batch, 1, q, tokens] as bool [tokens]; None where every token counts."""
    if mask is None:
        return None
    if mask.dtype != torch.bool or mask.shape[1] != 1:
        raise UnsupportedError("only boolean masks that are the same for all heads can go to the drive")
    allowed: NDArray[np.bool_] = mask[row if mask.shape[0] > 1 else 0, 0, token].cpu().numpy()
    if allowed[tokens:].any():
        raise UnsupportedError("the mask lets a token attend to later ones: the drive serves causal models only")
    return None if allowed[:tokens].all() else allowed[:tokens]
