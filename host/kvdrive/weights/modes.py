"""The memory that the weights of a model take in each mode, from its configuration alone."""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import torch

from kvdrive.errors import UnsupportedError
from kvdrive.weights.bundles import EXPERTS, NEURONS
from kvdrive.weights.formats import CODES, stored_bytes
from kvdrive.weights.modules import experts_of
from kvdrive.weights.neurons import SparseBlock, has_gates, neurons_of
from kvdrive.weights.sources import empty_model
from kvdrive.weights.sparse import LEAST

RANK, PREDICTOR_BYTES = 128, 4  # of a predictor, which is in float32
PRECISIONS = {"float32": torch.float32, "bfloat16": torch.bfloat16}


@dataclass(frozen=True)
class Modes:
    """How many numbers a model has, and how many of them can be on flash.

    `kind`: what these are, EXPERTS or NEURONS, "" where there is none; `least`: the share of them that must be in
    memory; `converted`: numbers that are in memory a second time while they are converted from 8 or 4 bits;
    `predictors`: bytes of predictors, where gates are on flash; `with_gates`: the same model with its gates there, None
    where they cannot be.
    """

    numbers: int
    on_flash: int = 0
    kind: str = ""
    least: Fraction = Fraction(0)
    converted: int = 0
    predictors: int = 0
    with_gates: Modes | None = None

    @property
    def precisions(self) -> tuple[str, ...]:
        """The names of the precisions that the methods know."""
        return tuple(PRECISIONS)

    def in_memory(self, precision: str) -> int:
        """Bytes of all weights."""
        return self.numbers * int(PRECISIONS[precision].itemsize)

    def at_least(self, precision: str, stored: str = "") -> int:
        """The least bytes in memory with the others on flash in the same precision, or `stored` in 8 or 4 bits.

        Without what fills groups of neurons up to whole pages.
        """
        resident = (self.numbers - self.on_flash) * int(PRECISIONS[precision].itemsize) + self.predictors
        held = int(self.least * self.on_flash)
        if not stored:
            return resident + held * int(PRECISIONS[precision].itemsize)
        return resident + stored_bytes(stored, held) + self.converted * int(PRECISIONS[precision].itemsize)

    @property
    def on_flash_at_least(self) -> dict[str, dict[str, int]]:
        """By what is on flash and how: the least bytes in memory in each precision. Empty where nothing can be."""
        if not self.kind:
            return {}
        found = {f"{self.kind} on flash": {name: self.at_least(name) for name in PRECISIONS}}
        for stored in CODES:
            found[f"{self.kind} on flash in {stored}"] = {name: self.at_least(name, stored) for name in PRECISIONS}
        if self.with_gates:
            gates = self.with_gates
            found["gates on flash, too, with predictors"] = {name: gates.at_least(name) for name in PRECISIONS}
        return found

    def as_json(self) -> dict[str, Any]:
        """Bytes by mode and precision."""
        return {
            "parameters": self.numbers,
            "on_flash": self.kind,
            "parameters_on_flash": self.on_flash,
            "memory": {name: self.in_memory(name) for name in PRECISIONS},
            "flash_at_least": {name: self.at_least(name) for name in PRECISIONS} if self.kind else None,
            "modes": self.on_flash_at_least,
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
        least = Fraction(int(getattr(config, "num_experts_per_tok", 1)), count)
        return Modes(numbers, inside, EXPERTS, least, int(least * inside))
    if blocks := neurons_of(model):
        found = _of_neurons(numbers, blocks)
        gates = neurons_of(model, gates=True)
        return replace(found, with_gates=_of_neurons(numbers, gates) if set(gates) == set(blocks) else None)
    return Modes(numbers)


def _of_neurons(numbers: int, blocks: dict[str, SparseBlock]) -> Modes:
    """The modes of a dense model with these parts on flash."""
    sizes = [block.shape[0] * block.shape[1] for block in blocks.values()]
    predictors = 0
    for block in blocks.values():
        if has_gates(block.part):
            neurons, hidden = block.shape[0], block.shape[1] // len(block.matrices)
            predictors += PREDICTOR_BYTES * (RANK * (hidden + neurons) + neurons)
    return Modes(numbers, sum(sizes), NEURONS, Fraction(1, LEAST), max(sizes) // LEAST, predictors)
