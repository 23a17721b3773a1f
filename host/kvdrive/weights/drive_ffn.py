"""`ffn` "drive": the drive that holds the weights computes the feed-forward parts. Only x and y cross its interface.

Where gates are in memory, the host computes them and sends the activations that are not zero. docs/arithmetic.md has
the drive's bits: x, the activations and their products with the up projection are binary16, as in a model that
computes in float16; sums are exact.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from kvdrive import abi
from kvdrive.errors import InputError, TargetError, UnsupportedError
from kvdrive.nvme import wire
from kvdrive.nvme.commands import Command
from kvdrive.nvme.completions import Completion
from kvdrive.nvme.errors import CommandError
from kvdrive.nvme.ffn import Weights, ffn_fetch, ffn_result, ffn_submit
from kvdrive.nvme.wire import FfnActivation, FfnLayout
from kvdrive.targets.base import Target
from kvdrive.weights.bundles import Array
from kvdrive.weights.drive_values import bundles_in_value, place_of
from kvdrive.weights.manifest import Manifest

_LARGEST = 65504.0  # binary16
_MOST_NEURONS = 65535  # of one command
_NUMBERS = 65536  # of neurons that a command's list can name
_HIDDEN_STEP = abi.COMMAND_HEAD_DIM_STEP
_LAYOUTS = {1: FfnLayout.FFN_DOWN, 2: FfnLayout.FFN_UP_DOWN, 3: FfnLayout.FFN_GATE_UP_DOWN}
_ACTIVATIONS = {
    "ReLU": FfnActivation.FFN_RELU,
    "SiLU": FfnActivation.FFN_SILU,
    "SiLUActivation": FfnActivation.FFN_SILU,
}

Halves = NDArray[np.float16]


def activation_in_drive(function: torch.nn.Module) -> FfnActivation:
    """The drive's name of an activation function. Raises UnsupportedError."""
    found = _ACTIVATIONS.get(type(function).__name__)
    if found is None:
        raise UnsupportedError(
            f"the drive computes ReLU and SiLU, not {type(function).__name__}: leave `ffn=drive` out, or keep gates in "
            "memory"
        )
    return found


def require_halves(manifest: Manifest) -> None:
    """Raises InputError unless experts and neurons are stored in binary16."""
    parts = [part for array in (*manifest.experts, *manifest.neurons) for part in array.parts]
    if other := {part.format for part in parts} - {"float16"}:
        raise InputError(
            f"the drive computes with float16, and these weights are {', '.join(sorted(other))}: convert the "
            "checkpoint with `kvdrive convert --weights-format float16`"
        )


def require_size(hidden: int, neurons: int, most_neurons: int) -> None:
    """Raises UnsupportedError for a feed-forward part that FFN_SUBMIT cannot name."""
    if hidden > wire.MAX_FFN_HIDDEN or hidden % _HIDDEN_STEP or neurons > most_neurons:
        raise UnsupportedError(
            f"the drive computes with up to {wire.MAX_FFN_HIDDEN:,} inputs, in steps of {_HIDDEN_STEP}, and "
            f"{most_neurons:,} neurons, not with {hidden:,} and {neurons:,}: leave `ffn=drive` out"
        )


def half(numbers: torch.Tensor) -> tuple[Halves, int]:
    """Numbers as binary16 times 2^e, and e: 0 if they fit, else as much as leaves no magnitude above 1.

    Products of numbers near the largest one would not fit.
    """
    largest = float(numbers.detach().abs().max()) if numbers.numel() else 0.0
    exponent = int(np.ceil(np.log2(largest))) if _LARGEST < largest < np.inf else 0
    scaled = numbers.detach().float() * 2.0**-exponent
    return scaled.to(torch.float16).numpy(), exponent


@dataclass(frozen=True)
class Call:
    """One FFN_SUBMIT and the power of two by which its y is multiplied."""

    command: Command
    tokens: int
    exponent: int = 0


