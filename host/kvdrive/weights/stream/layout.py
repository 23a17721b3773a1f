"""What of a checkpoint is read when: the layers and the head as units, the embedding by rows, the rest at once."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

import torch
from transformers import PreTrainedModel

from kvdrive.errors import InputError, UnsupportedError
from kvdrive.plugins.support import decoder_config
from kvdrive.weights.sources import Names, precisions
from kvdrive.weights.stream.stored import Stored
from kvdrive.weights.stream.units import Unit, unit_of

_REST, _EMBEDDING, _HEAD = "rest", "embedding", "head"
INSTEAD = "take weights=flash, whose file `kvdrive convert` makes, or weights=memory"


@dataclass(frozen=True)
class Parts:
    """The modules that are read for themselves, by their names: decoder layers, embedding and head."""

    layers: tuple[str, ...]
    embedding: str
    head: str

    def of(self, parameter: str) -> str:
        """The part that a parameter belongs to: one of these modules, or the rest."""
        module = parameter.rpartition(".")[0]
        if parameter == f"{self.embedding}.weight":
            return _EMBEDDING
        if module == self.head:
            return _HEAD
        return next((name for name in self.layers if module.startswith(f"{name}.") or module == name), _REST)


@dataclass(frozen=True)
class Layout:
    """`units`: the layers in their order, and the head. `rest`: what always is in memory."""

    parts: Parts
    units: tuple[Unit, ...]
    rest: Unit
    embedding: Stored
    dtype: torch.dtype  # of the embedding


def parts_of(model: PreTrainedModel) -> Parts:
    """The parts of a model. Raises UnsupportedError for models whose parts are not where others have them."""
    name, count = type(model).__name__, decoder_config(model).num_hidden_layers
    embedding, head = model.get_input_embeddings(), model.get_output_embeddings()
    if not isinstance(embedding, torch.nn.Embedding) or not isinstance(head, torch.nn.Linear):
        raise UnsupportedError(f"{name} has no embedding and head as other models have: {INSTEAD}")
    names = {one: found for found, one in model.named_modules()}
    lists = [found for one, found in names.items() if isinstance(one, torch.nn.ModuleList) and len(one) == count]
    lists = [one for one in lists if not any(one.startswith(f"{other}.") for other in lists)]
    if len(lists) != 1:
        raise UnsupportedError(f"{name} has {len(lists)} lists of {count} layers, not one: {INSTEAD}")
    return Parts(tuple(f"{lists[0]}.{i}" for i in range(count)), names[embedding], names[head])


def layout_of(model: PreTrainedModel, stored: dict[str, Stored], dtype: torch.dtype) -> Layout:
    """The layout of an empty model whose parameters are `stored`. Raises InputError, UnsupportedError."""
    model.tie_weights()
    parts, held = parts_of(model), precisions(model, dtype)
    by_part: dict[str, list[tuple[tuple[str, ...], Stored, torch.dtype]]] = defaultdict(list)
    embedding: Stored | None = None
    for names, one in _shared(model, _named(model, stored)):
        by_owner: dict[str, list[str]] = defaultdict(list)
        for name in names:
            by_owner[parts.of(name)].append(name)
        owners = by_owner.keys() - {_EMBEDDING}
        if len(owners) > 1 or (_EMBEDDING in by_owner and owners - {_HEAD}):
            raise UnsupportedError(f"{' and '.join(names)} of {type(model).__name__} are one parameter: {INSTEAD}")
        for owner in owners:
            by_part[owner].append((tuple(by_owner[owner]), one, held.get(names[0], dtype)))
        if _EMBEDDING in by_owner:
            embedding = one
    assert embedding is not None
    units = [unit_of(name, by_part[name]) for name in parts.layers] + [unit_of(parts.head, by_part[_HEAD])]
    rest = unit_of(_REST, by_part[_REST])
    return Layout(parts, tuple(units), rest, embedding, held.get(f"{parts.embedding}.weight", dtype))


def _named(model: PreTrainedModel, stored: dict[str, Stored]) -> dict[str, Stored]:
    """Tensors of the checkpoint by the names of parameters and buffers. Others are left out, as transformers does."""
    names, found = Names(model), {}
    for key, one in stored.items():
        name, converter, _ = names.of(key)
        if name not in names.wanted:
            continue
        if converter is not None:
            raise UnsupportedError(
                f"{type(model).__name__} has a parameter {name} that its checkpoint stores in parts, such as {key}: "
                f"{INSTEAD}"
            )
        if tuple(names.wanted[name].shape) != one.shape:
            raise InputError(f"{key} has the shape {list(one.shape)}, the model's {list(names.wanted[name].shape)}")
        found[name] = one
    return found


def _shared(model: PreTrainedModel, named: dict[str, Stored]) -> Iterable[tuple[list[str], Stored]]:
    """Each stored tensor with the names that it has in the model; tied parameters may be stored once only."""
    groups: dict[int, list[str]] = defaultdict(list)
    for name, one in model.named_parameters(remove_duplicate=False):
        groups[id(one)].append(name)
    tensors: dict[Stored, list[str]] = defaultdict(list)
    for names in groups.values():
        other = next((named[name] for name in names if name in named), None)
        if other is None:
            raise InputError(f"the checkpoint lacks {names[0]}: download it again")
        for name in names:
            tensors[named.get(name, other)].append(name)
    parameters = {name for names in groups.values() for name in names}
    for name, one in named.items():
        if name not in parameters:
            tensors[one].append(name)  # a buffer
    return ((names, one) for one, names in tensors.items())
