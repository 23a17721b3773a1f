"""The part of one sequence that one drive holds. It can be appended to, attended to, forked and trimmed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from kvdrive import abi
from kvdrive.kvcache.rows_at_once import in_rows, singly
from kvdrive.nvme.commands import (
    MAX_TOKENS_PER_APPEND,
    AttentionOutput,
    Halves,
    attention_query,
    attention_result,
    kv_append,
    kv_read,
    result_bytes,
    session_erase,
    session_fork,
    session_remove,
    session_trim,
    stored_rows,
)
from kvdrive.nvme.rows import bytes_of_row, command_options, format_of, tokens_per_group
from kvdrive.nvme.wire import RowFormat
from kvdrive.policies.parameters import EVERYTHING, Parameters
from kvdrive.targets.base import Target

OWN_LAYERS = 0xC000  # from here on layers hold what a session says of itself, always in binary16; no model has them
LABEL_LAYER = 0xFFFF
LABEL_BYTES = abi.HEAD_DIM_STEP
_IN_FLIGHT = 64  # submissions before their results are fetched; a drive keeps a limited number of them


class Session:
    """K and V of consecutive KV heads of one sequence, in all layers, on `target`.

    It exists there from the first append on; `number` is its name on the drive. `append_options`: see nvme.rows.joined.
    """

    def __init__(self, target: Target, append_options: int = 0) -> None:
        self.target = target
        self.append_options = append_options
        self.number = target.new_session()
        self._exists = False
        self._sequence = 0

    def append(self, layer: int, kind: abi.KvKind, first_token: int, rows: Halves) -> None:
        """Append K or V rows [heads, tokens, d]; `first_token` is the number of tokens that are there already.

        Raises CommandError; commands before the failed one stay.
        """
        options = self.append_options if layer < OWN_LAYERS else command_options(self.append_options)
        for start, part in self.parts(layer, rows):
            command = kv_append(self.number, layer, 0, kind, first_token + start, self._sequence, part, options)
            self.target.execute(command)
            self._exists = True
            self._sequence += 1

    def stored_as(self, layer: int) -> RowFormat:
        """The format of a layer's rows."""
        return format_of(self.append_options) if layer < OWN_LAYERS else RowFormat.BINARY16

    def parts(self, layer: int, rows: Halves) -> list[tuple[int, Halves]]:
        """Rows [heads, tokens, d] of a layer as the commands of `append` carry them, each with its first token."""
        at_once = _tokens_at_once(rows, self.target.max_transfer_bytes, self.stored_as(layer))
        return [(start, rows[:, start : start + at_once]) for start in range(0, rows.shape[1], at_once)]

    def read(
        self, layer: int, kind: abi.KvKind, first_token: int, shape: tuple[int, int, int], head: int = 0
    ) -> Halves:
        """Rows of `shape` (heads, tokens, d), as they were appended, of the heads from `head` on. Raises
        CommandError.
        """
        heads, tokens, head_dim = shape
        stored_as = self.stored_as(layer)
        at_once = min(tokens, max(1, self.target.max_transfer_bytes // (heads * bytes_of_row(stored_as, head_dim))))
        parts = []
        for start in range(0, tokens, at_once):
            part = (heads, min(at_once, tokens - start), head_dim)
            command = kv_read(self.number, layer, head, kind, first_token + start, part, stored_as)
            parts.append(stored_rows(self.target.execute(command), part, stored_as))
        return np.concatenate(parts, axis=1) if len(parts) > 1 else parts[0]

    def attend(
        self, layer: int, q: Halves, tokens: int, scale_log2e: int, how: Parameters = EVERYTHING
    ) -> AttentionOutput:
        """Attention of q [heads, g, d] over the first `tokens` tokens, exact by default. Raises CommandError."""
        return attend(self.target, [Query(self, layer, q, tokens, scale_log2e, how)])[0]

    def trim(self, from_token: int) -> None:
        """Remove the tokens from `from_token` on; 0 removes the session. Raises CommandError."""
        if not self._exists:
            return
        self.target.execute(session_trim(self.number, from_token))
        if from_token == 0:
            self._exists = False
            self._sequence = 0

    def remove(self, removed: range, before: int, layers: int) -> None:
        """Remove the tokens `removed`, whole groups behind the first one, from the layers below `layers`.

        `before`: tokens that these layers have. Raises CommandError.
        """
        self.target.execute(session_remove(self.number, removed, before, layers))

    def erase(self) -> None:
        """Remove the session and erase its bytes from the drive's file. Raises CommandError."""
        if self._exists:
            self.target.execute(session_erase(self.number))
            self._exists = False
            self._sequence = 0

    def fork(self, tokens: int = abi.MAX_TOKENS) -> Session:
        """A new session that begins with the first `tokens` tokens; the drive copies nothing. Raises CommandError."""
        copy = Session(self.target, self.append_options)
        if self._exists:
            self.target.execute(session_fork(self.number, copy.number, tokens))
            copy._exists = True
        return copy

    def put_label(self, label: bytes) -> None:
        """Store LABEL_BYTES bytes with the session, for as long as it exists. Raises CommandError."""
        row = np.frombuffer(label, np.uint8).astype(np.float16).reshape(1, 1, LABEL_BYTES)
        self.append(LABEL_LAYER, abi.KvKind.VALUES, 0, row)

    def label(self) -> bytes:
        """The bytes that `put_label` stored. Raises CommandError."""
        return self.read(LABEL_LAYER, abi.KvKind.VALUES, 0, (1, 1, LABEL_BYTES)).astype(np.uint8).tobytes()

    @classmethod
    def existing(cls, target: Target, number: int, append_options: int) -> Session:
        """A session that an earlier process left on the drive. It can be forked, read and trimmed, not appended to."""
        session = cls.__new__(cls)
        session.target = target
        session.append_options = append_options
        session.number = number
        session._exists = True
        session._sequence = 0
        return session


@dataclass(frozen=True)
class Query:
    """One ATTN_SUBMIT: q [heads, g, d] of the session's heads from `head` on, over its first `tokens` tokens.

    `inline_scores` int32 [heads, g, n] and `inline_v` float16 [heads, n, d]: inline tokens.
    """

    session: Session
    layer: int
    q: Halves
    tokens: int
    scale_log2e: int
    how: Parameters = field(default=EVERYTHING)
    head: int = 0
    inline_scores: NDArray[np.int32] | None = None
    inline_v: Halves | None = None


def _tokens_at_once(rows: Halves, room: int, stored_as: RowFormat) -> int:
    """Tokens of rows [heads, tokens, d] that one append carries: whole groups where the target's limit allows them."""
    heads, _, head_dim = rows.shape
    fit: int = min(MAX_TOKENS_PER_APPEND, max(1, room // (heads * bytes_of_row(stored_as, head_dim))))
    group = tokens_per_group(stored_as, head_dim)
    return fit // group * group or fit


def attend(target: Target, queries: Sequence[Query]) -> list[AttentionOutput]:
    """Execute all queries, whose sessions are on `target`: several in one command where the target takes them.

    Raises CommandError, after it has fetched the results of the other queries, so that none stays on the drive.
    """
    results: list[AttentionOutput] = []
    for start in range(0, len(queries), _IN_FLIGHT):
        results += _attend_together(target, queries[start : start + _IN_FLIGHT])
    return results


def _attend_together(target: Target, queries: Sequence[Query]) -> list[AttentionOutput]:
    asked = [
        attention_query(
            one.session.number, one.layer, one.head, one.q, one.tokens, one.scale_log2e, one.how.valid,
            mode=one.how.mode, r=one.how.r, k_top=one.how.k_top, local=one.how.local,
            inline_scores=one.inline_scores, inline_v=one.inline_v,
        )
        for one in queries
    ]  # fmt: skip
    shapes = [(*one.q.shape, one.how.mode) for one in queries]
    sizes = [result_bytes(*shape) for shape in shapes]
    answers = in_rows(target, asked, sizes) if len(asked) > 1 else None
    if answers is None:
        answers = singly(target, asked, sizes)
    return [attention_result(data, *shape) for data, shape in zip(answers, shapes, strict=True)]
