"""A cache that the caller has made himself, as transformers' guide on caches does: it stands for one on drives."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import torch
from transformers.cache_utils import DynamicCache

from kvdrive.errors import UnsupportedError
from kvdrive.kvcache.hf_cache import HfCache


class BorrowedCache(DynamicCache):  # type: ignore[misc]
    """What a caller's empty DynamicCache becomes when an attached model first gets it.

    Whatever the caller asks of it, `stands_for` answers: its length, crops, beams, copies. That cache lives as long as
    the caller's object.
    """

    stands_for: HfCache

    def __getattr__(self, name: str) -> Any:
        if name == "stands_for":
            raise AttributeError(name)
        return getattr(self.stands_for, name)

    def __iter__(self) -> Iterator[Any]:
        raise UnsupportedError("K and V of this cache are on drives, and no tensors: call the model with the cache")

    def __deepcopy__(self, memo: dict[int, Any]) -> BorrowedCache:
        return _stand_in(self.__class__.__new__(self.__class__), copy.deepcopy(self.stands_for, memo))

    def crop(self, tokens_to_remove: int) -> None:
        self.stands_for.crop(tokens_to_remove)

    def reset(self) -> None:
        self.stands_for.reset()

    def reorder_cache(self, beam_idx: torch.Tensor) -> None:
        self.stands_for.reorder_cache(beam_idx)

    def batch_repeat_interleave(self, repeats: int) -> None:
        self.stands_for.batch_repeat_interleave(repeats)

    def batch_select_indices(self, indices: torch.Tensor) -> None:
        self.stands_for.batch_select_indices(indices)


def borrow(given: DynamicCache, cache: HfCache) -> None:
    """From now on the caller's empty cache `given` stands for `cache`."""
    given.__class__ = BorrowedCache
    vars(given).clear()
    _stand_in(given, cache)


def _stand_in(given: BorrowedCache, cache: HfCache) -> BorrowedCache:
    given.stands_for = cache
    return given
