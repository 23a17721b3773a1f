"""The sequences of a server's context that are free. Where a model's cache cannot be kept on the drive, finished texts
stay in them, and the next turn of a conversation goes on there.
"""

from __future__ import annotations

from collections.abc import Sequence as Several

from kvdrive.llama.context import Sequence
from kvdrive.prefix.request import Request


class Places:
    """The free ones of `sequences`. `holds`: finished texts stay in them."""

    def __init__(self, sequences: Several[Sequence], *, holds: bool) -> None:
        self._free = list(sequences)
        self._holds = holds
        self._held: dict[int, str] = {}  # tenants of the texts that finished sequences hold, the oldest first

    @property
    def held(self) -> int:
        """Number of finished texts."""
        return len(self._held)

    def take(self, request: Request) -> Sequence:
        """A sequence that holds the beginning of a prompt, all of it and as much as possible; or an empty one."""
        known = [one for one in self._free if self._begins(one, request)]
        if known:
            sequence = max(known, key=lambda one: len(one.tokens))
        else:  # neighbours share a part of a call
            empty = [one for one in self._free if one.number not in self._held]
            sequence = min(empty, key=lambda one: one.number) if empty else self._empty_oldest()
        self._held.pop(sequence.number, None)
        self._free.remove(sequence)
        return sequence

    def put(self, sequence: Sequence, tenant: str) -> None:
        """A text has ended."""
        if self._holds:
            self._held[sequence.number] = tenant
        else:
            sequence.truncate(0)
        self._free.append(sequence)

    def drop(self, sequence: Sequence) -> None:
        """A text has failed."""
        sequence.truncate(0)
        self._free.append(sequence)

    def shrink(self, tokens: int) -> None:
        """Forget the oldest texts until at most `tokens` tokens are left."""
        while self._held and sum(len(one.tokens) for one in self._free) > tokens:
            self._held.pop(self._empty_oldest().number)

    def _begins(self, sequence: Sequence, request: Request) -> bool:
        """True if all of a finished text of the same tenant is the beginning of a prompt. It does not go back: a window
        may have moved on.
        """
        count = len(sequence.tokens)
        return (
            self._held.get(sequence.number) == request.tenant
            and count < len(request.prompt)
            and tuple(sequence.tokens) == request.prompt[:count]
        )

    def _empty_oldest(self) -> Sequence:
        number = next(iter(self._held))
        sequence = next(one for one in self._free if one.number == number)
        sequence.truncate(0)
        return sequence
