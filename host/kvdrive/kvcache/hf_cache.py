"""transformers' interface to a batch."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from transformers.cache_utils import Cache, DynamicCache

from kvdrive.errors import UnsupportedError
from kvdrive.kvcache.batch import Batch


class HfCache(Cache):  # type: ignore[misc]
    """What an attached model takes as `past_key_values`. All else that can be asked of the tokens, `batch` answers.

    Several caches of one batch are the same cache.
    """

    def __init__(self, batch: Batch) -> None:
        super().__init__(layers=batch.layers)
        self.batch = batch

    def crop(self, tokens_to_remove: int) -> None:
        """Remove the last `-tokens_to_remove` tokens (transformers passes 0 or a negative number).

        Raises UnsupportedError where a layer cannot take tokens back, CommandError, TargetError.
        """
        if tokens_to_remove > 0:
            raise ValueError("crop takes the number of tokens to remove as a negative number")
        self.batch.crop(-tokens_to_remove)

    def reset(self) -> None:
        """Remove all tokens, on the drives as well."""
        self.batch.reset()

    def reorder_cache(self, beam_idx: torch.Tensor) -> None:
        """Row i becomes what row beam_idx[i] was: beams share what they have in common. Raises CommandError."""
        self.batch.rearrange(beam_idx.tolist())

    def batch_repeat_interleave(self, repeats: int) -> None:
        """Every row `repeats` times, side by side. Raises CommandError."""
        self.batch.rearrange([row for row in range(self.batch.row_count) for _ in range(repeats)])

    def batch_select_indices(self, indices: torch.Tensor) -> None:
        """Keep the rows `indices`. Raises CommandError."""
        self.batch.rearrange(torch.arange(self.batch.row_count)[indices.cpu()].tolist())

    def __deepcopy__(self, memo: dict[int, Any]) -> HfCache:
        """See Batch.fork."""
        copy = self.__class__.__new__(self.__class__)
        copy.__dict__.update(vars(HfCache(self.batch.fork())))
        return copy


class BorrowedCache(HfCache, DynamicCache):  # type: ignore[misc]
    """What a caller's empty DynamicCache becomes when an attached model first gets it (see transformers' guide)."""

    def __iter__(self) -> Iterator[Any]:
        raise UnsupportedError("K and V of this cache are on drives, and no tensors: call the model with the cache")


def borrow(given: DynamicCache, cache: HfCache) -> None:
    """From now on the caller's empty cache `given` is `cache`."""
    given.__class__ = BorrowedCache
    vars(given).clear()
    vars(given).update(vars(cache))
