"""A transformers cache whose keys and values live on a drive.

The model gets an opaque handle instead of tensors; the attention function of `plugins.transformers` understands it.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from transformers.cache_utils import Cache, CacheLayerMixin

from kvdrive import abi
from kvdrive.errors import UnsupportedError
from kvdrive.kvcache.half import to_half
from kvdrive.kvcache.session import Session
from kvdrive.policies.base import Policy
from kvdrive.targets.base import Target


@dataclass(frozen=True)
class KvHandle:
    """What `update` returns in place of K and of V.

    `sessions`: one per row of the batch. `first_token`: tokens on the drive before this call. `states`: this call's own
    K or V, [batch, heads, new tokens, d], which the first call of a sequence attends to without the drive.
    """

    layer: int
    sessions: list[Session]
    policy: Policy
    first_token: int
    states: torch.Tensor


class DriveLayer(CacheLayerMixin):  # type: ignore[misc]
    """One layer: sends what `update` gets to the sessions of the cache."""

    is_croppable = True
    is_sliding = False

    def __init__(self, cache: DriveCache, index: int) -> None:
        super().__init__()
        self.cache = cache
        self.index = index
        self.tokens = 0

    def lazy_initialization(self, key_states: torch.Tensor, value_states: torch.Tensor) -> None:
        """Opens the sessions with the first layer's first states."""
        self.cache.open_sessions(key_states.shape[0])
        self.is_initialized = True

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *args: object, **kwargs: object
    ) -> tuple[KvHandle, KvHandle]:
        """Append K and V [batch, heads, tokens, d] to the drive. Raises RangeError, CommandError, UnsupportedError."""
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        sessions, policy = self.cache.sessions, self.cache.policy
        if len(sessions) != key_states.shape[0]:
            raise UnsupportedError(f"the cache holds {len(sessions)} sequences, the call {key_states.shape[0]}")
        first = self.tokens
        keys = to_half(key_states, f"K of layer {self.index}")
        values = to_half(value_states, f"V of layer {self.index}")
        for session, k, v in zip(sessions, keys, values, strict=True):
            session.append(self.index, abi.KvKind.KEYS, first, k)
            session.append(self.index, abi.KvKind.VALUES, first, v)
        self.tokens += key_states.shape[2]
        return KvHandle(self.index, sessions, policy, first, key_states), KvHandle(
            self.index, sessions, policy, first, value_states
        )

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        """Length and offset of the keys that a mask for `query_length` new tokens covers."""
        return self.tokens + query_length, 0

    def get_seq_length(self) -> int:
        """Tokens held."""
        return self.tokens

    def get_max_length(self) -> int:
        """-1: no maximum of its own."""
        return -1


class DriveCache(Cache):  # type: ignore[misc]
    """The cache of one batch on `target`: one session per row, opened by the first call, forgotten by `reset`."""

    def __init__(self, target: Target, layers: int, policy: Policy) -> None:
        self.target = target
        self.policy = policy
        self.sessions: list[Session] = []
        super().__init__(layers=[DriveLayer(self, index) for index in range(layers)])

    def open_sessions(self, batch: int) -> None:
        """Sessions for `batch` rows, unless they are open."""
        if not self.sessions:
            self.sessions = [Session(self.target, self.policy.append_options) for _ in range(batch)]

    def crop(self, tokens_to_remove: int) -> None:
        """Remove the last `-tokens_to_remove` tokens (transformers passes 0 or a negative number)."""
        if tokens_to_remove > 0:
            raise ValueError("crop takes the number of tokens to remove as a negative number")
        if tokens_to_remove < 0:
            self._trim(max(self.get_seq_length() + tokens_to_remove, 0))

    def reset(self) -> None:
        """Forget everything, on the drive as well."""
        self._trim(0)
        self.sessions = []
        for layer in self.layers:
            layer.is_initialized = False

    def reorder_cache(self, beam_idx: torch.Tensor) -> None:
        """Not supported."""
        raise UnsupportedError("beam search needs sessions that share tokens: use num_beams=1")

    def batch_repeat_interleave(self, repeats: int) -> None:
        """Not supported."""
        raise UnsupportedError("the rows of a batch on the drive cannot be repeated: repeat the prompt instead")

    def batch_select_indices(self, indices: torch.Tensor) -> None:
        """Not supported."""
        raise UnsupportedError("the rows of a batch on the drive cannot be selected: generate each row by itself")

    def _trim(self, tokens: int) -> None:
        for session in self.sessions:
            session.trim(tokens)
        for layer in self.layers:
            layer.tokens = min(layer.tokens, tokens)
