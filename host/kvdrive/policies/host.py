"""Policies that run on the host. The tokens that such a policy retains are in this process and on no drive."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray

from kvdrive.config.abilities import Ability
from kvdrive.errors import UnsupportedError
from kvdrive.kvcache.calls import AttachedLayer, KvHandle, LayerCall
from kvdrive.kvcache.scaling import to_half
from kvdrive.policies.base import Policy

Halves = NDArray[np.float16]


class Retained(ABC):
    """The tokens that a policy retains of one sequence in one layer. `bytes_read`: K and V that `attend` has read."""

    bytes_read: int

    @abstractmethod
    def attend(self, q: Halves, k: Halves, v: Halves) -> Halves:
        """Attend to the retained tokens and a new one: its q [heads, g, d], k and v [heads, d] -> out [heads, g, d]."""


class HostPolicy(Policy):
    """A policy that needs data that no drive returns, e.g. attention weights. Its caches cannot be cropped or saved."""

    in_drive: ClassVar[bool] = False
    lacks: ClassVar[Mapping[Ability, str]] = dict.fromkeys(Ability, "it retains the tokens that it chose on the host")

    @abstractmethod
    def retain(self, q: torch.Tensor, k: Halves, v: Halves, scale: float) -> Retained:
        """Choose from a prompt: q [heads, g, n, d] in the model's precision, k and v [heads, n, d] binary16."""

    def new_layer(self) -> HostLayer:
        return HostLayer(self)


class HostLayer(AttachedLayer):
    """One layer of the cache: the retained tokens of each row, which exist after the first call."""

    is_croppable = False

    def __init__(self, policy: HostPolicy) -> None:
        super().__init__()
        self.policy = policy
        self.rows: list[Retained] = []
        self.tokens = 0

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *args: object, **kwargs: object
    ) -> tuple[KvHandle, KvHandle]:
        """Count the tokens; `prefilled` and `attend` store them."""
        handle = KvHandle(self, self.tokens, key_states, value_states)
        self.keys = key_states.new_empty((len(key_states), 0, 0, 0))  # says how many rows there are
        self.tokens += key_states.shape[2]
        self.is_initialized = True
        return handle, handle

    def prefilled(self, call: LayerCall) -> None:
        """See AttachedLayer. Chooses the retained tokens of each row. Raises RangeError."""
        grouped = _grouped(call.query, call.handle.keys)
        k, v = to_half(call.handle.keys, "K"), to_half(call.handle.values, "V")
        for row in range(len(k)):
            seen = _unpadded(call.mask, row, k.shape[2])
            scale = _scale(call.query, call.scaling)
            retained = self.policy.retain(grouped[row][:, :, seen], k[row][:, seen], v[row][:, seen], scale)
            self.rows.append(retained)

    def attend(self, call: LayerCall) -> torch.Tensor:
        """See AttachedLayer; policies that run on the host serve no sinks. Raises RangeError, UnsupportedError."""
        batch, heads, new_tokens, head_dim = call.query.shape
        k, v = to_half(call.handle.keys, "K"), to_half(call.handle.values, "V")
        q = to_half(_grouped(call.query, call.handle.keys), "Q")
        out = np.empty((batch, new_tokens, heads, head_dim), np.float16)
        for row, retained in enumerate(self.rows):
            for i in range(new_tokens):
                result = retained.attend(np.ascontiguousarray(q[row, :, :, i]), k[row, :, i], v[row, :, i])
                out[row, i] = result.reshape(heads, head_dim)
        return torch.from_numpy(out).to(call.query)

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        """Length and offset of the keys that a mask for `query_length` new tokens covers."""
        return self.tokens + query_length, 0

    def get_seq_length(self) -> int:
        """Tokens of the sequence, dropped ones included."""
        return self.tokens

    @property
    def bytes_read(self) -> int:
        """Bytes of K and V that attention has read."""
        return sum(row.bytes_read for row in self.rows)

    def crop(self, tokens_to_remove: int) -> None:
        """Not possible unless nothing is to be removed. Raises UnsupportedError."""
        if tokens_to_remove:
            raise UnsupportedError(f"{self.policy.name} cannot take tokens back: it has dropped others for them")

    def reorder_cache(self, beam_idx: torch.Tensor) -> None:
        """Raises UnsupportedError."""
        raise UnsupportedError(f"{self.policy.name} serves no beam search: use num_beams=1")

    def __deepcopy__(self, memo: dict[int, Any]) -> HostLayer:
        raise UnsupportedError(f"a cache of {self.policy.name} cannot be copied: compute its tokens with another cache")


def _grouped(query: torch.Tensor, keys: torch.Tensor) -> torch.Tensor:
    """query [batch, heads, q, d] -> [batch, kv_heads, g, q, d]."""
    batch, heads, tokens, head_dim = query.shape
    kv_heads = keys.shape[1]
    return query.detach().cpu().reshape(batch, kv_heads, heads // kv_heads, tokens, head_dim)


def _scale(query: torch.Tensor, scaling: float | None) -> float:
    return float(query.shape[-1] ** -0.5 if scaling is None else scaling)


def _unpadded(mask: torch.Tensor | None, row: int, tokens: int) -> torch.Tensor:
    """Indices of the tokens that the prompt's last one may attend to."""
    if mask is None:
        return torch.arange(tokens)
    return torch.nonzero(mask[row, 0, -1]).flatten()
