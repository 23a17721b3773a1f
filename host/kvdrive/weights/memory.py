"""The memory that a model needs with its experts on flash, and how many of them fit into a budget."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

import torch

from kvdrive.errors import InputError
from kvdrive.weights.manifest import Manifest

_ROUND = 64  # experts that are computed together at most when they are converted first


@dataclass(frozen=True)
class Need:
    """Bytes in memory. `whole`: all weights; `resident`: those outside the experts; `slot`: one more expert.

    `converted`: what an expert of a round takes beside its slot, 0 where it is computed in the stored precision.
    `experts_at_once`: of a round. `least`: experts that one token needs.
    """

    whole: int
    resident: int
    slot: int
    converted: int
    experts: int
    experts_at_once: int
    least: int

    @property
    def minimum(self) -> int:
        """The least memory with which the model runs."""
        return self.resident + self.least * (self.slot + self.converted)

    def slots_in(self, budget: int | Fraction | Literal["auto"]) -> int:
        """Experts in memory within a budget (`bytes_in`). Raises InputError."""
        limit = bytes_in(budget, self.whole, self.minimum)
        rounds = min(self.experts_at_once, self.experts) * self.converted
        count = min(self.experts, (limit - self.resident - rounds) // self.slot)
        if count < self.least and limit >= self.minimum:
            count = self.least
        if count < self.least:
            raise InputError(
                f"{size(limit)} hold less than the resident weights ({size(self.resident)}) and the experts of one "
                f"token: give `weights_memory={size(self.minimum)}` or more; all weights take {size(self.whole)}"
            )
        return count


def needs(manifest: Manifest, dtype: torch.dtype, per_token: int) -> Need:
    """What a file of weights needs when it is computed in `dtype` and a token has `per_token` experts."""
    one = manifest.experts[0]
    resident = sum(array.bytes_in(dtype) for array in manifest.resident)
    experts = sum(array.count for array in manifest.experts)
    as_stored = all(part.is_in(dtype) for part in one.parts)
    return Need(
        whole=resident + experts * one.bytes_in(dtype),
        resident=resident,
        slot=one.stride,
        converted=0 if as_stored else one.bytes_in(dtype),
        experts=experts,
        experts_at_once=one.count if as_stored else min(_ROUND, per_token),
        least=min(per_token, one.count),
    )


def bytes_in(budget: int | Fraction | Literal["auto"], whole: int, least: int) -> int:
    """A budget of bytes, or of a share of `whole`; "auto": half of `whole`, or `least` where that is more."""
    if budget == "auto":
        return max(whole // 2, least)
    return int(whole * budget) if isinstance(budget, Fraction) else budget


def size(count: int) -> str:
    """Bytes as `weights_memory` takes them, rounded up."""
    return f"{-(-count // 2**20)}M"
