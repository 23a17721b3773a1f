"""What dense.py compares with: a random dense model on disk, and its feed-forward parts in mapped files."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from transformers import LlamaConfig, LlamaForCausalLM

from bench.weights.mapped_files import BoundedPages, MappedFile, Region, on_disk
from bench.weights.mixture import Sizes, config_fields, file_of, write_checkpoint
from kvdrive.generation.checkpoints import read_config
from kvdrive.weights.file import WeightsFile
from kvdrive.weights.resident import resident_model

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


def mapped_layers(file: WeightsFile, folder: Path, share: float) -> tuple[Any, BoundedPages]:
    """The model with up and down projections in mapped files, a share of which stays in the page cache."""
    model: Any = resident_model(file, read_config(folder), torch.bfloat16)
    layers = model.model.layers
    files = [MappedFile(file_of(folder, number)) for number in range(len(layers))]
    whole = sum(end - begin for number, one in enumerate(files) for begin, end in _places(one, number))
    regions: dict[Hashable, Region] = {number: Region(number, (0, one.bytes)) for number, one in enumerate(files)}
    pages = BoundedPages(files, regions, int(share * whole))

    def before(number: int) -> Any:
        return lambda module, inputs: pages.use(number)

    def after(number: int) -> Any:
        def hook(module: Any, inputs: Any, out: Any) -> None:
            pages.trim(number)
            if number == len(layers) - 1 and on_disk(folder):
                pages.require_bound()

        return hook

    for number, layer in enumerate(layers):
        for matrix, name in zip(_MATRICES, _names(number), strict=True):
            mapped = torch.nn.Parameter(files[number].tensor(name), requires_grad=False)
            getattr(layer.mlp, matrix).weight = mapped
        layer.mlp.register_forward_pre_hook(before(number))
        layer.mlp.register_forward_hook(after(number))
    return model, pages


def _names(number: int) -> list[str]:
    return [f"model.layers.{number}.mlp.{matrix}.weight" for matrix in _MATRICES]


def _places(file: MappedFile, number: int) -> list[tuple[int, int]]:
    return [file.places[name] for name in _names(number)]