class DriveSums:
    """Feed-forward sums of one drive. `calls`, `bytes_in`, `bytes_out`: commands, and their data both ways."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self.calls = self.bytes_in = self.bytes_out = 0

    def compute(self, calls: Sequence[Call], hidden: int) -> list[torch.Tensor]:
        """y [tokens, hidden] float32 of each call. Raises TargetError, CommandError."""
        tickets = [self._checked(done) for done in self._target.submit_many([call.command for call in calls])]
        fetches = [ffn_fetch(done.result, call.tokens, hidden) for done, call in zip(tickets, calls, strict=True)]
        found = [self._checked(done) for done in self._target.submit_many(fetches)]
        self.calls += len(calls)
        self.bytes_in += sum(0 if call.command.data is None else call.command.data.size for call in calls)
        self.bytes_out += sum(fetch.room for fetch in fetches)
        return [
            torch.from_numpy(ffn_result(done.data, call.tokens, hidden).copy()) * 2.0**call.exponent
            for done, call in zip(found, calls, strict=True)
        ]

    @staticmethod
    def _checked(done: Completion) -> Completion:
        try:
            return done.check(abi.Opcode.FFN_SUBMIT)
        except CommandError as error:
            if error.status == abi.NvmeStatus.VALUE_NOT_FINITE:
                raise TargetError(
                    "a feed-forward part has an activation beyond binary16, so the drive cannot compute it: leave "
                    "`ffn=drive` out"
                ) from error
            if error.status == abi.NvmeStatus.UNRECOVERED_READ:
                raise TargetError("the drive lost a page of the weights: convert the checkpoint again") from error
            raise


class DriveNeurons:
    """A dense feed-forward part on a drive: the counterpart of `neurons.SparseSum`.

    `activation`: of gates that are on the drive; None: the caller has computed the activations.
    """

    def __init__(
        self,
        sums: DriveSums,
        manifest: Manifest,
        array: Array,
        neurons: int,
        matrices: int,
        activation: FfnActivation | None,
    ) -> None:
        self._sums, self._activation = sums, activation
        rows, width = array.parts[0].shape
        self._hidden = width // matrices
        require_size(self._hidden, min(neurons, bundles_in_value(array) * rows), _NUMBERS)
        each = bundles_in_value(array)  # the last group may hold more rows than there are neurons
        self._values = [
            Weights(
                place_of(manifest, array, first).key,
                0,
                _LAYOUTS[matrices],
                self._hidden,
                min(each * rows, neurons - first * rows),
            )
            for first in range(0, array.count, each)
        ]
        self.active = self.total = 0

    def compute(self, activations: torch.Tensor, inputs: torch.Tensor | None) -> torch.Tensor:
        """activations [tokens, neurons], inputs [tokens, h] of a gated layer -> [tokens, h]. Raises TargetError.

        With gates on the drive, `activations` are 1 for the neurons that count and 0 for the others.
        """
        self.active += int((activations != 0).any(0).sum())
        self.total += activations.shape[1]
        most = wire.MAX_FFN_TOKENS
        rows = [
            self._tokens(activations[i : i + most], None if inputs is None else inputs[i : i + most])
            for i in range(0, len(activations), most)
        ]
        return torch.cat(rows).to(activations.dtype)

    def _tokens(self, activations: torch.Tensor, inputs: torch.Tensor | None) -> torch.Tensor:
        x, exponent = (None, 0) if inputs is None else half(inputs)
        calls = []
        first = 0
        for weights in self._values:
            own = activations[:, first : first + weights.neurons]
            first += weights.neurons
            wanted = (own != 0).any(0).nonzero()[:, 0]
            for begin in range(0, len(wanted), _MOST_NEURONS):
                calls.append(self._call(weights, own, wanted[begin : begin + _MOST_NEURONS], x, exponent))
        out = torch.zeros(len(activations), self._hidden)
        for y in self._sums.compute(calls, self._hidden) if calls else []:
            out += y
        return out

    def _call(
        self, weights: Weights, activations: torch.Tensor, chosen: torch.Tensor, x: Halves | None, exponent: int
    ) -> Call:
        """The command over these neurons. An x that was scaled scales y of ReLU twice, because gate and up scale."""
        tokens, numbers = len(activations), chosen.numpy()
        if self._activation is None:
            given, own = half(activations[:, chosen])
            return Call(ffn_submit(weights, x, activations=given, chosen=numbers), tokens, exponent + own)
        if exponent and self._activation != FfnActivation.FFN_RELU:
            raise TargetError("the input of a feed-forward part does not fit binary16: leave `ffn=drive` out")
        return Call(ffn_submit(weights, x, self._activation, chosen=numbers), tokens, 2 * exponent)


class DriveExperts:
    """The experts of one module on a drive: the counterpart of `experts.LayerExperts`. Raises UnsupportedError."""

    def __init__(self, sums: DriveSums, manifest: Manifest, array: Array, module: torch.nn.Module) -> None:
        self._sums, self._manifest, self._array = sums, manifest, array
        shapes = {part.name: part.shape for part in array.parts}
        plain = list(shapes) == ["gate_up_proj", "down_proj"] and module.has_gate and not module.is_transposed
        if not plain or module.has_bias or not module.is_concatenated:
            raise UnsupportedError("the drive computes experts of gate_up_proj and down_proj without biases only")
        self._hidden, self._neurons = shapes["down_proj"]
        require_size(self._hidden, self._neurons, _MOST_NEURONS)
        self._activation = activation_in_drive(module.act_fn)

    def compute(self, hidden: torch.Tensor, chosen: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
        """hidden [tokens, h], chosen experts and their weights [tokens, k] -> [tokens, h]. Raises TargetError."""
        x, exponent = half(hidden)
        if exponent:
            raise TargetError("the input of an expert does not fit binary16: leave `ffn=drive` out")
        calls, places = [], []
        for expert in torch.unique(chosen).tolist():
            tokens, ranks = (chosen == expert).nonzero(as_tuple=True)
            for begin in range(0, len(tokens), wire.MAX_FFN_TOKENS):
                part = slice(begin, begin + wire.MAX_FFN_TOKENS)
                calls.append(self._call(expert, x[tokens[part].numpy()]))
                places.append((tokens[part], weights[tokens[part], ranks[part]]))
        out = torch.zeros(hidden.shape, dtype=torch.float32)
        for y, (tokens, share) in zip(self._sums.compute(calls, self._hidden), places, strict=True):
            out.index_add_(0, tokens, y * share.float().unsqueeze(1))
        return out.to(hidden.dtype)

    def _call(self, expert: int, x: Halves) -> Call:
        place = place_of(self._manifest, self._array, expert)
        weights = Weights(place.key, place.offset, FfnLayout.FFN_EXPERT, self._hidden, self._neurons)
        return Call(ffn_submit(weights, x, self._activation), len(x))
