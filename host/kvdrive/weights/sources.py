"""The parameters of a checkpoint under transformers' names, read one at a time.

Checkpoints name and split some tensors differently: Mixtral's files have three matrices for each expert, transformers
has two for all experts of a layer. transformers' own table of conversions says how, and its operations do it.
"""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import torch
from accelerate import init_empty_weights
from safetensors import SafetensorError, safe_open
from transformers import AutoModelForCausalLM, PreTrainedModel
from transformers.conversion_mapping import get_model_conversion_mapping
from transformers.core_model_loading import (
    WeightConverter,
    WeightRenaming,
    build_glob_alternation,
    dot_natural_key,
    rename_source_key,
)

from kvdrive.errors import InputError, UnsupportedError
from kvdrive.weights.fingerprint import weight_files

_DTYPES = {"F32": torch.float32, "BF16": torch.bfloat16, "F16": torch.float16}


class Source(Protocol):
    """Parameters of a model by name."""

    def dtype(self, name: str) -> torch.dtype:
        """The precision in which a parameter is stored."""

    def read(self, name: str) -> torch.Tensor:
        """The parameter."""

    def has(self, name: str) -> bool:
        """True if the checkpoint has this parameter; a tied one is stored under its other name only."""


def empty_model(config: Any, dtype: torch.dtype | None = None) -> PreTrainedModel:
    """The model of a configuration, without memory for its parameters. Buffers have their values.

    `dtype`: precision of the computation, None for the one that the configuration names.
    """
    options = {} if dtype is None else {"dtype": dtype}
    with init_empty_weights(include_buffers=False):
        return AutoModelForCausalLM.from_config(config, **options).eval()


def precisions(model: PreTrainedModel, dtype: torch.dtype) -> dict[str, torch.dtype]:
    """The precision in which transformers holds each parameter and stored buffer of `empty_model(config, dtype)`.

    Some families keep a few in float32, such as the biases by which experts are chosen.
    """
    found = {name: tensor.dtype for name, tensor in model.state_dict().items()}
    if kept := model._get_dtype_plan(dtype):
        pattern, group, _ = build_glob_alternation(list(kept))
        found |= {name: kept[group[match.lastgroup]] for name in found if (match := pattern.search(name))}
    return found


class Names:
    """transformers' names for the tensors of a checkpoint. `wanted`: those that the model has."""

    def __init__(self, model: PreTrainedModel) -> None:
        table = get_model_conversion_mapping(model)
        self._renamings = [entry for entry in table if isinstance(entry, WeightRenaming)]
        self._converters = [entry for entry in table if isinstance(entry, WeightConverter)]
        self._by_pattern = {pattern: one for one in self._converters for pattern in one.source_patterns}
        self._prefix = model.base_model_prefix
        self.wanted = model.state_dict()

    def of(self, key: str) -> tuple[str, Any, str | None]:
        """The name of a parameter, the conversion that makes it of several tensors or None, and its pattern."""
        name, pattern = rename_source_key(key, self._renamings, self._converters, self._prefix, self.wanted)
        return name, self._by_pattern.get(pattern), pattern


@dataclass
class _Stored:
    """How one parameter is made: a conversion of transformers that has not read its tensors yet."""

    conversion: Any
    dtype: torch.dtype


class SafetensorsSource:
    """The parameters in the *.safetensors of a folder. Raises InputError, UnsupportedError."""

    def __init__(self, folder: Path, model: PreTrainedModel) -> None:
        self._model = model
        self._stored: dict[str, _Stored] = {}
        files = weight_files(folder)
        if not files:
            raise InputError(f"{folder} holds no *.safetensors: convert its weights (save_pretrained writes them)")
        names = Names(model)
        keys = {key: file for path in files for file in [_opened(path)] for key in file.keys()}  # noqa: SIM118
        for key in sorted(keys, key=dot_natural_key):  # expert 2 before expert 10, as the conversions expect them
            name, converter, pattern = names.of(key)
            if name in names.wanted:
                self._add(name, key, converter, pattern, keys[key])

    def dtype(self, name: str) -> torch.dtype:
        """The precision in which a parameter is stored."""
        return self._stored[name].dtype

    def has(self, name: str) -> bool:
        """True if the checkpoint has this parameter."""
        return name in self._stored

    def read(self, name: str) -> torch.Tensor:
        """The parameter, once. Raises InputError."""
        stored = self._stored[name]
        made = stored.conversion.convert(name, model=self._model, config=self._model.config)
        tensor = made[name]
        found: torch.Tensor = tensor[0] if isinstance(tensor, list) else tensor
        return found

    def _add(self, name: str, key: str, converter: Any, pattern: str | None, file: Any) -> None:
        """Note that the tensor `key` of `file` is a part of the parameter `name`."""
        kind = file.get_slice(key).get_dtype()
        if kind not in _DTYPES:
            raise UnsupportedError(f"{key} is stored as {kind}: only float32, bfloat16 and float16 can be converted")
        stored = self._stored.get(name)
        if stored is None:
            conversion = deepcopy(converter) if converter is not None else WeightRenaming(key, name)
            stored = self._stored[name] = _Stored(conversion, _DTYPES[kind])
        read = partial(file.get_tensor, key)
        stored.conversion.add_tensor(name, key, key if converter is None else pattern, read)


class LoadedSource:
    """The parameters of a model that is in memory."""

    def __init__(self, model: PreTrainedModel) -> None:
        self._parameters = model.state_dict()

    def dtype(self, name: str) -> torch.dtype:
        """The precision of a parameter."""
        return self._parameters[name].dtype

    def has(self, name: str) -> bool:
        """True if the model has this parameter."""
        return name in self._parameters

    def read(self, name: str) -> torch.Tensor:
        """The parameter."""
        return self._parameters[name]


def _opened(path: Path) -> Any:
    """An open *.safetensors. Raises InputError."""
    try:
        return safe_open(path, "pt")
    except (SafetensorError, OSError) as error:
        raise InputError(f"{path} is no usable *.safetensors: {error}") from error
