"""Guesses the experts of the next layer, so that their reads start one layer early.

The guess is the next layer's own norm and router on the residual stream of this layer. A wrong guess costs a read, or a
part of one, and changes no result.
"""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import Any

import torch
from transformers import PreTrainedModel

from kvdrive.identity.content import only_looks

_NORM = "post_attention_layernorm"  # in front of the experts, in every family that has it


@dataclass
class Recall:
    """Of the experts that tokens were routed to, how many the guess had: `found` of `used`; `guessed` in all."""

    found: int = 0
    used: int = 0
    guessed: int = 0

    @property
    def share(self) -> float | None:
        """The recall; None before the first guess."""
        return self.found / self.used if self.used else None


class LookAhead:
    """The guesses for the modules `names` of experts. `works` is False where the model has other norms or routers."""

    def __init__(self, model: PreTrainedModel, names: list[str]) -> None:
        self._routes = [_route(model, name) for name in names]
        self.works = len(names) > 1 and all(route is not None for route in self._routes)
        self._residual: dict[int, torch.Tensor] = {}  # of modules whose guess has not been asked for
        self._guess: dict[int, list[int]] = {}
        self.recall = Recall()
        for number, route in enumerate(self._routes if self.works else []):
            assert route is not None
            route[0].register_forward_pre_hook(self._keep(number))

    def guess(self, number: int) -> list[int]:
        """Experts of module `number` + 1, the most wanted first, from the residual stream at module `number`."""
        residual = self._residual.pop(number, None)
        route = self._routes[number + 1] if number + 1 < len(self._routes) else None
        if residual is None or route is None:
            return []
        norm, router = route
        with torch.no_grad():
            _, weights, chosen = router.forward(norm.forward(residual).reshape(-1, residual.shape[-1]))[:3]
        experts, places = torch.unique(chosen, return_inverse=True)
        votes = weights if weights.shape == chosen.shape else torch.ones_like(chosen)
        wanted = torch.zeros(len(experts)).index_add_(0, places.flatten(), votes.float().flatten())
        self._guess[number + 1] = experts[wanted.argsort(descending=True, stable=True)].tolist()
        return self._guess[number + 1]

    def routed(self, number: int, experts: list[int]) -> None:
        """The experts that module `number` really uses: compared with the guess, if there was one."""
        guess = self._guess.pop(number, None)
        if guess is not None:
            self.recall.found += len(set(guess) & set(experts))
            self.recall.used += len(experts)
            self.recall.guessed += len(guess)

    def _keep(self, number: int) -> Any:
        def hook(module: torch.nn.Module, inputs: tuple[torch.Tensor, ...]) -> None:
            self._residual[number] = inputs[0]

        return only_looks(hook)


def _route(model: PreTrainedModel, name: str) -> tuple[torch.nn.Module, torch.nn.Module] | None:
    """Norm and router in front of the experts `name`; None if the layer has no such modules, or others are needed."""
    block = model.get_submodule(name.rpartition(".")[0])
    layer = model.get_submodule(name.rpartition(".")[0].rpartition(".")[0])
    router = next((one for one in block.children() if "Router" in type(one).__name__), None)
    norm = getattr(layer, _NORM, None)
    return (norm, router) if norm is not None and router is not None and _needs_states_only(router) else None


def _needs_states_only(router: torch.nn.Module) -> bool:
    """True if the router chooses from the hidden states alone; MiniMax-M2's wants a bias that the layer holds."""
    try:
        inspect.signature(router.forward).bind(None)
    except TypeError:
        return False
    return True
