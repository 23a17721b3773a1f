"""Experts that are read when a token needs them, through transformers' interface for experts.

The arithmetic is transformers' own `grouped_mm`: it gets the slots in memory as if they were all the experts, and for
each token the numbers of slots in place of the numbers of experts. Experts are computed while others are read. What
they give is added when all have come, in the stock order: results have the same bits as with all experts in memory.
"""

from __future__ import annotations

import copy
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch
from transformers.integrations.moe import ALL_EXPERTS_FUNCTIONS

from kvdrive.weights.bundles import Array, Part
from kvdrive.weights.eviction import Key
from kvdrive.weights.lookahead import LookAhead
from kvdrive.weights.managing import Managing
from kvdrive.weights.payoff import Pace
from kvdrive.weights.slots import Slots

NAME = "kvdrive_flash"
_STOCK = "grouped_mm"  # transformers' own choice on a CPU
_HANDLE = "kvdrive_layer"


@dataclass
class Streamed:
    """What all modules with experts share. `dtype`: precision of the computation; `at_once`: experts of one round.

    `pace` says if the guesses of `lookahead` are prefetched; None: they always are.
    """

    slots: Slots
    arrays: list[Array]
    lookahead: LookAhead | None
    pace: Pace | None
    managing: Managing
    dtype: torch.dtype
    at_once: int
    _converted: dict[str, tuple[Part, torch.Tensor]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for part in self.arrays[0].parts:
            if not part.is_in(self.dtype):
                self._converted[part.name] = part, torch.empty(self.at_once, *part.shape, dtype=self.dtype)

    def tensors(self, places: list[int]) -> tuple[dict[str, torch.Tensor], list[int]]:
        """The matrices of the experts in these slots, and the number of each in them."""
        stored = self.slots.tensors
        if not self._converted and len(places) == 1:  # the stock function takes time for every slot
            return {name: tensor[places[0] : places[0] + 1] for name, tensor in stored.items()}, [0]
        if not self._converted:
            return stored, places
        for name, (part, converted) in self._converted.items():
            for number, place in enumerate(places):
                converted[number] = part.numbers_of(stored[name][place], self.dtype)
        found = {name: converted for name, (_, converted) in self._converted.items()}
        kept = {name: tensor[places] for name, tensor in stored.items() if name not in found}
        return found | kept, list(range(len(places)))


class LayerExperts:
    """The experts of one module: number `number` of the model's modules with experts."""

    def __init__(self, module: torch.nn.Module, number: int, shared: Streamed) -> None:
        self._number, self._shared = number, shared
        self._stock = ALL_EXPERTS_FUNCTIONS[_STOCK]
        self._view = copy.copy(module)  # a module with other matrices, for the stock function
        self._view.__dict__["_parameters"] = {}

    def compute(self, hidden: torch.Tensor, chosen: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
        """hidden [tokens, h], chosen experts and their weights [tokens, k] -> [tokens, h]. Raises TargetError."""
        with self._shared.managing:
            needed: list[int] = torch.unique(chosen).tolist()
            if self._shared.lookahead is not None:
                self._shared.lookahead.routed(self._number, needed)
            if self._shared.pace is not None:
                self._shared.pace.routed(self._keys(needed))
        groups = self._as_they_come(needed)
        first = next(groups)
        if len(first) == len(needed):
            return self._computed(needed, hidden, chosen, weights)
        tokens, k = chosen.shape
        pairs = chosen.reshape(-1)
        out = hidden.new_empty(tokens * k, hidden.shape[-1])
        for experts in itertools.chain([first], groups):
            mine = torch.isin(pairs, torch.tensor(experts)).nonzero()[:, 0]
            ones = weights.new_ones(len(mine), 1)
            out[mine] = self._computed(experts, hidden[mine // k], pairs[mine, None], ones)
        weighted = out * weights.reshape(-1, 1)  # from here on as the stock function adds the experts of a token
        return weighted.view(tokens, k, -1).sum(dim=1).to(hidden.dtype)

    def _as_they_come(self, needed: list[int]) -> Iterator[list[int]]:
        """These experts in groups that are in memory: those that are there, then the others as their reads end.

        Each is read once. More than fit together come in rounds; the next round is read meanwhile, and the experts that
        the next layer will probably need during the last one.
        """
        slots, managing = self._shared.slots, self._shared.managing
        with managing:
            rounds = self._rounds(needed)
        for experts, following in zip(rounds, [*rounds[1:], None], strict=True):
            left = keys = self._keys(experts)
            with managing:
                slots.fetch(keys)
                slots.read_ahead(self._next_layer() if following is None else self._keys(following), keeping=keys)
            while left:
                with managing:
                    there = slots.arrived(left)
                    left = [key for key in left if key not in there]
                    if self._shared.pace is not None and not left and following is None:
                        self._shared.pace.computes()
                yield [expert for _, expert in there]

    def _rounds(self, needed: list[int]) -> list[list[int]]:
        """These experts in parts that fit into memory together, those that are there first."""
        if len(needed) <= self._shared.at_once:
            return [needed]
        in_memory = [key[1] for key in self._keys(needed) if key in self._shared.slots]
        needed = in_memory + [expert for expert in needed if expert not in in_memory]
        size = max(1, self._shared.at_once // 2)  # the other half of the slots is read meanwhile
        return [needed[begin : begin + size] for begin in range(0, len(needed), size)]

    def _computed(
        self, experts: list[int], hidden: torch.Tensor, chosen: torch.Tensor, weights: torch.Tensor
    ) -> torch.Tensor:
        """The stock function with these experts, which are in memory."""
        with self._shared.managing:
            tensors, numbers = self._shared.tensors(self._shared.slots.places(self._keys(experts)))
            number_of = torch.zeros(max(experts) + 1, dtype=chosen.dtype)
            number_of[experts] = torch.tensor(numbers, dtype=chosen.dtype)
        view: Any = self._view
        view.__dict__.update(tensors, num_experts=len(next(iter(tensors.values()))))
        out: torch.Tensor = self._stock(view, hidden, number_of[chosen], weights)
        return out

    def _next_layer(self) -> list[Key]:
        """The experts that the next module will probably need; none where prefetching them does not pay."""
        ahead, pace = self._shared.lookahead, self._shared.pace
        if ahead is None:
            return []
        keys = [(self._number + 1, expert) for expert in ahead.guess(self._number)]
        return keys if pace is None or pace.foresees(keys) else []

    def _keys(self, experts: list[int]) -> list[Key]:
        return [(self._number, expert) for expert in experts]


class Layer(Protocol):
    """The experts of one module, wherever they are computed."""

    def compute(self, hidden: torch.Tensor, chosen: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
        """hidden [tokens, h], chosen experts and their weights [tokens, k] -> [tokens, h]. Raises TargetError."""


def install(modules: list[torch.nn.Module], shared: Streamed) -> None:
    """Give each of these modules its experts on flash. They lose their own matrices."""
    give(modules, [LayerExperts(module, number, shared) for number, module in enumerate(modules)])


def give(modules: Sequence[torch.nn.Module], layers: Sequence[Layer]) -> None:
    """Let these modules compute with `layers` in place of their own matrices, which they lose."""
    for module, layer in zip(modules, layers, strict=True):
        module._parameters.clear()
        module.__dict__[_HANDLE] = layer


def experts_from_flash(
    module: torch.nn.Module, hidden_states: torch.Tensor, top_k_index: torch.Tensor, top_k_weights: torch.Tensor
) -> torch.Tensor:
    """Function of transformers' interface for experts; tensors as in `LayerExperts.compute`."""
    layer: Layer = module.__dict__[_HANDLE]
    return layer.compute(hidden_states, top_k_index, top_k_weights)


ALL_EXPERTS_FUNCTIONS.register(NAME, experts_from_flash)
