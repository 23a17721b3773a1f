"""The part of a model that is always in memory, read from the file of weights."""

from __future__ import annotations

from typing import Any

import torch
from transformers import PreTrainedModel

from kvdrive.errors import InputError
from kvdrive.weights.bundles import Array
from kvdrive.weights.file import aligned
from kvdrive.weights.manifest import Manifest
from kvdrive.weights.neurons import matrices_in
from kvdrive.weights.reader import Reader
from kvdrive.weights.sources import empty_model, precisions


def resident_model(file: Reader, config: Any, dtype: torch.dtype) -> PreTrainedModel:
    """The model with its resident tensors, as transformers loads them; those on flash are without memory."""
    model = empty_model(config, dtype)
    held = precisions(model, dtype)
    for array in file.manifest.resident:
        _set(model, array.name, _read(file, array, held.get(array.name, dtype)))
    model.tie_weights()
    left = [
        name for name, one in model.named_parameters() if one.is_meta and not name.startswith(_on_flash(file.manifest))
    ]
    if left:
        raise InputError(f"{file.path} lacks {left[0]}: convert the checkpoint again")
    return model


def _on_flash(manifest: Manifest) -> tuple[str, ...]:
    """How the names of parameters begin that are not resident."""
    experts = [f"{array.name}." for array in manifest.experts]
    neurons = [f"{array.name}.{name}" for array in manifest.neurons for name in matrices_in(array.parts[0].name)]
    return (*experts, *neurons)


def _read(file: Reader, array: Array, dtype: torch.dtype) -> torch.Tensor:
    """A resident tensor in this precision. Raises TargetError."""
    memory = aligned(array.stride)
    file.read(array, 0, memory)
    part = array.parts[0]
    return part.numbers_of(part.view(torch.from_numpy(memory)), dtype)


def _set(model: PreTrainedModel, name: str, tensor: torch.Tensor) -> None:
    """Replace a parameter or buffer. Raises InputError for one of another shape."""
    place, _, own = name.rpartition(".")
    module = model.get_submodule(place)
    there = module._parameters.get(own, module._buffers.get(own))
    if there is None or there.shape != tensor.shape:
        raise InputError(f"{name} has another shape in the weights than in the model: convert this checkpoint")
    if own in module._buffers:
        module._buffers[own] = tensor
    else:
        module._parameters[own] = torch.nn.Parameter(tensor, requires_grad=False)
