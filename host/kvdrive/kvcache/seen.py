# SPDX-License-Identifier: Apache-2.0
"""Which tokens each token of a call may attend to, and which tokens of a call can share a command."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache

import numpy as np
import torch
from numpy.typing import NDArray

from kvdrive import abi
from kvdrive.errors import UnsupportedError

TOKENS_AT_ONCE = 8  # of a call of the model, that share a command at most
HIDDEN = -(2**31)  # the score of an inline token that a query does not see: its probability is 0
LOWEST_MAX = (HIDDEN >> abi.SCORE_FRACTION_BITS) + abi.P_FRACTION_BITS + 2  # with a maximum from here on


@dataclass(frozen=True)
class Seen:
    """The tokens that one command attends to: those on the drive, their validity (None: all), and inline tokens.

    `inline`: positions of the inline tokens, counted from `stored`. `hidden` bool [tokens, inline]: True where a token
    does not see an inline token; None where every token sees all.
    """

    stored: int
    valid: NDArray[np.bool_] | None
    inline: NDArray[np.intp]
    hidden: NDArray[np.bool_] | None

    def without_first(self, tokens: int) -> Seen:
        """The same without the first `tokens` tokens on the drive."""
        valid = np.ones(self.stored, np.bool_) if self.valid is None else self.valid.copy()
        valid[:tokens] = False
        return replace(self, valid=valid)


def blocks(new_tokens: int, group: int, together: bool) -> Iterator[range]:
    """Split a call's tokens into parts that share a command, and so a read of K and V: up to TOKENS_AT_ONCE of them, as
    far as a command takes so many query heads for each KV head.
    """
    sizes = _sizes(group) if together else (1,)
    first = 0
    while first < new_tokens:
        size = max((size for size in sizes if size <= new_tokens - first), default=1)
        yield range(first, first + size)
        first += size


@cache
def _sizes(group: int) -> tuple[int, ...]:
    """How many tokens may share a command."""
    return tuple(size for size in range(1, TOKENS_AT_ONCE + 1) if size * group in abi.COMMAND_GROUPS)


def seen_by(
    mask: torch.Tensor | None, row: int, part: range, first_token: int, stored: int
) -> Iterator[tuple[range, Seen]]:
    """What the tokens `part` of a call see: one item for all, or one per token if the mask differs on the drive.

    The call's first token is number `first_token`; `stored` tokens are on the drive. Raises UnsupportedError for masks
    that the drive cannot apply.
    """
    stored = min(stored, first_token + part[0] + 1)
    if mask is None and len(part) == 1:  # every decode step of every layer
        yield part, Seen(stored, None, np.arange(first_token + part[0] + 1 - stored), None)
        return
    masks = [_allowed(mask, row, token, first_token + token + 1) for token in part]
    valid = None
    if any(one is not None for one in masks):  # without a mask, skip work that grows with the context
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
