"""The parts of a model whose weights can lie on flash, found by what they are and not by their family."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from transformers import PreTrainedModel

from kvdrive.errors import UnsupportedError

_MARKS = ("num_experts", "has_gate", "has_bias", "is_transposed", "is_concatenated")  # of transformers' interface


def experts_of(model: PreTrainedModel) -> dict[str, torch.nn.Module]:
    """The modules that hold all experts of a layer, by name, in the order of the model.

    They take part in transformers' interface for experts. Raises UnsupportedError if they are unlike each other.
    """
    found = {name: one for name, one in model.named_modules() if all(hasattr(one, mark) for mark in _MARKS)}
    shapes = {tuple((name, tuple(tensor.shape)) for name, tensor in own_tensors(one)) for one in found.values()}
    if len(shapes) > 1:
        raise UnsupportedError(f"the experts of {type(model).__name__} differ from layer to layer: keep them in memory")
    return found


def own_tensors(module: torch.nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    """The parameters of experts, [experts, ...] each. Raises UnsupportedError for others."""
    for name, tensor in module.named_parameters():
        if "." in name or tensor.shape[0] != module.num_experts:
            raise UnsupportedError(f"{type(module).__name__} has a parameter '{name}' that is not one for each expert")
        yield name, tensor
