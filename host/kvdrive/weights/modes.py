"""The memory that the weights of a model take in each mode, from its configuration alone."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import torch

from kvdrive.errors import UnsupportedError
from kvdrive.weights.bundles import EXPERTS, NEURONS
from kvdrive.weights.modules import experts_of
from kvdrive.weights.neurons import neurons_of
from kvdrive.weights.sources import empty_model
from kvdrive.weights.sparse import LEAST

PRECISIONS = {"float32": torch.float32, "bfloat16": torch.bfloat16}


@dataclass(frozen=True)
class Modes:
    """How many numbers a model has, and how many of them can be on flash.

    `kind`: what these are, EXPERTS or NEURONS, "" where there is none; `least`: the share of them that must be in
    memory.
    """

    numbers: int
    on_flash: int = 0
    kind: str = ""
    least: Fraction = Fraction(0)

    @property
    def precisions(self) -> tuple[str, ...]:
        """The names of the precisions that the methods know."""
        return tuple(PRECISIONS)

    def in_memory(self, precision: str) -> int:
        """Bytes of all weights."""
        return self.numbers * int(PRECISIONS[precision].itemsize)

    def at_least(self, precision: str) -> int:
        """The least bytes in memory with the others on flash in the same precision."""
        return int((self.numbers - self.on_flash + self.least * self.on_flash) * PRECISIONS[precision].itemsize)

    def as_json(self) -> dict[str, Any]:
        """Bytes by mode and precision."""
        return {
            "parameters": self.numbers,
            "on_flash": self.kind,
            "parameters_on_flash": self.on_flash,
            "memory": {name: self.in_memory(name) for name in PRECISIONS},
            "flash_at_least": {name: self.at_least(name) for name in PRECISIONS} if self.kind else None,
        }


def modes_of(config: Any) -> Modes:
    """The modes of a decoder's configuration. Nothing is read and no weight is allocated."""
    model = empty_model(config)
    model.tie_weights()
    numbers = sum(one.numel() for one in model.parameters())
    try:
        experts = list(experts_of(model).values())
    except UnsupportedError:
        return Modes(numbers)
    if experts:
        inside = sum(one.numel() for module in experts for one in module.parameters())
        count = sum(int(module.num_experts) for module in experts)
        return Modes(numbers, inside, EXPERTS, Fraction(int(getattr(config, "num_experts_per_tok", 1)), count))
    if blocks := neurons_of(model).values():
        return Modes(numbers, sum(block.shape[0] * block.shape[1] for block in blocks), NEURONS, Fraction(1, LEAST))
    return Modes(numbers)
