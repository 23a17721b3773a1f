"""Scales of K and V in e4m3 that a checkpoint ships: a stored number stands for itself times the scale.

transformers drops these tensors when it loads a model, so they are read from the checkpoint's files. Names and meaning
are those that vLLM reads. docs/arithmetic.md (Numbers at rest) says where the scale goes.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import torch
from safetensors import SafetensorError, safe_open

from kvdrive.errors import InputError
from kvdrive.nvme.wire import RowFormat

if TYPE_CHECKING:
    from transformers import PreTrainedModel

Scale = tuple[float, ...]  # binary32 numbers: one for all KV heads of a layer, or one for each

_LAYER = r"(?:^|\.)(?P<layer>\d+)\.(?:[a-z_]*att[a-z]*|mixer)\."
_SCALE = re.compile(
    _LAYER + r"(?:(?:(?:attn|k_proj|v_proj|qkv_proj)\.)?(?P<of>kv|k|v)_scale|(?P<by>k|v)_proj\.output_scale)$"
)
_ZERO_POINT = re.compile(_LAYER + r"(?:[kv]_zero_point|[kv]_proj\.output_zero_point)$")


@dataclass(frozen=True)
class LayerScales:
    """The scales of one layer."""

    k: Scale
    v: Scale


Scales = Mapping[int, LayerScales]  # by layer; a layer that is missing ships none
NO_SCALES: Scales = MappingProxyType({})


def scales_of(model: PreTrainedModel, stored_as: RowFormat) -> dict[int, LayerScales]:
    """The scales in the folder that `model` was loaded from, by layer. Empty for formats other than e4m3.

    Raises InputError for scales that mean something else, or that no K or V can be divided by.
    """
    name = model.name_or_path
    if stored_as != RowFormat.FP8 or not name or not Path(name).is_dir():
        return {}
    config = model.config.get_text_config(decoder=True)
    kv_heads = getattr(config, "num_key_value_heads", None) or getattr(config, "num_attention_heads", 0)
    found = read_scales(Path(name))
    for layer, scales in found.items():
        for scale in (scales.k, scales.v):
            if len(scale) not in (1, kv_heads):
                raise InputError(
                    f"{name} has {len(scale)} scales of K or V in layer {layer}; a layer has one, or one for each of "
                    f"its {kv_heads} KV heads: take another kv_format"
                )
    return {layer: scales for layer, scales in found.items() if layer < config.num_hidden_layers}


def read_scales(folder: Path) -> dict[int, LayerScales]:
    """The scales in the *.safetensors of a folder, by layer; empty without any. Raises InputError.

    One scale of a layer, `kv_scale` or `k_scale` alone, is that of K and of V.
    """
    found: dict[int, dict[str, Scale]] = {}
    for name, tensor in _tensors(folder):
        match = _SCALE.search(name)
        if match is None:
            if tensor.count_nonzero():
                raise InputError(f"{folder} shifts K or V ({name}), which no format here does: take another kv_format")
            continue
        of_layer = found.setdefault(int(match["layer"]), {})
        kind, scale = match["of"] or match["by"], _checked(folder, name, tensor)
        if of_layer.setdefault(kind, scale) != scale:
            raise InputError(f"{folder} has two different scales for the place of {name}: remove one")
    if found:
        _require_e4m3(folder)
    return {layer: _both(folder, layer, kinds) for layer, kinds in sorted(found.items())}


def plain(scales: Scales) -> list[list[Any]]:
    """The scales as plain values, for what has to differ where they differ."""
    return [[layer, list(one.k), list(one.v)] for layer, one in sorted(scales.items())]


def _tensors(folder: Path) -> Iterator[tuple[str, torch.Tensor]]:
    """The tensors that say how K and V are scaled and shifted, by name. Raises InputError."""
    for file in sorted(folder.glob("*.safetensors")):
        try:
            with safe_open(file, "pt") as tensors:
                for name in tensors.keys():  # noqa: SIM118
                    if _SCALE.search(name) or _ZERO_POINT.search(name):
                        yield name, tensors.get_tensor(name)
        except (OSError, SafetensorError) as error:
            raise InputError(f"cannot read the scales of K and V in {file}: {error}") from error


def _checked(folder: Path, name: str, tensor: torch.Tensor) -> Scale:
    scale = tuple(tensor.to(torch.float32).flatten().tolist())
    if not scale or not all(0 < one < math.inf for one in scale):
        shown = ", ".join(f"{one:g}" for one in scale) or "nothing"
        raise InputError(f"{name} of {folder} is {shown}; a scale is a number above 0: take another kv_format")
    return scale


def _both(folder: Path, layer: int, kinds: dict[str, Scale]) -> LayerScales:
    k = kinds.get("k") or kinds.get("kv")
    if k is None:
        raise InputError(f"{folder} has a scale of V in layer {layer}, but none of K: take another kv_format")
    return LayerScales(k, kinds.get("v") or kinds.get("kv") or k)


def _require_e4m3(folder: Path) -> None:
    """Raises InputError where the checkpoint says that its scales are for other numbers than e4m3."""
    scheme = (_json(folder / "config.json").get("quantization_config") or {}).get("kv_cache_scheme")
    if isinstance(scheme, dict):
        usual = {"type": "float", "num_bits": 8, "symmetric": True, "dynamic": False}
        other = [f"{name} {scheme[name]}" for name, value in usual.items() if scheme.get(name, value) != value]
        if other:
            raise InputError(f"the scales of K and V in {folder} are not for e4m3 ({other[0]}): take another kv_format")
    algorithm = (_json(folder / "hf_quant_config.json").get("quantization") or {}).get("kv_cache_quant_algo")
    if algorithm not in (None, "FP8"):
        raise InputError(f"the scales of K and V in {folder} are for {algorithm}, not e4m3: take another kv_format")


def _json(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}
