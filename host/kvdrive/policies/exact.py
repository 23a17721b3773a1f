"""Exact attention over every token: the default."""

from __future__ import annotations

from fractions import Fraction
from typing import ClassVar

from kvdrive.config.abilities import Ability
from kvdrive.errors import InputError
from kvdrive.policies.drive import DrivePolicy
from kvdrive.policies.parameters import EVERYTHING, Mask, Parameters
from kvdrive.policies.registry import POLICIES


class Exact(DrivePolicy):
    """Bit-identical to the golden model on every engine (docs/design/arithmetic.md)."""

    name: ClassVar[str] = "exact"
    provides: ClassVar[frozenset[Ability]] = DrivePolicy.provides | {Ability.EVERY_TOKEN, Ability.DRAFTS}
    sees_query: ClassVar[bool] = False

    def __init__(self, ratio: Fraction = Fraction(1)) -> None:
        if ratio != 1:
            others = ", ".join(name for name in POLICIES if name != self.name)
            raise InputError(f"exact attention has no compression ratio {ratio}: choose one of {others}")
        super().__init__(ratio)

    def parameters(self, tokens: int, head_dim: int, valid: Mask | None = None, pending: int = 0) -> Parameters:
        return EVERYTHING if valid is None else Parameters(valid=valid)

    def bytes_needed(self, tokens: int, head_dim: int, row_bytes: int) -> int:
        return 2 * tokens * row_bytes
