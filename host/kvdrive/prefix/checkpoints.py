"""Which tokens of a running sequence get a state of the layers in memory, and which of these stay.

A model with such layers continues a session behind all of its tokens only. So a sequence leaves a session behind at
each checkpoint: they share K and V, and each has a state of its own. All positions are numbers of tokens.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import TYPE_CHECKING

from kvdrive.kvcache.states import pack, unpack
from kvdrive.prefix import states
from kvdrive.prefix.context import Context
from kvdrive.prefix.record import Record

if TYPE_CHECKING:
    from kvdrive.kvcache.batch import Batch

BLOCKS = 4  # of the drive between two checkpoints at least
_LAST = 4  # tokens of a prompt behind its last checkpoint
_SHORT = 64  # tokens that are computed again rather than stored
_NEWEST = 2  # before the last one, which stay beside one in each doubling


def within(first: int, end: int, spacing: int) -> list[int]:
    """Where the computation of the tokens `first` to `end` - 1 stops for a checkpoint.

    These are `spacing` and its doublings, which prompts with the same beginning share, and the place before the last
    few tokens: the prompt may come again, or with an answer whose first token a tokenizer joins to its last one.
    """
    last = end - _LAST if end - first > _SHORT else first
    doublings = [spacing << power for power in range(max(end // spacing, 1).bit_length())]
    return sorted({stop for stop in (*doublings, last) if first < stop < end})


def is_due(tokens: int, spacing: int, state_bytes: int, bytes_per_token: int) -> bool:
    """True if a sequence that generates gets a checkpoint at `tokens`: at the `spacing`, doubled until K and V between
    two checkpoints take as many bytes as a state.
    """
    while spacing * bytes_per_token < state_bytes:
        spacing *= 2
    return tokens % spacing == 0


def surplus(older: Iterable[int], spacing: int) -> set[int]:
    """Those of the `older` checkpoints that go when there is a newer one: all but the first one in each doubling of
    `spacing` and the newest ones.
    """
    positions = sorted(set(older))
    first: dict[int, int] = {}
    for position in positions:
        first.setdefault((position // spacing).bit_length(), position)
    return set(positions) - set(first.values()) - set(positions[-_NEWEST:])


class Checkpoints:
    """Those of one running sequence, the only row of `batch`. `block`: tokens of a block."""

    def __init__(self, context: Context, batch: Batch, block: int) -> None:
        self._context = context
        self._batch = batch
        self._spacing = BLOCKS * block
        self._planned: list[int] = []

    def within(self, first: int, end: int) -> list[int]:
        """See `within`. The calls that follow end there."""
        self._planned = within(first, end, self._spacing)
        return self._planned

    def is_due(self, bytes_per_token: Callable[[], int]) -> bool:
        """True behind a call that ended at a checkpoint. `bytes_per_token` is asked for at few of them."""
        tokens, spacing = self._batch.length, self._spacing
        if tokens in self._planned:
            return True
        return tokens % spacing == 0 and is_due(tokens, spacing, len(pack(self._batch.others)), bytes_per_token())

    def restore(self, state: bytes) -> None:
        """Give the layers in memory, which are empty, a state that was stored. Raises ValueError."""
        unpack(state, self._batch.others, self._context.device())

    def put(self, record: Record, tokens: int) -> Record:
        """Store the state behind all `tokens` tokens. Returns the record that names it.

        Raises UnsupportedError, CommandError, TargetError.
        """
        queue, data = self._batch.sequences[0].slices[0].queue, pack(self._batch.others)
        state = self._context.making_room(lambda: states.put(queue, record, data, tokens))
        return replace(record, state=state)

    def withdraw(self, record: Record) -> None:
        """Remove a state that `put` stored and the index does not name."""
        assert record.state is not None
        self._context.stored.remove_state_at(self._batch.sequences[0].slices[0].queue, record.state, record.model)
