"""The interface of a cache to an attached model and its callers. It does not depend on where the tokens are."""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from weakref import WeakSet

import torch
from transformers.cache_utils import Cache, CacheLayerMixin

from kvdrive import abi
from kvdrive.errors import KvdriveError, UnsupportedError
from kvdrive.kvcache.history import History
from kvdrive.kvcache.overflow import Removal
from kvdrive.nvme.errors import CommandError

LayersInMemory = Callable[[], dict[int, CacheLayerMixin]]  # makes the layers that stay in memory, by index


class AttachedLayer(CacheLayerMixin, ABC):  # type: ignore[misc]
    """One layer of an `AttachedCache`. `update` takes new tokens and returns a `KvHandle` in place of K and of V."""

    is_sliding = False

    @abstractmethod
    def prefilled(self, call: LayerCall) -> None:
        """Told after the first call of a sequence, which attends on the host."""

    def earlier(self, handle: KvHandle) -> tuple[torch.Tensor, torch.Tensor] | None:
        """K and V [batch, heads, tokens, d] of the tokens before a call that attends on the host; None: `attend` does.

        Such calls are the later parts of a prompt that is computed in parts (`AttachedCache.in_prompt`).
        """
        return None

    @abstractmethod
    def attend(self, call: LayerCall) -> torch.Tensor:
        """Attention of a later call: [batch, q, heads, d]."""

    def get_max_length(self) -> int:
        """Always -1: the layer has no maximum length."""
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


@dataclass(frozen=True)
class LayerCall:
    """What one call of the model asks of a layer: `query` [batch, heads, q, d].

    `mask` bool [batch, 1, q, tokens], None: every token sees all before it. `scaling` None: 1 / sqrt(d). `sinks`
    [heads]: each query head also attends to a token with this score and V = 0. `in_memory`: the same attention, without
    a mask, of a query to K and V [1, heads, tokens, d] in memory.
    """

    handle: KvHandle
    query: torch.Tensor
    mask: torch.Tensor | None
    scaling: float | None
    sinks: torch.Tensor | None = None
    in_memory: Callable[[torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor] | None = None


class AttachedCache(Cache, ABC):  # type: ignore[misc]
    """The cache of one batch. `saved_at`: the file from which a later process can open it.

    `in_prompt`: the next call goes on with a prompt whose first part the cache holds. Set by the caller, who computes a
    prompt in parts; attention in its later parts is then on the host as well, as in the first one, where the cache can
    give K and V back.
    """

    def __init__(self, layers: list[CacheLayerMixin]) -> None:
        self.in_prompt = False
        self.history = History()
        self.saved_at: Path | None = None
        self.family: WeakSet[AttachedCache] = WeakSet()  # all caches of the attachment; a copy is one of them
        super().__init__(layers=layers)

    def __deepcopy__(self, memo: dict[int, Any]) -> AttachedCache:
        raise UnsupportedError(f"a {type(self).__name__} cannot be copied: compute its tokens with another cache")

    def calling(self, arguments: dict[str, Any]) -> None:
        """Told before each call of the model, with the arguments of its `forward`."""

    def run(self, forward: Callable[..., Any], bound: inspect.BoundArguments) -> Any:
        """Call the model's `forward` with these arguments, which have this cache. Raises what the layers raise."""
        return forward(*bound.args, **bound.kwargs)

    def called(self, arguments: dict[str, Any]) -> None:
        """Remember a successful call of the model, with the arguments of its `forward`."""
        self.history.add_call(arguments, self.in_prompt)

    def token_ids(self) -> torch.Tensor:
        """The tokens that the cache holds, int64 [batch, tokens]. Raises UnsupportedError when they are not known."""
        return self.history.token_ids()

    @property
    def is_kept(self) -> bool:
        """True if a store of sessions keeps the tokens: what a drive loses of them is computed again."""
        return False

    @property
    def removals(self) -> list[Removal]:
        """Tokens that were removed because the positions were used up, in order."""
        return self.history.removals()

    @property
    def removed(self) -> int:
        """How many tokens were removed. `get_seq_length` counts them, because positions go on counting."""
        return 0

    def remove(self, tokens: int, forward: Callable[..., Any], device: torch.device) -> None:
        """Remove `tokens` tokens, whole groups, behind the first group.

        The model's `forward` computes the first group again on `device`, so that it is next to the rest. Raises
        UnsupportedError.
        """
        raise UnsupportedError("this cache cannot lose tokens in its middle: take overflow 'error'")

    def model_changed(self, reason: str) -> None:
        """Called after a change of the model: the tokens in the cache can be neither recomputed nor saved."""
        if self.get_seq_length():
            self.history.incomplete = reason

    def catch_up(self, forward: Callable[..., Any], device: torch.device) -> None:
        """Told before each call: do what `remove` did for tokens that were removed in another process."""

    def make_room(self) -> bool:
        """A drive is full. Returns True if stored sessions were evicted, so that the call may succeed now."""
        return False

    def survives(self, error: KvdriveError) -> bool:
        """True if a call that failed with `error` may succeed now: stored sessions were evicted from a full drive."""
        full = isinstance(error, CommandError) and error.status == abi.NvmeStatus.CAPACITY_EXCEEDED
        return full and self.make_room()

    @abstractmethod
    def undo(self, tokens: int) -> None:
        """Go back to the first `tokens` tokens after a failed call."""

    @abstractmethod
    def recompute(self, forward: Callable[..., Any], device: torch.device) -> None:
        """Compute the same K and V again, for the remaining drives, with the model's `forward` on `device`.

        Raises KvdriveError.
        """

    def compute_instead(self, forward: Callable[..., Any], device: torch.device) -> None:
        """A load is late: compute its tokens with the model's `forward` on `device`, and go on. Raises KvdriveError."""
        raise NotImplementedError

    @abstractmethod
    def reset(self) -> None:
        """Remove all tokens."""

    @abstractmethod
    def erase(self) -> None:
        """Remove all tokens and erase their bytes from the drives' files. Tokens shared with other caches stay there.

        Raises CommandError, TargetError.
        """

    @abstractmethod
    def leave(self) -> None:
        """Called when the model is detached: remove all tokens, unless the cache is saved."""

    @abstractmethod
    def synchronize(self) -> None:
        """Wait until the drives have received all K and V. Raises the error of a drive that failed."""

    @abstractmethod
    def bytes_read(self) -> int:
        """Bytes of K and V that attention has read. On drives, reads by other caches count too."""

    @abstractmethod
    def writeback(self) -> dict[str, Any] | None:
        """Statistics of tokens written to the drives and pending on the host; None if the cache does not write."""

    def unread_mass(self) -> dict[str, float] | None:
        """Share of the softmax that was probably not read: `mean` and `worst` of `steps` decode steps.

        They count from the last `measure_unread_anew` on. None if the policy reads everything, or does not know.
        """
        return None

    def measure_unread_anew(self) -> None:
        """Forget what `unread_mass` has counted."""

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
        """From now on, treat each token of a call as a separate decode step; its reads are then those of decoding."""
