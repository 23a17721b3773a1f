"""Inputs of the models that are results of the papers.

A claim whose number goes into its own prediction says nothing about the model: the ledger gives it the verdict "input".
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from kvdrive.study import stated


@dataclass(frozen=True)
class Input:
    """A number in `unit`, computed when it is read; `says` how it follows."""

    compute: Callable[[], float]
    unit: str
    says: str

    @property
    def value(self) -> float:
        """The number. The stated numbers that it follows from are read."""
        return self.compute()

    @property
    def claims(self) -> tuple[str, ...]:
        """The claims whose numbers it follows from."""
        with stated.watched() as claims:
            self.compute()
        return tuple(sorted(claims))

    def times(self, factor: float) -> Input:
        """The same, so many times as large."""
        return Input(lambda: factor * self.value, self.unit, self.says)
