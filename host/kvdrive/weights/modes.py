"""The memory that the weights of a model take in each mode, from its configuration alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from kvdrive.errors import UnsupportedError
from kvdrive.weights.modules import experts_of
from kvdrive.weights.sources import empty_model

PRECISIONS = {"float32": torch.float32, "bfloat16": torch.bfloat16}


@dataclass(frozen=True)
class Modes:
    """Numbers in a model: all of them, and those in experts; how many experts there are, and of how many a token is.

    A model without experts, or with ones that cannot be on flash, has 0 of them.
    """

    numbers: int
    in_experts: int
    experts: int
    per_token: int

    @property
    def precisions(self) -> tuple[str, ...]:
        """The names of the precisions that the methods know."""
        return tuple(PRECISIONS)

    def in_memory(self, precision: str) -> int:
        """Bytes of all weights."""
        return self.numbers * int(PRECISIONS[precision].itemsize)

    def on_flash(self, precision: str) -> int:
        """The least bytes in memory with experts on flash in the same precision."""
        numbers = self.numbers - self.in_experts + self.per_token * (self.in_experts // max(1, self.experts))
        return numbers * int(PRECISIONS[precision].itemsize)

    def as_json(self) -> dict[str, Any]:
        """Bytes by mode and precision."""
        return {
            "parameters": self.numbers,
            "parameters_of_experts": self.in_experts,
            "memory": {name: self.in_memory(name) for name in PRECISIONS},
            "flash_at_least": {name: self.on_flash(name) for name in PRECISIONS} if self.experts else None,
        }


def modes_of(config: Any) -> Modes:
    """The modes of a decoder's configuration. Nothing is read and no weight is allocated."""
    model = empty_model(config)
    numbers = sum(one.numel() for one in model.parameters())
    try:
        found = list(experts_of(model).values())
    except UnsupportedError:
        found = []
    inside = sum(one.numel() for module in found for one in module.parameters())
    count = sum(int(module.num_experts) for module in found)
    return Modes(numbers, inside, count, int(getattr(config, "num_experts_per_tok", 0) or 0))
