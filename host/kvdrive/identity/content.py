"""A hash of values by what they contain. What cannot be looked into is equal to itself, while it lives."""

from __future__ import annotations

import dataclasses
import enum
import functools
import hashlib
import logging
import secrets
import threading
import types
import weakref
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from functools import partial
from pathlib import PurePath
from typing import Any

import numpy as np
import torch
from transformers import PreTrainedConfig

from kvdrive.identity import code, harmless

_PLAIN = (
    type(None), bool, int, float, complex, str, bytes, range, slice, type(Ellipsis), type(NotImplemented),
    torch.dtype, torch.device, torch.layout, torch.memory_format,
)  # fmt: skip
_WITHOUT_NUMBERS = (
    type(threading.Lock()), type(threading.RLock()), threading.Thread, threading.Condition, threading.Event,
    logging.Logger, types.ModuleType,
)  # fmt: skip
_TENSORS = (torch.Tensor, torch.nn.Parameter, torch.nn.Buffer)
_DICTS = frozenset(name for name, value in vars(torch.nn.Module()).items() if isinstance(value, dict))
_CACHED = type(functools.lru_cache(len))
_HOOKS = ("_forward_hooks", "_forward_pre_hooks")
_ONLY_LOOKS, _COVERS = "kvdrive_only_looks", "kvdrive_covers"
Hook = Callable[..., Any]


def only_looks(hook: Hook) -> Hook:
    """Mark a forward hook, or another function, that changes nothing that a model computes: it does not count."""
    setattr(hook, _ONLY_LOOKS, True)
    return hook


def covers(function: Hook, before: Hook | None) -> Hook:
    """Mark a function that stands in a module's attribute in place of `before` (None: of nothing), which counts."""
    setattr(function, _COVERS, (before,))
    return function


@dataclasses.dataclass
class Read:
    """What was read: all values in `containers`, the values of `names` in mappings, and the `sizes` of mappings."""

    containers: list[Collection[Any]] = dataclasses.field(default_factory=list)
    names: list[tuple[Mapping[str, Any], list[str]]] = dataclasses.field(default_factory=list)
    sizes: list[Collection[Any]] = dataclasses.field(default_factory=list)


