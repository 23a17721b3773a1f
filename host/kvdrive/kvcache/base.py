"""What an attached model and its callers ask of a cache, wherever its tokens are."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from transformers.cache_utils import Cache, CacheLayerMixin

from kvdrive.kvcache.history import History

LayersInMemory = Callable[[], dict[int, CacheLayerMixin]]  # makes the layers that transformers keeps, by index


class AttachedLayer(CacheLayerMixin, ABC):  # type: ignore[misc]
    """One layer of an `AttachedCache`. `update` takes new tokens and returns a `KvHandle` in place of K and of V."""

    is_sliding = False

    @abstractmethod
    def prefilled(
        self, handle: KvHandle, query: torch.Tensor, mask: torch.Tensor | None, scaling: float | None
    ) -> None:
        """The first call of a sequence has attended on the host; the arguments are those of `attend`."""

    @abstractmethod
    def attend(
        self,
        handle: KvHandle,
        query: torch.Tensor,
        mask: torch.Tensor | None,
        scaling: float | None,
        sinks: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """Attention of a later call: query [batch, heads, q, d] -> [batch, q, heads, d].

        `mask` bool [batch, 1, q, tokens], None: every token sees all before it. `scaling` None: 1 / sqrt(d). `sinks`
        [heads]: each query head also attends to a token with this score and V = 0.
        """

    def get_max_length(self) -> int:
        """-1: no maximum of its own."""
        return -1


@dataclass(frozen=True)
class KvHandle:
    """What `update` returns in place of K and of V.

    `first_token`: tokens of the layer before this call. `keys`, `values`: this call's own, [batch, heads, tokens, d].
    """

    layer: AttachedLayer
    first_token: int
    keys: torch.Tensor
    values: torch.Tensor


class AttachedCache(Cache, ABC):  # type: ignore[misc]
    """The cache of one batch. `saved_at`: the file that a later process opens it from."""

    def __init__(self, layers: list[CacheLayerMixin]) -> None:
        self.history = History()
        self.saved_at: Path | None = None
        super().__init__(layers=layers)

    def called(self, arguments: dict[str, Any]) -> None:
        """A call of the model with these arguments of its `forward` succeeded: it is remembered."""
        self.history.add_call(arguments)

    def token_ids(self) -> torch.Tensor:
        """The tokens that the cache holds, int64 [batch, tokens]. Raises UnsupportedError when they are not known."""
        return self.history.token_ids()

    @abstractmethod
    def undo(self, tokens: int) -> None:
        """A call failed: back to the first `tokens` tokens."""

    @abstractmethod
    def recompute(self, forward: Callable[..., Any], device: torch.device) -> None:
        """Make the same K and V again on the drives that are left, by `forward` of the model, which is on `device`.

        Raises KvdriveError.
        """

    @abstractmethod
    def reset(self) -> None:
        """Forget everything."""

    @abstractmethod
    def erase(self) -> None:
        """Forget everything, and leave no byte of it in the drives' files; what other caches share stays there.

        Raises CommandError, TargetError.
        """

    @abstractmethod
    def leave(self) -> None:
        """The model is detached: forget everything, unless it is saved."""

    @abstractmethod
    def synchronize(self) -> None:
        """Wait until the drives have everything that was sent. Raises what a drive raised."""

    @abstractmethod
    def bytes_read(self) -> int:
        """Bytes of K and V that attention has read: on drives, by all that use them."""

    @abstractmethod
    def writeback(self) -> dict[str, Any] | None:
        """What was written to the drives and what is pending on the host; None where nothing is written."""

    @abstractmethod
    def save(self, path: Path) -> None:
        """Make the tokens durable; `path` describes them for `reopen`.

        Raises UnsupportedError, CommandError, TargetError.
        """

    @abstractmethod
    def reopen(self, path: Path) -> None:
        """Fill this empty cache with what `save` left.

        Raises InputError, UnsupportedError, CommandError, TargetError.
        """

    @abstractmethod
    def rate_singly(self) -> None:
        """From now on every token of a call is a decode step of its own, so that reads are those of decode steps."""
