"""What bench_dense.py compares with: a random dense model on disk, and its feed-forward parts in mapped files."""

from __future__ import annotations

import json
import os
from collections import OrderedDict
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from safetensors.torch import save_file
from transformers import LlamaConfig, LlamaForCausalLM

from kvdrive.generation.checkpoints import read_config
from kvdrive.weights.file import WeightsFile
from kvdrive.weights.loading import resident_model
from weights_contenders import VOCABULARY, drop_from_cache, random_tensor, tensor_places

__all__ = ["QUICK", "VOCABULARY", "DenseShape", "make_dense", "mapped_layers"]
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
        return LlamaConfig(
            vocab_size=VOCABULARY,
            hidden_size=self.hidden,
            intermediate_size=self.inner,
            num_hidden_layers=self.layers,
            num_attention_heads=self.hidden // 64,
            num_key_value_heads=max(1, self.hidden // 256),
            hidden_act="relu",
            max_position_embeddings=4096,
            tie_word_embeddings=False,
            dtype="bfloat16",
            eos_token_id=None,
        )


QUICK = DenseShape(layers=2, hidden=128, inner=256)


def make_dense(shape: DenseShape, folder: Path) -> None:
    """Random weights, a file for each layer, so that one layer is in memory at a time."""
    config = shape.config()
    config.save_pretrained(folder)
    with torch.device("meta"):
        sizes = {name: tuple(one.shape) for name, one in LlamaForCausalLM(config).named_parameters()}
    random = torch.Generator().manual_seed(1)
    places: dict[str, str] = {}
    for layer in range(-1, shape.layers):  # -1: what belongs to no layer
        names = [name for name in sizes if _layer_of(name) == layer]
        file = _file(layer)
        save_file({name: random_tensor(sizes[name], random) for name in names}, folder / file, {"format": "pt"})
        places.update(dict.fromkeys(names, file))
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": places}))


def _layer_of(name: str) -> int:
    return int(name.split(".")[2]) if name.startswith("model.layers.") else -1


def _file(layer: int) -> str:
    return f"model-{layer + 1:05}.safetensors"


def mapped_layers(file: WeightsFile, folder: Path, share: float) -> Any:
    """The model with up and down projections in mapped files, a share of which stays in the page cache.

    The layers that were used longest ago are dropped, as the kernel does.
    """
    model: Any = resident_model(file, read_config(folder), torch.bfloat16)
    layers = model.model.layers
    most = max(1, int(share * len(layers)))
    used: OrderedDict[int, None] = OrderedDict()
    files = [safe_open(folder / _file(number), "pt") for number in range(len(layers))]
    descriptors = [os.open(folder / _file(number), os.O_RDONLY) for number in range(len(layers))]
    places = [tensor_places(folder / _file(number)) for number in range(len(layers))]

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
