"""Dense models whose activations are mostly zero: only the neurons that are not zero are read.

The resident part of a layer says which they are: the gate of a gated layer, the first matrix of another one. A neuron
whose activation is zero adds nothing, so the sum is that of the whole layer, in another order of additions. ReLU gives
zeros; other activation functions give them with thresholds only (`cuts`), and without them all neurons are read.
"""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from transformers import PreTrainedModel

from kvdrive.weights.window import Window

_JOIN = "+"


@dataclass(frozen=True)
class SparseBlock:
    """A feed-forward part: the matrices on flash, the last one by columns. `gated`: it has a gate."""

    module: torch.nn.Module
    matrices: tuple[str, ...]
    gated: bool

    @property
    def part(self) -> str:
        """The name of the part in the file of weights."""
        return _JOIN.join(self.matrices)

    @property
    def shape(self) -> tuple[int, int]:
        """Neurons, and numbers of each on flash."""
        hidden, neurons = self.module.get_parameter(self.matrices[-1]).shape
        return neurons, hidden * len(self.matrices)


def neurons_of(model: PreTrainedModel) -> dict[str, SparseBlock]:
    """The feed-forward parts whose neurons can be on flash, by name: gated ones as Llama's, and OPT's with ReLU."""
    found = {}
    for name, module in model.named_modules():
        if _is_gated(module):
            found[name] = SparseBlock(module, ("up_proj.weight", "down_proj.weight"), True)
        elif isinstance(getattr(module, "activation_fn", None), torch.nn.ReLU) and hasattr(module, "fc2"):
            found[name] = SparseBlock(module, ("fc2.weight",), False)
    return found


def matrices_in(part: str) -> list[str]:
    """The matrices of a part of neurons; the last one is stored by columns."""
    return part.split(_JOIN)


def activation_of(module: torch.nn.Module) -> torch.nn.Module:
    """The activation function of a feed-forward part."""
    found: torch.nn.Module = getattr(module, "act_fn", None) or module.get_submodule("activation_fn")
    return found


_GATED = {"gate_proj", "up_proj", "down_proj", "act_fn"}


def _is_gated(module: torch.nn.Module) -> bool:
    """True if the module computes down_proj(act_fn(gate_proj(x)) * up_proj(x)) and nothing else."""
    parts: list[Any] = [getattr(module, name, None) for name in ("gate_proj", "up_proj", "down_proj")]
    if not all(isinstance(one, torch.nn.Linear) for one in parts):
        return False
    used = set(inspect.unwrap(type(module).forward).__code__.co_names)
    return used == _GATED and isinstance(module.act_fn, torch.nn.Module) and parts[1].bias is parts[2].bias is None


class SparseSum:
    """The part of a layer behind its activation, from neurons in a window. `dtype`: precision of the computation."""

    def __init__(self, window: Window, neurons: int, groups: int, dtype: torch.dtype) -> None:
        self._window, self._dtype = window, dtype
        self._padding = groups * window.neurons - neurons
        self.active = self.total = 0

    def compute(self, activations: torch.Tensor, inputs: torch.Tensor | None) -> torch.Tensor:
        """activations [tokens, neurons], inputs [tokens, h] of a gated layer -> [tokens, h]. Raises TargetError."""
        size = self._window.neurons
        padded = torch.nn.functional.pad(activations, (0, self._padding))
        wanted = (padded != 0).any(0)
        groups = wanted.view(-1, size).any(1).nonzero()[:, 0].numpy()
        self.active += int(wanted.sum())
        self.total += activations.shape[1]
        hidden = self._window.width // (1 if inputs is None else 2)
        out = activations.new_zeros(len(activations), hidden)
        if len(groups) > self._window.capacity:
            groups = self._window.held_first(groups)
        for begin in range(0, len(groups), self._window.capacity):
            chunk = groups[begin : begin + self._window.capacity]
            self._window.hold(chunk)
            rows, held = self._window.rows(chunk, self._dtype)
            numbers = torch.from_numpy((held[:, None] * size + np.arange(size)).reshape(-1))
            values = padded[:, numbers]
            if len(groups) > len(chunk):  # groups of other chunks may be in memory, too
                values = values * torch.from_numpy(np.isin(held, chunk).repeat(size))
            if inputs is not None:
                values = values * (inputs @ rows[:, :hidden].T)
            out += values @ rows[:, -hidden:]
        return out


class SparseDown(torch.nn.Module):  # type: ignore[misc]
    """Stands in for the second matrix of a layer without a gate."""

    def __init__(self, bias: torch.nn.Parameter | None, sums: SparseSum) -> None:
        super().__init__()
        self.bias = bias
        self._sums = sums

    def forward(self, activations: torch.Tensor) -> torch.Tensor:
        """activations [..., neurons] -> [..., h]. Raises TargetError."""
        out = self._sums.compute(activations.reshape(-1, activations.shape[-1]), None)
        out = out if self.bias is None else out + self.bias
        return out.view(*activations.shape[:-1], -1)


def install(block: SparseBlock, sums: SparseSum) -> None:
    """Let a feed-forward part sum over neurons on flash. It loses the matrices that are there."""
    module: Any = block.module
    if not block.gated:
        module.fc2 = SparseDown(module.fc2.bias, sums)
        return
    del module.up_proj, module.down_proj

    def forward(x: torch.Tensor) -> torch.Tensor:
        activations = module.act_fn(module.gate_proj(x))
        flat = x.reshape(-1, x.shape[-1])
        return sums.compute(activations.reshape(len(flat), -1), flat).view(x.shape)

    module.forward = forward
