"""Models whose feed-forward parts a drive computes (`ffn` "drive")."""

from __future__ import annotations

from typing import Any

import torch

from kvdrive.errors import InputError
from kvdrive.weights import experts
from kvdrive.weights.drive_ffn import DriveExperts, DriveNeurons, DriveSums, activation_in_drive, require_halves
from kvdrive.weights.drive_reader import DriveWeights
from kvdrive.weights.modules import experts_of
from kvdrive.weights.neurons import activation_of, has_gates, install, neurons_of
from kvdrive.weights.resident import resident_model


class DriveModel:
    """A model with its resident tensors in `dtype`; the drive that holds its experts or neurons computes with them.

    Closing it closes the weights. Raises InputError, UnsupportedError for weights that the drive cannot compute with.
    """

    def __init__(self, file: DriveWeights, config: Any, dtype: torch.dtype) -> None:
        require_halves(file.manifest)
        self.file = file
        self._sums = DriveSums(file.target)
        self._resident = sum(array.bytes_in(dtype) for array in file.manifest.resident)
        self._parts: list[DriveNeurons] = []
        if file.manifest.experts:
            config._experts_implementation = experts.NAME
        self.model = resident_model(file, config, dtype)
        if file.manifest.experts:
            self._install_experts()
        else:
            self._install_neurons()

    def _install_experts(self) -> None:
        manifest, modules = self.file.manifest, experts_of(self.model)
        if list(modules) != [array.name for array in manifest.experts]:
            raise InputError(f"{self.file.path} holds the experts of another model: convert this one")
        layers = [DriveExperts(self._sums, manifest, array, modules[array.name]) for array in manifest.experts]
        experts.give(list(modules.values()), layers)

    def _install_neurons(self) -> None:
        manifest = self.file.manifest
        gates = has_gates(manifest.neurons[0].parts[0].name)
        blocks = neurons_of(self.model, gates)
        if [(one.name, one.parts[0].name) for one in manifest.neurons] != [(n, b.part) for n, b in blocks.items()]:
            raise InputError(f"{self.file.path} holds the neurons of another model: convert this one")
        for array, block in zip(manifest.neurons, blocks.values(), strict=True):
            activation = activation_in_drive(activation_of(block.module)) if gates else None
            part = DriveNeurons(self._sums, manifest, array, block.shape[0], len(block.matrices), activation)
            self._parts.append(part)
            install(block, part)

    @property
    def parameters(self) -> int:
        """Numbers in all experts or neurons."""
        arrays = (*self.file.manifest.experts, *self.file.manifest.neurons)
        return sum(array.count * part.numbers for array in arrays for part in array.parts)

    def report(self) -> dict[str, Any]:
        """Counters for the report of a generation: commands to the drive, and their data both ways."""
        found: dict[str, Any] = {
            "resident_bytes": self._resident,
            "ffn_commands": self._sums.calls,
            "ffn_bytes_in": self._sums.bytes_in,
            "ffn_bytes_out": self._sums.bytes_out,
            **{f"flash_{name}": value for name, value in self.file.counters().items()},
        }
        if self._parts:
            active, total = (sum(getattr(one, name) for one in self._parts) for name in ("active", "total"))
            found["active"] = active / max(1, total)
        return found

    def close(self) -> None:
        """Close the weights; nothing is in flight between two calls of the model."""
        self.file.close()
