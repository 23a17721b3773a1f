"""Dense models whose activations are mostly zero: only the neurons that are not zero are read.

The resident part of a layer says which they are: the gate of a gated layer, the first matrix of another one. A neuron
whose activation is zero adds nothing, so the sum is that of the whole layer, in another order of additions. ReLU gives
zeros; other activation functions give them with thresholds only (`cuts`), and without them all neurons are read.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from transformers import PreTrainedModel

from kvdrive._native import add_neurons
from kvdrive.weights.acceptance import Acceptance
from kvdrive.weights.managing import Managing
from kvdrive.weights.window import Groups, Window

Activate = Callable[[torch.Tensor], torch.Tensor]
_JOIN = "+"
DRAFT = 32  # tokens that one call verifies at most; a call with more is a prompt
_FEW_TOKENS = 4  # for which neurons are added one by one
_GATE = "gate_proj.weight"
_GATED = {"gate_proj", "up_proj", "down_proj", "act_fn"}  # the names that the code of a gated part uses


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


def neurons_of(model: PreTrainedModel, gates: bool = False) -> dict[str, SparseBlock]:
    """The feed-forward parts whose neurons can be on flash, by name: gated ones as Llama's, and OPT's with ReLU.

    `gates`: gates are on flash, too; only those of gated parts without biases can be.
    """
    found = {}
    for name, module in model.named_modules():
        if _is_gated(module):
            if not gates:
                found[name] = SparseBlock(module, ("up_proj.weight", "down_proj.weight"), True)
            elif module.gate_proj.bias is None:
                found[name] = SparseBlock(module, (_GATE, "up_proj.weight", "down_proj.weight"), True)
        elif not gates and isinstance(getattr(module, "activation_fn", None), torch.nn.ReLU) and hasattr(module, "fc2"):
            found[name] = SparseBlock(module, ("fc2.weight",), False)
    return found


def has_gates(part: str) -> bool:
    """True if a part of neurons on flash holds their gates."""
    return _GATE in matrices_in(part)


def matrices_in(part: str) -> list[str]:
    """The matrices of a part of neurons; the last one is stored by columns."""
    return part.split(_JOIN)


def activation_of(module: torch.nn.Module) -> torch.nn.Module:
    """The activation function of a feed-forward part."""
    found: torch.nn.Module = getattr(module, "act_fn", None) or module.get_submodule("activation_fn")
    return found


def _is_gated(module: torch.nn.Module) -> bool:
    """True if the module computes down_proj(act_fn(gate_proj(x)) * up_proj(x)) and nothing else."""
    parts: list[Any] = [getattr(module, name, None) for name in ("gate_proj", "up_proj", "down_proj")]
    if not all(isinstance(one, torch.nn.Linear) for one in parts):
        return False
    used = set(inspect.unwrap(type(module).forward).__code__.co_names)
    return used == _GATED and isinstance(module.act_fn, torch.nn.Module) and parts[1].bias is parts[2].bias is None


class SparseSum:
    """The part of a layer behind its activation, from neurons in a window. `dtype`: precision of the computation.

    `managing`: counts the time of memory management. `activate`: the activation function of neurons whose gates are on
    flash. `acceptance`: of the tokens of a call that verifies a draft; the window does not remember what those used
    that will probably be rejected.
    """

    def __init__(
        self,
        window: Window,
        block: SparseBlock,
        groups: int,
        dtype: torch.dtype,
        managing: Managing,
        activate: Activate | None = None,
    ) -> None:
        self._window, self._dtype, self._activate, self._managing = window, dtype, activate, managing
        self.acceptance = Acceptance()
        self._hidden = window.width // len(block.matrices)
        self._padding = groups * window.neurons - block.shape[0]
        self.active = self.total = 0

    def compute(self, activations: torch.Tensor, inputs: torch.Tensor | None) -> torch.Tensor:
        """activations [tokens, neurons], inputs [tokens, h] of a gated layer -> [tokens, h]. Raises TargetError.

        With gates on flash, `activations` are 1 for the neurons that count and 0 for the others.
        """
        with self._managing:
            size = self._window.neurons
            padded = torch.nn.functional.pad(activations, (0, self._padding))
            wanted = (padded != 0).any(0)
            groups = _groups_of(wanted, size)
            briefly = groups[:0]
            if self.acceptance.share < 1 and 1 < len(padded) <= DRAFT:
                accepted = _groups_of((padded[: self.acceptance.accepted(len(padded))] != 0).any(0), size)
                briefly = np.setdiff1d(groups, accepted, assume_unique=True)
            self.active += int(wanted.sum())
            self.total += activations.shape[1]
            out = torch.zeros(len(activations), self._hidden, dtype=torch.float32)
            if len(groups) > self._window.capacity:
                groups = self._window.held_first(groups)
        for begin in range(0, len(groups), self._window.capacity):
            chunk = groups[begin : begin + self._window.capacity]
            whole = len(chunk) == len(groups)
            with self._managing:
                self._window.hold(chunk, briefly if whole else np.intersect1d(briefly, chunk, assume_unique=True))
            if self._few(padded, chunk):
                self._add(padded, inputs, None if whole else chunk, out)
                continue
            with self._managing:
                rows, held = self._window.rows(chunk, self._dtype)
                numbers = torch.from_numpy((held[:, None] * size + np.arange(size)).reshape(-1))
                values = padded[:, numbers]
                if not whole:  # groups of other chunks may be in memory, too
                    values = values * torch.from_numpy(np.isin(held, chunk).repeat(size))
                values = torch.nn.functional.pad(values, (0, len(rows) - values.shape[1]))
            *factors, down = rows.split(self._hidden, dim=1)
            if self._activate is not None:
                assert inputs is not None
                values = values * self._activate(inputs @ factors.pop(0).T)
            if inputs is not None:
                values = values * (inputs @ factors[0].T)
            out += values @ down
        return out.to(activations.dtype)

    def _few(self, padded: torch.Tensor, chunk: Groups) -> bool:
        """True if adding the active neurons of each token is faster than a product with all neurons in memory.

        Measured: one thread adds rows as fast as two threads of torch multiply a single token.
        """
        if self._activate is not None or len(padded) > _FEW_TOKENS or not self._window.holds(self._dtype):
            return False
        return len(padded) * len(chunk) <= self._window.used

    def _add(self, padded: torch.Tensor, inputs: torch.Tensor | None, chunk: Groups | None, out: torch.Tensor) -> None:
        """Add the active neurons, only those of `chunk` if it is given, to `out` [tokens, h].

        The sums are those of engine/fast/neurons.hpp.
        """
        name = str(self._dtype).removeprefix("torch.")
        for token, values in enumerate(padded):
            with self._managing:
                neurons = values.nonzero()[:, 0].numpy()
                if chunk is not None:
                    neurons = neurons[np.isin(neurons // self._window.neurons, chunk)]
                mine = None if inputs is None else inputs[token].float().numpy()
                offsets = self._window.offsets(neurons)
            add_neurons(
                self._window.memory,
                name,
                offsets,
                values[torch.from_numpy(neurons)].float().numpy(),
                mine,
                out[token].numpy(),
            )


def _groups_of(neurons: torch.Tensor, size: int) -> Groups:
    """The groups with at least one of these neurons, bool [groups * size]."""
    found: Groups = neurons.view(-1, size).any(1).nonzero()[:, 0].numpy()
    return found


class Sums(Protocol):
    """The part of a layer behind its activation, wherever it is computed: `SparseSum`, `drive_ffn.DriveNeurons`."""

    def compute(self, activations: torch.Tensor, inputs: torch.Tensor | None) -> torch.Tensor:
        """activations [tokens, neurons], inputs [tokens, h] of a gated layer -> [tokens, h]. Raises TargetError."""


class SparseDown(torch.nn.Module):  # type: ignore[misc]
    """Stands in for the second matrix of a layer without a gate."""

    def __init__(self, bias: torch.nn.Parameter | None, sums: Sums) -> None:
        super().__init__()
        self.bias = bias
        self._sums = sums

    def forward(self, activations: torch.Tensor) -> torch.Tensor:
        """activations [..., neurons] -> [..., h]. Raises TargetError."""
        out = self._sums.compute(activations.reshape(-1, activations.shape[-1]), None)
        out = out if self.bias is None else out + self.bias
        return out.view(*activations.shape[:-1], -1)


def install(block: SparseBlock, sums: Sums, foreseen: Activate | None = None) -> None:
    """Let a feed-forward part sum over neurons on flash. It loses the matrices that are there.

    `foreseen`: of parts whose gates are on flash, from inputs [tokens, h] the neurons that count, bool
    [tokens, neurons]; None: all of them.
    """
    module: Any = block.module
    if not block.gated:
        module.fc2 = SparseDown(module.fc2.bias, sums)
        return
    neurons, gates = block.shape[0], has_gates(block.part)
    for name in block.matrices:
        delattr(module, name.partition(".")[0])

    def forward(x: torch.Tensor) -> torch.Tensor:
        flat = x.reshape(-1, x.shape[-1])
        if not gates:
            activations = module.act_fn(module.gate_proj(flat))
        elif foreseen is None:
            activations = flat.new_ones(len(flat), neurons)
        else:
            activations = foreseen(flat).to(flat.dtype)
        return sums.compute(activations, flat).view(x.shape)

    module.forward = forward
