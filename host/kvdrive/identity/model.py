"""The identity of a model: a hash of everything that its K and V depend on besides the tokens, and a watch over it."""

from __future__ import annotations

import functools
import hashlib
import json
import os
import secrets
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from itertools import chain
from operator import attrgetter, is_, itemgetter
from typing import Any

import numpy as np
import torch
from torch.nn.modules import module as every_module
from transformers import PreTrainedModel

from kvdrive.identity import code
from kvdrive.identity.content import Content, Read
from kvdrive.kvcache.shipped_scales import plain, scales_of
from kvdrive.nvme.wire import RowFormat

_LAYOUT = "kvdrive identity 1"  # change this text when the content of a session changes, or what is hashed
_SAMPLES = 128  # bytes of a tensor
_MANY, _THREADS = 1 << 24, 16  # bytes that are worth several threads, and the most threads, each with one copy
_END = object()
_version, _pointer = attrgetter("_version"), torch.Tensor.data_ptr


def of_model(model: PreTrainedModel, stored_as: RowFormat = RowFormat.BINARY16) -> bytes:
    """What makes two caches the same: 32 bytes that differ where K and V of the same tokens do (docs/runtime.md).

    Reads every weight once. `stored_as`: the format to which K and V are rounded, with the scales that the checkpoint
    ships for it. Raises InputError for scales that cannot be used.
    """
    return ModelIdentity(model, stored_as).value


class ModelIdentity:
    """The identity of `model` as it is now: `value`, and `reason`, why no other object of this class can have it; "":
    nothing is in the way. See `of_model`.
    """

    def __init__(self, model: PreTrainedModel, stored_as: RowFormat = RowFormat.BINARY16) -> None:
        self._model = model
        self._fixed = json.dumps([_LAYOUT, stored_as.name, plain(scales_of(model, stored_as) or {})]).encode()
        self._own = secrets.token_bytes(32)
        self._digests: dict[int, _Tensor] = {}
        self._opaque: dict[bytes, Any] = {}
        self._tensors = _Tensors([])
        self.value, self.reason = b"", ""
        self.renew()

    def is_current(self) -> bool:
        """True unless a parameter, buffer, adapter, part, forward hook or the configuration of the model has changed.

        Takes some microseconds for each layer. Only `look` sees numbers that are written through `Tensor.data`, plain
        attributes of modules of torch and transformers, and functions that are put into installed code.
        """
        return self._parts.is_current() and self._tensors.is_current()

    def look(self) -> bool:
        """`is_current`, and a look at some numbers of each tensor, and at classes and modules. Takes milliseconds."""
        return self.is_current() and self._attributes.is_current() and self._tensors.are_sampled()

    def renew(self) -> bool:
        """Take the model as it is now. Returns True if that is another identity. Hashes the tensors that changed."""
        before, self.reason = self.value, ""
        hidden = bool(before) and not self._tensors.are_sampled()  # changes that no version tells of may be anywhere
        known = {} if hidden else self._digests
        known = known | _hashed(chain(self._model.parameters(), self._model.buffers()), known)
        self._digests = {}
        content = Content(lambda tensor: self._numbers(tensor, known), self._opaque)
        found = hashlib.sha256(self._fixed)
        found.update(content.of(self._model))
        for hooks in (every_module._global_forward_hooks, every_module._global_forward_pre_hooks):
            found.update(content.hooks(hooks, every_module._global_forward_hooks_with_kwargs))
        kinds = {type(one) for one in self._model.modules()}
        for name, text in code.texts(kinds).items():
            found.update(name.encode() + text)
        families = code.modules_of(kinds)
        for module in families:
            for name, value in code.foreign_names(module).items():
                found.update(name.encode() + content.of(value))
        self._opaque = content.opaque
        for value in content.opaque.values():
            kind = type(value)
            self.reason = (
                f"it holds a {kind.__module__}.{kind.__qualname__}, of which nobody can tell if it is the same"
            )
        if self.reason:
            found.update(self._own)
        self.value = found.digest()
        content.read_rarely.containers += [vars(module) for module in families]
        self._parts, self._attributes = _Values(content.read), _Values(content.read_rarely)
        self._tensors = _Tensors(list(self._digests.values()))
        return self.value != before

    def _numbers(self, tensor: torch.Tensor, known: dict[int, _Tensor]) -> bytes:
        """SHA-256 of a tensor's numbers, with their type, shape and kind of device."""
        one = known.get(id(tensor))
        if one is None or not one.is_current():
            one = _Tensor(tensor)
        if one.unwatched:
            self.reason = "some of its weights were made in torch.inference_mode, where nobody sees their changes"
        self._digests[id(tensor)] = one
        return one.digest


