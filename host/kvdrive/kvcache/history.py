"""The inputs that a model received through a cache, from which the same K and V can be computed again."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from kvdrive.errors import UnsupportedError
from kvdrive.identity.calls import others
from kvdrive.kvcache.overflow import Removal


@dataclass(frozen=True)
class Call:
    """One call of the model. `mask` bool [batch, tokens so far]; None stands for no mask or one without padding.

    `in_prompt`: see Part.
    """

    input_ids: torch.Tensor
    position_ids: torch.Tensor | None
    mask: torch.Tensor | None
    had_mask: bool
    in_prompt: bool = False

    @classmethod
    def of(cls, arguments: dict[str, Any], in_prompt: bool = False) -> Call:
        """The call with these arguments of the model's forward. Raises UnsupportedError if they cannot be recorded."""
        ids, mask = arguments.get("input_ids"), arguments.get("attention_mask")
        if not isinstance(ids, torch.Tensor):
            raise UnsupportedError("a call without input_ids cannot be repeated: its tokens are not known")
        if mask is not None and (not isinstance(mask, torch.Tensor) or mask.dim() != 2):
            raise UnsupportedError("a call with a mask that is not [batch, tokens] cannot be repeated")
        if found := others(arguments):
            raise UnsupportedError(f"a call with {', '.join(found)} cannot be repeated: it is not recorded")
        padding = None if mask is None or bool(mask.all()) else mask.bool().cpu()
        positions = arguments.get("position_ids")
        positions = positions.cpu() if isinstance(positions, torch.Tensor) else positions
        return cls(ids.detach().to("cpu", copy=True), positions, padding, mask is not None, in_prompt)

    def arguments(self, tokens: int, device: torch.device) -> dict[str, Any]:
        """Arguments for the forward, on `device`, that repeat the call. The cache holds `tokens` tokens before it."""
        mask = self.mask
        if mask is None and self.had_mask:
            mask = torch.ones(self.input_ids.shape[0], tokens + self.input_ids.shape[1], dtype=torch.bool)
        return {
            "input_ids": self.input_ids.to(device),
            "position_ids": None if self.position_ids is None else self.position_ids.to(device),
            "attention_mask": None if mask is None else mask.long().to(device),
        }


@dataclass(frozen=True)
class Crop:
    """The last `tokens` tokens were removed."""

    tokens: int


@dataclass(frozen=True)
class Rearrange:
    """Row i became what row rows[i] was."""

    rows: list[int]


class History:
    """Events of one cache in order. `incomplete`: why a replay is impossible, if it is."""

    def __init__(self) -> None:
        self.events: list[Call | Crop | Rearrange | Removal] = []
        self.incomplete: str | None = None

    def add_call(self, arguments: dict[str, Any], in_prompt: bool = False) -> None:
        """Add a call that succeeded."""
        try:
            self.events.append(Call.of(arguments, in_prompt))
        except UnsupportedError as error:
            self.incomplete = str(error)

    def removals(self) -> list[Removal]:
        """All removals from the middle, in order."""
        return [event for event in self.events if isinstance(event, Removal)]

    def token_ids(self) -> torch.Tensor:
        """Tokens of the cache, int64 [batch, tokens], those included that were removed from the middle.

        Raises UnsupportedError when they are not known.
        """
        self.require_complete()
        ids: torch.Tensor | None = None
        for event in self.events:
            if isinstance(event, Call):
                ids = event.input_ids if ids is None else torch.cat([ids, event.input_ids], dim=1)
            elif ids is not None and not isinstance(event, Removal):
                ids = ids[:, : -event.tokens] if isinstance(event, Crop) else ids[event.rows]
        if ids is None:
            raise UnsupportedError("the cache is empty")
        return ids

    def position_ids(self) -> torch.Tensor | None:
        """Positions of the cache's tokens, int64 [batch or 1, tokens], cropped and rearranged like the cache.

        None: those that the model itself chooses. Raises UnsupportedError when they are not known.
        """
        calls = [event for event in self.events if isinstance(event, Call)]
        given = [call for call in calls if call.position_ids is not None]
        if given and any(call.mask is not None for call in calls if call.position_ids is None):
            raise UnsupportedError("the positions of some calls with padding are not known")
        found, plain = torch.empty(1, 0, dtype=torch.int64), not given
        for event in self.events:
            if isinstance(event, Call):
                first = found.shape[1]
                numbers = torch.arange(first, first + event.input_ids.shape[1])[None]
                own = numbers if event.position_ids is None else event.position_ids.cpu()
                if torch.equal(own, numbers.expand_as(own)):
                    own = numbers
                if own.dim() != 2:
                    raise UnsupportedError("positions of several axes are not recorded")
                found = _side_by_side(found, own)
            elif isinstance(event, Crop):
                found = found[:, : -event.tokens]
            elif isinstance(event, Rearrange) and len(found) > 1:
                found = found[event.rows]
        hidden = any(call.mask is not None for call in calls)
        plain = plain or (not hidden and torch.equal(found, torch.arange(found.shape[1]).expand_as(found)))
        return None if plain else found

    def last_mask(self) -> torch.Tensor | None:
        """Mask of the last call, bool [batch, tokens], cropped and rearranged like the cache; None without padding."""
        mask: torch.Tensor | None = None
        for event in self.events:
            if isinstance(event, Call):
                mask = event.mask
            elif mask is not None and not isinstance(event, Removal):
                mask = mask[:, : -event.tokens] if isinstance(event, Crop) else mask[event.rows]
        return mask

    def require_complete(self) -> None:
        """Raises UnsupportedError when an input of the cache was not recorded."""
        if self.incomplete:
            raise UnsupportedError(self.incomplete)


def _side_by_side(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """[rows or 1, n] and [rows or 1, m] -> [rows or 1, n + m]."""
    rows = max(len(a), len(b))
    return torch.cat([a.expand(rows, -1), b.expand(rows, -1)], dim=1)
