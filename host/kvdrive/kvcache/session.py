"""One sequence on a drive: what is appended to it, attended to and trimmed from it."""

from __future__ import annotations

from kvdrive import abi
from kvdrive.nvme.commands import (
    MAX_TOKENS_PER_APPEND,
    AttentionOutput,
    Halves,
    attention_result,
    attn_fetch,
    attn_submit,
    kv_append,
    session_trim,
)
from kvdrive.policies.base import EVERYTHING, Parameters
from kvdrive.targets.base import Target


class Session:
    """K and V of one sequence, all layers and heads, on `target`. It exists there from the first append on."""

    def __init__(self, target: Target, append_options: int = 0) -> None:
        self.target = target
        self.append_options = append_options
        self.number = target.new_session()
        self._sequence = 0

    def append(self, layer: int, kind: abi.KvKind, first_token: int, rows: Halves) -> None:
        """Append K or V rows [heads, tokens, d]; `first_token` is the number of tokens that are there already.

        Raises CommandError; commands before the failed one stay.
        """
        for start in range(0, rows.shape[1], MAX_TOKENS_PER_APPEND):
            part = rows[:, start : start + MAX_TOKENS_PER_APPEND]
            command = kv_append(
                self.number, layer, 0, kind, first_token + start, self._sequence, part, self.append_options
            )
            self.target.execute(command)
            self._sequence += 1

    def attend(
        self, layer: int, q: Halves, tokens: int, scale_log2e: int, how: Parameters = EVERYTHING
    ) -> AttentionOutput:
        """Attention of q [heads, g, d] over the first `tokens` tokens, exact by default.

        Raises CommandError.
        """
        command = attn_submit(
            self.number, layer, 0, q, tokens, scale_log2e, how.valid,
            mode=how.mode, r=how.r, k_top=how.k_top, local=how.local,
        )  # fmt: skip
        ticket = self.target.execute(command).result
        done = self.target.execute(attn_fetch(ticket, *q.shape))
        return attention_result(done.data, *q.shape)

    def trim(self, from_token: int) -> None:
        """Forget the tokens from `from_token` on; 0 forgets the session. Raises CommandError."""
        if self._sequence == 0:
            return
        self.target.execute(session_trim(self.number, from_token))
        if from_token == 0:
            self._sequence = 0
