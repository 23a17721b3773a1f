"""What bench_dense.py compares with: a random dense model on disk, and its feed-forward parts in mapped files."""

from __future__ import annotations

import os
from collections import OrderedDict
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from transformers import LlamaConfig, LlamaForCausalLM

from kvdrive.generation.checkpoints import read_config
from kvdrive.weights.file import WeightsFile
from kvdrive.weights.loading import resident_model
from weights_contenders import Sizes, config_fields, drop_from_cache, file_of, tensor_places, write_checkpoint

_MATRICES = ("up_proj", "down_proj")  # the gate stays in memory, as kvdrive's does


@dataclass(frozen=True)
class DenseShape:
    """A model of Llama's family with ReLU, bfloat16."""

    layers: int = 16
    hidden: int = 2048
    inner: int = 8192

    @property
    def bytes(self) -> int:
        """Of its feed-forward parts."""
        return 2 * self.layers * 3 * self.hidden * self.inner

    def config(self) -> LlamaConfig:
        """As transformers has it."""
        return LlamaConfig(**config_fields(self.layers, self.hidden, self.inner), hidden_act="relu")


QUICK = DenseShape(layers=2, hidden=128, inner=256)


def make_dense(shape: DenseShape, folder: Path) -> None:
    """A random dense model."""
    config = shape.config()
    with torch.device("meta"):
        parameters = dict(LlamaForCausalLM(config).named_parameters())
    files: dict[int, Sizes] = {layer: {} for layer in range(-1, shape.layers)}
    for name, one in parameters.items():
        files[_layer_of(name)][name] = tuple(one.shape)
    write_checkpoint(config, files.values(), folder)


def _layer_of(name: str) -> int:
    return int(name.split(".")[2]) if name.startswith("model.layers.") else -1


def mapped_layers(file: WeightsFile, folder: Path, share: float) -> Any:
    """The model with up and down projections in mapped files, a share of which stays in the page cache.

    The layers that were used longest ago are dropped, as the kernel does.
    """
    model: Any = resident_model(file, read_config(folder), torch.bfloat16)
    layers = model.model.layers
    most = max(1, int(share * len(layers)))
    used: OrderedDict[int, None] = OrderedDict()
    paths = [file_of(folder, number) for number in range(len(layers))]
    files = [safe_open(path, "pt") for path in paths]
    descriptors = [os.open(path, os.O_RDONLY) for path in paths]
    places = [tensor_places(path) for path in paths]

    def names(number: int) -> list[str]:
        return [f"model.layers.{number}.mlp.{matrix}.weight" for matrix in _MATRICES]

    def drop(number: int) -> None:
        for name in names(number):
            drop_from_cache(files[number].get_tensor(name), descriptors[number], places[number][name])

    def after(number: int) -> Any:
        def hook(module: Any, inputs: Any, out: Any) -> None:
            used[number] = None
            used.move_to_end(number)
            while len(used) > most:
                drop(used.popitem(last=False)[0])

        return hook

    for number, layer in enumerate(layers):
        for matrix, name in zip(_MATRICES, names(number), strict=True):
            mapped = files[number].get_tensor(name)
            getattr(layer.mlp, matrix).weight = torch.nn.Parameter(mapped, requires_grad=False)
        drop(number)
        layer.mlp.register_forward_hook(after(number))
    return model
