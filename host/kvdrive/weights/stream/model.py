"""A model whose weights are all on flash. Outside of its forward a layer's parameters have no memory."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from fractions import Fraction
from pathlib import Path
from typing import Any, Literal

import torch

from kvdrive.errors import InputError, TargetError, UnsupportedError
from kvdrive.identity.content import covers
from kvdrive.weights import fingerprint
from kvdrive.weights.file import aligned
from kvdrive.weights.sources import empty_model
from kvdrive.weights.stream.arena import Arena
from kvdrive.weights.stream.budget import divide
from kvdrive.weights.stream.embedding import Rows, embed
from kvdrive.weights.stream.files import CheckpointFiles
from kvdrive.weights.stream.layout import INSTEAD, layout_of
from kvdrive.weights.stream.stored import read_stored
from kvdrive.weights.stream.units import Unit

Tensors = Mapping[str, torch.Tensor]


class StreamedWeights:
    """A model that computes in `dtype` ("auto": as the checkpoint says), and the files with its weights.

    `path`: a checkpoint's folder. `memory`: a budget for all weights (`memory.bytes_in`). Each call of the model reads
    every layer that is not in memory once, whatever the number of its rows. Raises InputError, UnsupportedError,
    TargetError.
    """

    parameters = 0  # that the model does not have

    def __init__(
        self, path: Path, config: Any, dtype: torch.dtype | None, memory: int | Fraction | Literal["auto"]
    ) -> None:
        paths = _files_of(path, config)
        self.file = CheckpointFiles(paths)  # first: it notices changes from here on
        try:
            stored = read_stored(paths)
            computed = dtype or getattr(config, "dtype", None) or next(iter(stored.values())).dtype
            self.model = empty_model(config, computed)
            layout = layout_of(self.model, stored, computed)
            self.division = divide(layout, memory)
            self._prepare(path, layout.rest, computed)
            self._units, resident = layout.units, self.division.resident
            self._resident = [self._load(unit) for unit in self._units[:resident]]
            self._arena = Arena(self.file, self._units[resident:], self.division.arena) if self.division.arena else None
            self._converted = torch.from_numpy(aligned(self.division.converted))
            rows = Rows(self.file, layout.embedding, layout.dtype)
        except BaseException:
            self.file.close()
            raise
        for number, name in enumerate((*layout.parts.layers, layout.parts.head)):
            module = self.model.get_submodule(name)
            _replace(module, functools.partial(self._forward, number, module.forward))
        module = self.model.get_submodule(layout.parts.embedding)
        _replace(module, functools.partial(embed, module, rows, module.forward))

    @property
    def streamed_bytes(self) -> int:
        """What each call of the model reads, without rows of the embedding. A file's last bytes may be in memory."""
        return sum(extent.bytes for unit in self._units[self.division.resident :] for extent in unit.extents)

    def report(self) -> dict[str, Any]:
        """Counters for the report of a generation."""
        layers = len(self._units) - 1
        return {
            "bytes": self.division.whole,
            "memory_bytes": self.division.bytes,
            "least_bytes": self.division.least,
            "layers": layers,
            "layers_in_memory": min(layers, self.division.resident),
            "bytes_per_call": self.streamed_bytes,
            "waited_ns": self.file.waited_ns,
            "around_page_cache": self.file.around_cache,
            **{f"flash_{name}": value for name, value in self.file.counters().items()},
        }

    def close(self) -> None:
        """End the reads and close the files. The counters stay."""
        if self._arena is not None:
            with suppress(TargetError):
                self._arena.drain()
        self.file.close()

    def _prepare(self, path: Path, rest: Unit, dtype: torch.dtype) -> None:
        """Load what always is in memory, and make the checkpoint's bytes a part of the model's fingerprint."""
        for name, tensor in self._load(rest).items():
            _, held, own = _place(self.model, name)
            held[own] = tensor
        origin = hashlib.sha256(f"all weights on flash {fingerprint.of_source(path)}".encode())
        self.file.require_same()  # what the digest has read is what later reads find
        self.model.register_buffer("weights_on_flash", torch.tensor(list(origin.digest()), dtype=torch.uint8))
        # The model's first parameter says where and in which precision it computes: it is one without numbers.
        self.model.register_parameter("computes_here", torch.nn.Parameter(torch.empty(0, dtype=dtype), False))

    def _load(self, unit: Unit) -> Tensors:
        """The parameters of a unit in memory of their own. Raises TargetError."""
        memory = aligned(unit.bytes)
        reads = [self.file.start(one, memory[one.at : one.at + one.bytes]) for one in unit.extents]
        self.file.wait(reads, noted=False)
        whole = torch.from_numpy(memory)
        if unit.converted:
            return _parameters(unit, [one.view(whole).to(one.dtype, copy=True) for one in unit.tensors])
        return _parameters(unit, [one.view(whole) for one in unit.tensors])

    def _forward(self, number: int, own: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """A unit's forward `own`, with its parameters in memory."""
        with self._present(number) as tensors, _set(self.model, tensors):
            return own(*args, **kwargs)

    @contextmanager
    def _present(self, number: int) -> Iterator[Tensors]:
        """The parameters of a unit. Raises TargetError."""
        resident = len(self._resident)
        if number < resident:
            yield self._resident[number]
            return
        assert self._arena is not None
        unit, memory = self._units[number], self._arena.take(number - resident)
        try:
            yield _parameters(unit, [one.convert(memory, self._converted) for one in unit.tensors])
        finally:
            self._arena.release()


def _files_of(path: Path, config: Any) -> list[Path]:
    """The files of a checkpoint whose weights can be read as they are. Raises InputError, UnsupportedError."""
    if path.is_file():
        raise UnsupportedError(f"{path} is no folder with *.safetensors, which weights=stream reads: {INSTEAD}")
    if getattr(config, "quantization_config", None):
        raise UnsupportedError(f"{path} has quantised weights, and weights=stream reads numbers: take weights=memory")
    if not (files := fingerprint.weight_files(path)):
        raise InputError(f"{path} holds no *.safetensors: convert its weights (save_pretrained writes them)")
    return files


def _place(model: torch.nn.Module, name: str) -> tuple[torch.nn.Module, dict[str, Any], str]:
    """The module of a parameter or buffer, where it holds it, and the name there."""
    module_name, _, own = name.rpartition(".")
    module = model.get_submodule(module_name)
    return module, module._buffers if own in module._buffers else module._parameters, own


def _parameters(unit: Unit, tensors: list[torch.Tensor]) -> Tensors:
    """By names: a tied parameter is one object."""
    found: dict[str, torch.Tensor] = {}
    for one, tensor in zip(unit.tensors, tensors, strict=True):
        parameter = torch.nn.Parameter(tensor, requires_grad=False)
        found |= dict.fromkeys(one.names, parameter)
    return found


@contextmanager
def _set(model: torch.nn.Module, tensors: Tensors) -> Iterator[None]:
    """Parameters for a while; then those that were there are there again."""
    places = [(held, own, tensor) for name, tensor in tensors.items() for _, held, own in [_place(model, name)]]
    before = [held[own] for held, own, _ in places]
    for held, own, tensor in places:
        held[own] = tensor
    try:
        yield
    finally:
        for (held, own, _), one in zip(places, before, strict=True):
            held[own] = one


def _replace(module: torch.nn.Module, forward: Callable[..., Any]) -> None:
    """Let a module compute by `forward`, which computes what its own does."""
    own = module.forward

    @functools.wraps(own)
    def replaced(*args: Any, **kwargs: Any) -> Any:
        return forward(*args, **kwargs)

    module.forward = covers(replaced, None)
