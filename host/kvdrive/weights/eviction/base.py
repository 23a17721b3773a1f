"""What a policy is told, and what it is asked."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

Key = tuple[int, int]  # number of the module with experts, number of the expert


class Eviction(Protocol):
    """Chooses experts that leave memory. It changes what is read, never a result."""

    def used(self, key: Key) -> None:
        """A token has been routed to this expert, in memory or not."""

    def victim(self, among: Iterable[Key]) -> Key:
        """The one of these experts in memory, at least one, that leaves."""
