"""What a call of a model gets besides its tokens."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

import torch

from kvdrive.identity import harmless

_POSITIONS = ("position_ids", "cache_position")
_KNOWN = ("attention_mask", *_POSITIONS)


def flat(bound: inspect.BoundArguments) -> dict[str, Any]:
    """The arguments of a call by name; those of `**kwargs` are on one level with the others."""
    found: dict[str, Any] = {}
    for name, value in bound.arguments.items():
        inner = bound.signature.parameters[name].kind is inspect.Parameter.VAR_KEYWORD
        found |= value if inner else {name: value}
    return found


def others(arguments: Mapping[str, Any]) -> list[str]:
    """The names of inputs other than tokens, a mask and positions. An argument that is unknown is one."""
    names = harmless.ARGUMENTS.keys() | set(_KNOWN)
    return sorted(name for name, value in arguments.items() if name not in names and not _is_nothing(value))


def why_not_plain(arguments: Mapping[str, Any], first: int) -> str | None:
    """Why K and V of a call [1, tokens] are not those that its tokens have as the `first` and following ones of a text.

    None: they are: all tokens are seen, at their own positions, and the model gets nothing else.
    """
    ids = arguments.get("input_ids")
    if not isinstance(ids, torch.Tensor) or ids.dim() != 2 or ids.shape[0] != 1:
        return "it has several rows, or its tokens are not known"
    if found := others(arguments):
        return f"the model was given {', '.join(found)}"
    tokens = ids.shape[1]
    mask = arguments.get("attention_mask")
    if mask is not None and not _shows_all(mask, first + tokens):
        return "its mask hides tokens"
    for name in _POSITIONS:
        if (given := arguments.get(name)) is not None and not _are_default(given, first, tokens):
            return "its positions are not the numbers of its tokens"
    return None


def _is_nothing(value: Any) -> bool:
    """True for None, and a dictionary of nothing."""
    return value is None or (isinstance(value, Mapping) and all(map(_is_nothing, value.values())))


def _shows_all(mask: Any, tokens: int) -> bool:
    """True for a mask [1, tokens] that hides nothing. One of another form may hide, or show what comes later."""
    return isinstance(mask, torch.Tensor) and mask.shape == (1, tokens) and bool(mask.all())


def _are_default(positions: Any, first: int, tokens: int) -> bool:
    """True for positions [..., tokens] that count from `first` on."""
    if not isinstance(positions, torch.Tensor) or positions.is_floating_point() or positions.shape[-1] != tokens:
        return False
    return bool((positions == torch.arange(first, first + tokens, device=positions.device)).all())