class _Values:
    """What was read of a model, as it was then."""

    def __init__(self, read: Read) -> None:
        self._filled = [one.values() if isinstance(one, Mapping) else one for one in read.containers if one]
        self._empty = [one for one in read.containers if not one]  # `any` of dictionaries is fast, of their values not
        self._named = [(itemgetter(*names, names[0]), mapping) for mapping, names in read.names if names]
        self._sized = read.sizes
        self._sizes = list(map(len, self._sized))
        self._held = list(self._values())

    def _values(self) -> Iterator[Any]:
        return chain(chain.from_iterable(self._filled), *[get(mapping) for get, mapping in self._named], (_END,))

    def is_current(self) -> bool:
        """True if the same objects are there."""
        if any(self._empty) or list(map(len, self._sized)) != self._sizes:
            return False
        try:
            return all(map(is_, self._values(), self._held))
        except KeyError:
            return False


class _Tensor:
    """A tensor as it is when this is made. `digest`: SHA-256 of its numbers; `unwatched`: without a version."""

    def __init__(self, tensor: torch.Tensor) -> None:
        self.tensor = tensor
        self.unwatched = tensor.is_inference()
        self.pointer, self.version = _pointer(tensor), 0 if self.unwatched else tensor._version
        self.digest = _digest(tensor)
        shared = tensor.device.type == "cpu" and tensor.is_contiguous() and tensor.numel() > 0
        self._numbers = _bytes(tensor).numpy() if shared else None  # the tensor's own memory
        self._at = _places(tensor.nbytes)
        self._sample = self._sampled()

    def is_current(self) -> bool:
        """True if the tensor has the same version and place."""
        return not self.unwatched and (self.pointer, self.version) == (_pointer(self.tensor), self.tensor._version)

    def is_sampled(self) -> bool:
        """True if some of its numbers are the same."""
        return self._sampled() == self._sample

    def _sampled(self) -> bytes:
        if self._numbers is not None:
            return bytes(self._numbers[self._at].tobytes())
        if self.tensor.is_meta or not self.tensor.numel():
            return b""
        found = _bytes(self.tensor)[torch.from_numpy(self._at).to(self.tensor.device)]
        return bytes(found.cpu().numpy().tobytes())


@functools.lru_cache(maxsize=1 << 10)
def _places(size: int) -> np.ndarray:
    """Which of so many bytes are sampled."""
    found = np.linspace(0, max(size - 1, 0), min(size, _SAMPLES)).astype(np.int64)
    found.flags.writeable = False
    return found


def _hashed(tensors: Iterable[torch.Tensor], known: Mapping[int, _Tensor]) -> dict[int, _Tensor]:
    """Those of `tensors` that are not `known` as they are now, by identity, hashed side by side; none of few bytes.

    Tensors of inference mode are left out: nobody can tell later if they are the same.
    """
    new = {
        id(one): one
        for one in tensors
        if not one.is_inference() and (id(one) not in known or not known[id(one)].is_current())
    }
    if sum(one.nbytes for one in new.values()) < _MANY:
        return {}
    with ThreadPoolExecutor(min(_THREADS, os.cpu_count() or 1)) as pool:
        return dict(zip(new, pool.map(_Tensor, new.values()), strict=True))


class _Tensors:
    """All tensors of a model."""

    def __init__(self, several: list[_Tensor]) -> None:
        self._several = several
        self._watched = [one.tensor for one in several if not one.unwatched]
        self._versions = [one.version for one in several if not one.unwatched]
        self._pointers = [one.pointer for one in several if not one.unwatched]

    def is_current(self) -> bool:
        """True if all have the same versions and places."""
        same = list(map(_version, self._watched)) == self._versions
        return same and list(map(_pointer, self._watched)) == self._pointers

    def are_sampled(self) -> bool:
        """True if some numbers of each are the same."""
        return all(one.is_sampled() for one in self._several)


def _bytes(tensor: torch.Tensor) -> torch.Tensor:
    """A tensor's numbers as uint8 [bytes], where they are."""
    return tensor.detach().contiguous().reshape(-1).view(torch.uint8)


def _digest(tensor: torch.Tensor) -> bytes:
    """SHA-256 of a tensor's numbers, type, shape and kind of device."""
    found = hashlib.sha256(f"{tensor.dtype} {tuple(tensor.shape)} {tensor.device.type}".encode())
    if tensor.numel() and not tensor.is_meta:
        found.update(_bytes(tensor).cpu().numpy().data)
    return found.digest()
