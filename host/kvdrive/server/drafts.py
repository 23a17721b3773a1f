"""Tokens that are drafted for a running sequence. The call that computes its next token verifies all of them.

A draft changes no token: the scheduler chooses each one from the model's logits as without drafts, and goes on as long
as what it chooses was drafted. So a sequence gets several tokens of one call, for one read of its K and V. Drafts that
are rarely right cost time; so a sequence drafts no more than it has credit for, and pauses without.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Sequence as Several
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from kvdrive.kvcache.seen import TOKENS_AT_ONCE

MOST = TOKENS_AT_ONCE - 1  # tokens of a draft: the model's own next token comes before them
FIRST = 3  # of a sequence's first draft, and the rejected tokens that it may begin with
WORTH = 2.0  # rejected tokens that an accepted one makes up for, where a call of several tokens takes little longer
RARE = 64  # tokens of a sequence that make up for a rejected one
_CREDIT = 12  # rejected tokens, the most that a sequence saves up for
_FARTHEST = 32  # tokens of a common past that are compared


class Source(Protocol):
    """Drafts for one sequence. `kind`: the option that asks for it."""

    @property
    def kind(self) -> str: ...

    def behind(self, tokens: Several[int], most: int) -> list[int]:
        """Up to `most` tokens that may come behind `tokens`, which go on with those of the last call."""


class Drafts:
    """What is drafted for one sequence, and how much.

    A rejected token takes credit. An accepted one gives some, and so does each token of the sequence, a little. No
    draft is longer than the credit. So of T tokens of a sequence, A of them accepted drafts, at most
    FIRST + worth * A + T / RARE drafted ones are rejected, whatever the text is. All of this counts tokens, so a
    sequence drafts alike on any machine. `worth`: rejected tokens that an accepted one makes up for.
    """

    def __init__(self, source: Source, worth: float = WORTH) -> None:
        self.kind = source.kind
        self._source = source
        self._length = FIRST
        self._worth = worth
        self._credit = FIRST * RARE  # in parts of a rejected token
        self._tokens: int | None = None

    def draft(self, tokens: Several[int], most: int) -> list[int]:
        """Up to `most` tokens that may come behind those of the sequence; none while it pauses."""
        self._earn(len(tokens) - (len(tokens) if self._tokens is None else self._tokens))
        self._tokens = len(tokens)
        most = min(most, self._length, self._credit // RARE)
        return self._source.behind(tokens, most) if most > 0 else []

    def seen(self, accepted: int, drafted: int) -> None:
        """So many of the tokens that were drafted last were accepted."""
        if not drafted:
            return
        self._length = min(2 * self._length, MOST) if accepted == drafted else max(accepted, 1)
        self._earn(int(RARE * self._worth * accepted) - RARE * (drafted - accepted))

    def _earn(self, credit: int) -> None:
        self._credit = min(self._credit + credit, RARE * _CREDIT)


MakeDrafts = Callable[[], Drafts | None]  # for a new sequence; None: nothing is drafted


def no_drafts() -> None:
    """Of a server that drafts nothing."""


def looked_up(size: int, worth: float = WORTH) -> MakeDrafts:
    """Those of `lookup`; 0: none. `worth`: see Drafts."""
    return (lambda: Drafts(Lookup(size), worth)) if size else no_drafts


class Lookup:
    """Drafts what came behind the last `size` tokens where they were in the sequence before, in prompt or answer.

    Of several such places, those with the longest common past count, and of these the last one.
    """

    kind = "lookup"

    def __init__(self, size: int) -> None:
        self._size = size
        self._known = np.empty(1024, np.int64)
        self._count = 0

    def behind(self, tokens: Several[int], most: int) -> list[int]:
        """See Source. A text that repeats itself at once is drafted beyond its end."""
        known, size = self._with(tokens), self._size
        ends = size + np.flatnonzero(known[size - 1 : -1] == known[-1])  # behind each place with the last token
        for back in range(2, min(_FARTHEST + 1, len(known))):
            longer = ends[ends >= back]
            longer = longer[known[longer - back] == known[-back]]
            if not len(longer):
                ends = ends if back > size else longer
                break
            ends = longer
        if not len(ends):
            return []
        first = int(ends[-1])
        period = len(known) - first
        return [int(known[first + place % period]) for place in range(most)]

    def _with(self, tokens: Several[int]) -> NDArray[np.int64]:
        """All tokens so far."""
        count = len(tokens)
        if count > len(self._known):
            self._known = np.concatenate([self._known, np.empty(count, np.int64)])
        self._known[self._count : count] = tokens[self._count :]
        self._count = count
        return self._known[:count]
