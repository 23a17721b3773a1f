"""Policy groups at a ratio of each KV head's own: `kvdrive calibrate` chose the ratios for one model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import ClassVar

from kvdrive import abi
from kvdrive.errors import InputError
from kvdrive.policies.choice import Choice, limit_of, read_choice
from kvdrive.policies.drive import DrivePolicy
from kvdrive.policies.exact import Exact
from kvdrive.policies.groups import Groups
from kvdrive.policies.parameters import Mask, Parameters


class Auto(DrivePolicy):
    """Reads as little as a calibration found with a KL divergence from exact attention below `kl`, in nats per token.

    `choice`: the ratios; None: those that `kvdrive calibrate` has stored for the model, which `fitted` reads.
    """

    name: ClassVar[str] = "auto"
    append_options: ClassVar[int] = abi.AppendOption.APPEND_GROUPS
    measures_unread: ClassVar[bool] = True

    def __init__(self, ratio: Fraction = Fraction(1), kl: str = "0.01", choice: Choice | None = None) -> None:
        if ratio != 1:
            raise InputError("auto attention has a ratio for each head: leave the ratio out")
        super().__init__(ratio)
        self.limit = limit_of(kl)
        self.choice = choice
        if choice is not None:
            known = {share: _policy(share, choice.unit) for row in choice.ratios for share in row}
            self._heads: list[list[DrivePolicy]] = [[known[share] for share in row] for row in choice.ratios]

    @property
    def label(self) -> str:
        return f"KL {self.limit}"

    @property
    def identity(self) -> str:
        return self.label if self.choice is None else f"{self.label}, {self.choice.identity}"

    def fitted(self, fingerprint: Callable[[], bytes]) -> Auto:
        return self if self.choice else Auto(kl=self.limit, choice=read_choice(fingerprint(), self.limit))

    def of_heads(self, layer: int, kv_heads: int) -> Sequence[DrivePolicy]:
        """See DrivePolicy. Raises InputError where the ratios are not for this model, or not known yet."""
        if self.choice is None:
            raise InputError("auto attention has no ratios yet: attach it to a model, or give it a choice")
        if layer >= len(self._heads) or len(self._heads[layer]) != kv_heads:
            raise InputError(f"the ratios of {self.label} are for other heads: run `kvdrive calibrate` again")
        return self._heads[layer]

    def parameters(self, tokens: int, head_dim: int, valid: Mask | None = None, pending: int = 0) -> Parameters:
        """Exact attention: heads that attend otherwise have a policy of their own, see `of_heads`."""
        return Parameters(valid=valid)

    def bytes_needed(self, tokens: int, head_dim: int, row_bytes: int) -> int:
        """See Policy: the mean over all heads."""
        heads = [policy for row in self._heads for policy in row] if self.choice else [Exact()]
        return round(sum(one.bytes_needed(tokens, head_dim, row_bytes) for one in heads) / len(heads))


def _policy(share: Fraction, unit: int) -> DrivePolicy:
    return Exact() if share == 1 else Groups(share, unit)