class Content:
    """Hashes values. `tensor` gives the hash of a tensor's numbers.

    `read`: what was read, to see later changes of values that are no tensors; `read_rarely`: what nobody changes for a
    single call: classes, and plain attributes of modules of transformers and torch. `opaque`: objects that could not be
    looked into, by their hash; those `known` to an earlier one keep theirs.
    """

    def __init__(self, tensor: Callable[[torch.Tensor], bytes], known: Mapping[bytes, Any] | None = None) -> None:
        self.read = Read()
        self.read_rarely = Read()
        self.opaque: dict[bytes, Any] = {}
        self._opaque_before = {id(value): found for found, value in (known or {}).items()}
        self._tensor = tensor
        self._known: dict[int, bytes] = {}
        self._depth: dict[int, int] = {}  # of the values that are being looked into
        self._alive: list[Any] = []  # so that no other object gets the number of one in `_known`

    def of(self, value: Any) -> bytes:
        """The hash of a value with everything that it refers to."""
        if type(value) in _PLAIN:
            return _hash(type(value).__name__, repr(value).encode())
        number = id(value)
        if number in self._depth:
            return _hash("above", str(len(self._depth) - self._depth[number]).encode())
        if number not in self._known:
            self._alive.append(value)
            self._depth[number] = len(self._depth)
            self._known[number] = self._look(value)
            del self._depth[number]
        return self._known[number]

    def mapping(self, found: Mapping[Any, Any], leave_out: Collection[str] = (), *, in_order: bool = False) -> bytes:
        """The hash of a mapping without some keys."""
        self.read.containers.append(found)
        parts = [self._key(key) + self.of(value) for key, value in list(found.items()) if key not in leave_out]
        return _hash("mapping", *(parts if in_order else sorted(parts)))

    def hooks(self, found: Mapping[Any, Hook], with_kwargs: Mapping[Any, bool]) -> bytes:
        """The hash of forward hooks, in their order. `with_kwargs`: those that get keyword arguments, too."""
        self.read.containers.append(found)
        return _hash("hooks", *self._hooks(found, with_kwargs))

    def _hooks(self, found: Mapping[Any, Hook], with_kwargs: Mapping[Any, bool]) -> Iterator[bytes]:
        for number, hook in found.items():
            if not getattr(hook, _ONLY_LOOKS, False) and not code.only_looks(hook):
                yield self.of(hook) + bytes([number in with_kwargs])

    def _key(self, key: Any) -> bytes:
        return _hash_of_name(key) if isinstance(key, str) else self.of(key)

    def _look(self, value: Any) -> bytes:
        """The hash of a value that is seen for the first time."""
        kind = type(value)
        if isinstance(value, torch.Tensor):
            return _hash("tensor", self._numbers(value), self.mapping(vars(value), harmless.MODULE))
        if isinstance(value, torch.nn.Module):
            return self._module(value)
        if isinstance(value, PreTrainedConfig):
            return _hash("config", self.of(kind), self.mapping(vars(value), harmless.CONFIG))
        if isinstance(value, enum.Enum):
            return _hash("enum", code.name_of(kind), value.name.encode())
        if isinstance(value, dict | types.MappingProxyType):
            return _hash("dict", self.of(kind), self.mapping(value, in_order=True))
        if isinstance(value, list | tuple | deque):
            self.read.containers.append(value)
            return _hash("list", self.of(kind), *map(self.of, list(value)))
        if isinstance(value, set | frozenset):
            self.read.containers.append(value)
            return _hash("set", *sorted(map(self.of, list(value))))
        if isinstance(value, np.ndarray | np.generic):
            return _hash("array", str((value.dtype, value.shape)).encode(), value.tobytes())
        if isinstance(value, type):
            return self._class(value)
        if (found := self._callable(value)) is not None:
            return found
        return self._object(value)

    def _numbers(self, value: torch.Tensor) -> bytes:
        """A tensor's numbers; of one that is made of others (quantised ones are), theirs."""
        if type(value) in _TENSORS or not hasattr(value, "__tensor_flatten__"):
            return self._tensor(value)
        names, context = value.__tensor_flatten__()
        parts = [self.of(getattr(value, name)) for name in names]
        return _hash("made of", self.of(type(value)), *parts, self.of(context))

    def _callable(self, value: Any) -> bytes | None:
        """The hash of a function of any kind; None for other values."""
        if getattr(value, _ONLY_LOOKS, False):
            return _hash("only looks")
        if isinstance(value, types.FunctionType):
            return self._function(value)
        if isinstance(value, types.MethodType):
            return _hash("method", self.of(value.__func__), self.of(value.__self__))
        if isinstance(value, _CACHED):
            return _hash("cached", self.of(value.__wrapped__))
        if isinstance(value, partial):
            return _hash("partial", self.of(value.func), self.of(value.args), self.mapping(value.keywords))
        if isinstance(value, staticmethod | classmethod):
            return _hash("method", self.of(value.__func__))
        if isinstance(value, property):
            return _hash("property", *(self.of(one) for one in (value.fget, value.fset)))
        if isinstance(value, types.CellType):
            try:
                return _hash("cell", self.of(value.cell_contents))
            except ValueError:
                return _hash("cell")
        if isinstance(value, types.BuiltinFunctionType):
            of = None if isinstance(value.__self__, types.ModuleType | type) else value.__self__
            return _hash("builtin", code.name_of(value), self.of(of))
        if isinstance(value, types.MethodDescriptorType | types.WrapperDescriptorType | types.GetSetDescriptorType):
            return _hash("builtin", code.name_of(value))
        return None

    def _function(self, function: types.FunctionType) -> bytes:
        """A function that is installed counts by its name (its module's text counts elsewhere), another by its code."""
        if code.is_installed(function):
            return _hash("function", code.name_of(function))
        names, plain = code.read(function.__code__)
        held = function.__globals__
        used = [name for name in names if name in held]
        self.read.names.append((held, used))
        return _hash(
            "code", plain, self.of(function.__defaults__), self.of(function.__kwdefaults__),
            self.of(function.__closure__),
            *(self._key(name) + self.of(held[name]) for name in used),
        )  # fmt: skip

    def _class(self, kind: type) -> bytes:
        """A class that is installed counts by its name, and by what was put into it from elsewhere; another by all."""
        own = [one for one in kind.__mro__ if one is not object]
        parts = [code.name_of(one) for one in own]
        for one in own:
            if not code.is_library(one):
                foreign = code.foreign(one)
                read = self.read_rarely if code.is_installed_class(one) else self.read
                read.containers.append(vars(one))
                parts += [self._key(name) + self.of(value) for name, value in foreign.items()]
        return _hash("class", *parts)

    def _module(self, module: torch.nn.Module) -> bytes:
        """Class, attributes, tensors, parts and forward hooks, without adapters that are not active."""
        own, active = vars(module), _active_adapters(module)
        names = sorted(own.keys() - harmless.MODULE.keys() - {f"{hooks}_with_kwargs" for hooks in _HOOKS})
        steady = set(names if code.is_steady(type(module)) else _DICTS)
        self.read.names.append((own, [name for name in names if name not in steady]))
        self.read.sizes.append(own)
        self.read_rarely.names.append((own, [name for name in names if name in steady]))
        parts = [self.of(type(module))]
        for name in names:
            value = own[name]
            if (before := getattr(value, _COVERS, None)) is not None:
                value = before[0]
                if value is None:
                    continue
            if name in harmless.ZEROS and isinstance(value, torch.Tensor) and not value.any():
                value = None
            if name in _HOOKS:
                found = self.hooks(value, own.get(f"{name}_with_kwargs", {}))
            elif name == "_modules":
                self.read.containers.append(value)
                found = _hash("parts", *(self._key(key) + self._part(key, one, active) for key, one in value.items()))
            elif active is not None and isinstance(value, dict) and active.are_keys_of(value):
                self.read.containers.append(value)
                found = self.mapping({key: one for key, one in value.items() if key in active.names})
            elif isinstance(value, dict):
                found = self.mapping(value)
            else:
                found = self.of(value)
            parts.append(self._key(name) + found)
        return _hash("nn", *parts)

    def _part(self, name: str, part: torch.nn.Module | None, active: _Active | None) -> bytes:
        """A module's part; of adapters the active ones."""
        several = torch.nn.ModuleDict | torch.nn.ParameterDict
        if active is None or not isinstance(part, several) or not active.are_keys_of(part):
            return self.of(part)
        self.read.containers += [vars(part), part._modules, part._parameters]
        return _hash("adapters", *(self._key(key) + self.of(part[key]) for key in active.names if key in part))

    def _object(self, value: Any) -> bytes:
        """Any other object: its class and what it holds."""
        kind = type(value)
        if isinstance(value, _WITHOUT_NUMBERS):
            return _hash("without numbers", code.name_of(kind))
        if isinstance(value, weakref.ReferenceType):
            return _hash("weak", self.of(value()))
        if isinstance(value, PurePath):
            return _hash("path", str(value).encode())
        if code.is_own(kind) and not dataclasses.is_dataclass(kind):
            return _hash("own", code.name_of(kind))
        slots = [name for one in kind.__mro__ for name in _slots(one) if hasattr(value, name)]
        if not all(map(code.is_written_in_python, kind.__mro__[:-1])):
            found = self._opaque_before.get(id(value)) or secrets.token_bytes(32)
            self.opaque[found] = value  # alive, so that no other object gets its number
            return found
        held = {name: getattr(value, name) for name in slots}
        return _hash("object", self.of(kind), self.mapping(held), self.mapping(getattr(value, "__dict__", {})))


