"""The parameters of a GGUF file, dequantised one at a time by transformers' own operations for such files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import PreTrainedModel
from transformers.integrations.gguf import is_gguf_arch_supported
from transformers.modeling_gguf_pytorch_utils import (
    TENSOR_PROCESSORS,
    TensorProcessor,
    get_gguf_hf_weights_map,
    load_gguf_checkpoint,
    read_field,
)

from kvdrive.errors import UnsupportedError
from kvdrive.generation import gguf
from kvdrive.weights.sources import LoadedSource, Source


def source_of(path: Path, model: PreTrainedModel) -> Source:
    """The parameters of a GGUF file for this (empty) model. Raises InputError, UnsupportedError.

    A few architectures (Qwen3.5, LFM2) have another loader in transformers, which takes the whole model at once.
    """
    gguf.require_package(path)
    import gguf as package

    reader = package.GGUFReader(path)
    if is_gguf_arch_supported(_architecture(reader)):
        return LoadedSource(gguf.load(path, torch.float32)[0])
    return GgufSource(path, reader, model)


class GgufSource:
    """`reader`: the open file. Its pages come and go with the page cache; what `read` gives is float32 in memory.

    Raises UnsupportedError if the file lacks a parameter of the model.
    """

    def __init__(self, path: Path, reader: Any, model: PreTrainedModel) -> None:
        config = load_gguf_checkpoint(path, return_tensors=False)["config"]
        processor = TENSOR_PROCESSORS.get(_architecture(reader), TensorProcessor)(config=config)
        self._process = processor.process
        self._names = names = get_gguf_hf_weights_map(model, processor)
        self._tensors: dict[str, list[Any]] = {}
        for tensor in reader.tensors:
            name = names.get(tensor.name) or names.get(tensor.name.removesuffix(".weight"))  # stacked experts
            if name is not None:
                self._tensors.setdefault(name, []).append(tensor)
        there = {*self._tensors, *model.all_tied_weights_keys}  # tied ones are stored under their other name
        gguf.require_all(path, [name for name, _ in model.named_parameters() if name not in there])

    def dtype(self, name: str) -> torch.dtype:
        """float32: what every tensor is dequantised to."""
        return torch.float32

    def has(self, name: str) -> bool:
        """True if the file has this parameter."""
        return name in self._tensors

    def read(self, name: str) -> torch.Tensor:
        """The parameter, dequantised now."""
        import gguf as package

        made: dict[str, dict[str, torch.Tensor]] = {"tensors": {}}
        for tensor in self._tensors[name]:
            weights = package.dequantize(tensor.data, tensor.tensor_type)
            found = self._process(weights, tensor.name, tensor_key_mapping=self._names, parsed_parameters=made)
            if found.name is not None:  # otherwise the operation has stored it in `made`
                made["tensors"][name] = torch.from_numpy(np.copy(found.weights))
        return made["tensors"][name]


def _architecture(reader: Any) -> str:
    found = read_field(reader, "general.architecture")
    if not found:
        raise UnsupportedError("the GGUF file names no architecture: convert the checkpoint with llama.cpp's tools")
    return str(found[0])
