"""What a model's layers in memory hold after a call, as bytes: window rows, convolution and recurrent states.

It is taken attribute by attribute from transformers' own cache layers, so that a layer which is restored is the one
that was stored, bit for bit. An attribute of a type that is not known here is refused, and so are layers of another
class or another version of transformers.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import torch
import transformers

from kvdrive.errors import UnsupportedError

_ALIGNED = 8  # bytes; each tensor begins at a multiple
_LENGTH = 8  # bytes of the head's length, little endian
_PLAIN = (bool, int, float, str, type(None))


def pack(layers: Mapping[int, Any]) -> bytes:
    """What these layers hold, by index. Raises UnsupportedError for a layer that holds something else."""
    tensors: list[torch.Tensor] = []
    head = {
        "transformers": transformers.__version__,
        "layers": {str(index): _layer(index, layer, tensors) for index, layer in layers.items()},
    }
    text = json.dumps(head).encode()
    text = text.ljust(-(-len(text) // _ALIGNED) * _ALIGNED)
    return b"".join([len(text).to_bytes(_LENGTH, "little"), text, *map(_bytes, tensors)])


def unpack(data: bytes, layers: Mapping[int, Any], device: torch.device) -> None:
    """Give empty layers what `pack` took from others like them, on `device`.

    Raises ValueError where they are not like those; then some layers may have been changed.
    """
    size = int.from_bytes(data[:_LENGTH], "little")
    head = json.loads(data[_LENGTH : _LENGTH + size])
    if head["transformers"] != transformers.__version__:
        raise ValueError(f"stored with transformers {head['transformers']}")
    if head["layers"].keys() != {str(index) for index in layers}:
        raise ValueError("stored by a model with other layers in memory")
    reader = _Reader(memoryview(data)[_LENGTH + size :], device)
    for index, layer in layers.items():
        stored = head["layers"][str(index)]
        if stored["class"] != _class(layer):
            raise ValueError(f"layer {index} was a {stored['class']}")
        vars(layer).update({name: reader.value(value) for name, value in stored["fields"].items()})
    reader.end()


def _layer(index: int, layer: Any, tensors: list[torch.Tensor]) -> dict[str, Any]:
    try:
        fields = {name: _described(value, tensors) for name, value in vars(layer).items()}
    except TypeError as error:
        raise UnsupportedError(f"layer {index}, a {_class(layer)}, holds {error}, which cannot be stored") from error
    return {"class": _class(layer), "fields": fields}


def _class(layer: Any) -> str:
    return f"{type(layer).__module__}.{type(layer).__qualname__}"


def _described(value: Any, tensors: list[torch.Tensor]) -> Any:
    """A value as JSON; its tensors are added to `tensors`. Raises TypeError with the name of an unknown type."""
    if isinstance(value, _PLAIN):
        return value
    if isinstance(value, torch.Tensor):
        if value.layout is not torch.strided or value.is_quantized:
            raise TypeError(f"a tensor of layout {value.layout}")
        tensors.append(value.detach().cpu().contiguous())
        return {"tensor": [_name(value.dtype), list(value.shape)]}
    if isinstance(value, torch.dtype):
        return {"dtype": _name(value)}
    if isinstance(value, torch.device):
        return {"device": True}  # that of the model which goes on
    if isinstance(value, dict):
        return {"dict": [[_described(key, tensors), _described(one, tensors)] for key, one in value.items()]}
    raise TypeError(f"a {type(value).__name__}")


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _bytes(tensor: torch.Tensor) -> bytes:
    found: bytes = tensor.reshape(-1).view(torch.uint8).numpy().tobytes()
    return found.ljust(-(-len(found) // _ALIGNED) * _ALIGNED, b"\0")


class _Reader:
    """Takes described values from their tensors' bytes, in the order in which they were described."""

    def __init__(self, data: memoryview, device: torch.device) -> None:
        self._data = data
        self._device = device

    def value(self, described: Any) -> Any:
        if not isinstance(described, dict):
            return described
        ((kind, given),) = described.items()
        match kind:
            case "tensor":
                return self._tensor(*given)
            case "dtype":
                return _dtype(given)
            case "device":
                return self._device
            case "dict":
                return {self.value(key): self.value(one) for key, one in given}
        raise ValueError(f"a {kind} is unknown")

    def end(self) -> None:
        """Raises ValueError if bytes are left."""
        if self._data:
            raise ValueError(f"{len(self._data)} bytes too many")

    def _tensor(self, dtype: str, shape: list[int]) -> torch.Tensor:
        empty = torch.empty(shape, dtype=_dtype(dtype))
        size = empty.numel() * empty.element_size()
        if size > len(self._data):
            raise ValueError("bytes are missing")
        if size:
            taken = torch.frombuffer(bytearray(self._data[:size]), dtype=torch.uint8)
            empty.reshape(-1).view(torch.uint8).copy_(taken)
        self._data = self._data[-(-size // _ALIGNED) * _ALIGNED :]
        return empty.to(self._device)


def _dtype(name: str) -> torch.dtype:
    found = getattr(torch, name, None)
    if not isinstance(found, torch.dtype):
        raise ValueError(f"{name} is no type of numbers")
    return found