@dataclasses.dataclass(frozen=True)
class _Active:
    """The active adapters of a PEFT layer by name, and `all` of its adapters."""

    names: list[str]
    all: frozenset[str]

    def are_keys_of(self, found: Iterable[Any]) -> bool:
        """True for what has an entry for each of some adapters."""
        return self.all.issuperset(found)


def _active_adapters(module: torch.nn.Module) -> _Active | None:
    """None for modules that are no layer of PEFT."""
    names, several = getattr(module, "active_adapters", None), getattr(module, "adapter_layer_names", None)
    if not isinstance(names, list) or several is None:
        return None
    every = {key for name in several for key in getattr(module, name, ())}
    return _Active([] if getattr(module, "disable_adapters", False) else names, frozenset(every))


def _slots(kind: type) -> Collection[str]:
    names = vars(kind).get("__slots__", ())
    return [names] if isinstance(names, str) else [name for name in names if name not in ("__dict__", "__weakref__")]


def _hash(kind: str, *parts: bytes) -> bytes:
    """Of parts of any length."""
    pieces = [kind.encode()]
    for part in parts:
        pieces += (len(part).to_bytes(8, "little"), part)
    return hashlib.sha256(b"".join(pieces)).digest()


@functools.lru_cache(maxsize=1 << 14)
def _hash_of_name(name: str) -> bytes:
    return _hash("key", name.encode())
