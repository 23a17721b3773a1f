"""One layer of a drive cache: K and V go to the drives or wait in the tail, queries come back answered."""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from transformers.cache_utils import CacheLayerMixin

from kvdrive.errors import UnsupportedError
from kvdrive.kernels.native import scale_bits
from kvdrive.kvcache.scaling import HeadScale, exponents_of, scaled_halves
from kvdrive.kvcache.sequence import Slice, gather
from kvdrive.kvcache.session import Query, attend
from kvdrive.kvcache.tail import Tail
from kvdrive.nvme.commands import AttentionOutput, Halves
from kvdrive.targets.base import Target
from kvdrive.targets.queue import DriveQueue

if TYPE_CHECKING:
    from kvdrive.kvcache.cache import DriveCache

_MINI_BATCH = 8  # queries that a drive works on while the host prepares the next ones


@dataclass(frozen=True)
class KvHandle:
    """What `update` returns in place of K and of V.

    `first_token`: tokens of the layer before this call. `keys`, `values`: this call's own, [batch, heads, tokens, d],
    which the first call of a sequence attends to without the drive.
    """

    layer: DriveLayer
    first_token: int
    keys: torch.Tensor
    values: torch.Tensor


class DriveLayer(CacheLayerMixin):  # type: ignore[misc]
    """Layer `index` of `cache`: `stored` tokens on the drives, then those of the tail."""

    is_croppable = True
    is_sliding = False

    def __init__(self, cache: DriveCache, index: int) -> None:
        super().__init__()
        self._cache = weakref.ref(cache)  # no cycle: a cache that nobody has any more goes at once
        self.index = index
        self.forget()

    @property
    def cache(self) -> DriveCache:
        """The cache of this layer."""
        cache = self._cache()
        assert cache is not None
        return cache

    def forget(self) -> None:
        """Back to the empty layer; the drives are not told."""
        self.stored = 0
        self.tail: Tail | None = None
        self.key_scale = HeadScale(f"K of layer {self.index}")
        self.value_scale = HeadScale(f"V of layer {self.index}")
        self.is_initialized = False

    @property
    def tokens(self) -> int:
        """Tokens held, on the drives and in the tail."""
        return self.stored + (self.tail.count if self.tail else 0)

    def lazy_initialization(self, key_states: torch.Tensor, value_states: torch.Tensor) -> None:
        """Opens the sequences with the first layer's first states."""
        batch, heads, _, head_dim = key_states.shape
        self.cache.open(batch, heads)
        self.resume(0, batch, heads, head_dim)

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *args: object, **kwargs: object
    ) -> tuple[KvHandle, KvHandle]:
        """Take K and V [batch, heads, tokens, d].

        The first call of a sequence and long ones go to the drives at once, others wait in the tail until `spill`.
        Raises RangeError, CommandError, TargetError, UnsupportedError.
        """
        self.cache.require_usable()
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        assert self.tail is not None
        if len(self.cache.sequences) != key_states.shape[0]:
            raise UnsupportedError(
                f"the cache holds {len(self.cache.sequences)} sequences, the call {key_states.shape[0]}"
            )
        first, spill = self.tokens, self.cache.backing.spill
        self.cache.transfers.make_room()
        k, v = self.key_scale.convert(key_states), self.value_scale.convert(value_states)
        if first == 0 or k.shape[2] >= spill:
            self._spill(self.tail.count)
            self._send(k, v)
        else:
            self.tail.add(k, v)
        handle = KvHandle(self, first, key_states, value_states)
        return handle, handle

    def attend(
        self, query: torch.Tensor, first_token: int, mask: torch.Tensor | None, scaling: float | None
    ) -> torch.Tensor:
        """query [batch, heads, q, d], whose first token is number `first_token` -> [batch, q, heads, d].

        Writes the tail back when it is due. Raises RangeError, CommandError, TargetError, UnsupportedError.
        """
        batch, heads, new_tokens, head_dim = query.shape
        kv_heads = self._kv_heads
        grouped = query.reshape(batch, kv_heads, -1, head_dim)
        exponents = exponents_of(grouped, f"Q of layer {self.index}")
        halves, _ = scaled_halves(grouped, exponents)
        q = halves.reshape(batch, kv_heads, heads // kv_heads, new_tokens, head_dim)
        out = np.empty((batch, new_tokens, kv_heads, heads // kv_heads, head_dim), np.float16)
        scales = _score_scales(exponents + self._exponents(self.key_scale), scaling, head_dim)

        asked: dict[DriveQueue, list[tuple[Query, NDArray[np.float16]]]] = {}
        answers: list[Future[None]] = []
        for token in range(new_tokens):
            for row, sequence in enumerate(self.cache.sequences):
                seen = self._seen(mask, row, token, first_token + token + 1)
                for one in sequence:
                    jobs = asked.setdefault(one.queue, [])
                    jobs += self._queries(one, q[row, :, :, token], out[row, token], scales[row], row, seen)
                    if len(jobs) >= _MINI_BATCH:
                        answers.append(one.queue.start(partial(_answer, asked.pop(one.queue))))
        answers += [queue.start(partial(_answer, jobs)) for queue, jobs in asked.items()]
        try:
            gather(answers)
        except Exception:
            self.cache.transfers.finish()  # an append that failed is the reason, and says more
            raise
        self._write_back()
        return self._to_tensor(out, query).reshape(batch, new_tokens, heads, head_dim)

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        """Length and offset of the keys that a mask for `query_length` new tokens covers."""
        return self.tokens + query_length, 0

    def get_seq_length(self) -> int:
        """Tokens held."""
        return self.tokens

    def get_max_length(self) -> int:
        """-1: no maximum of its own."""
        return -1

    def write_all(self) -> None:
        """Send what waits in the tail. Raises CommandError, TargetError."""
        if self.tail:
            self._spill(self.tail.count)

    def truncate(self, tokens: int) -> None:
        """Keep the first `tokens` tokens; those on the drives are trimmed by the cache."""
        if self.tail:
            self.tail.count = min(self.tail.count, max(tokens - self.stored, 0))
        self.stored = min(self.stored, tokens)

    def shape(self) -> dict[str, int]:
        """KV heads and head dimension; 0 before the first call."""
        k = self.tail.k if self.tail else np.empty((0, 0, 0, 0))
        return {"kv_heads": k.shape[1], "head_dim": k.shape[3]}

    def resume(self, tokens: int, batch: int, kv_heads: int, head_dim: int) -> None:
        """Go on after `tokens` tokens that an earlier process left on the drives."""
        self.stored = tokens
        self.tail = Tail(batch, kv_heads, 2 * self.cache.backing.spill, head_dim)
        self.is_initialized = True

    def rearrange(self, rows: list[int]) -> None:
        """Row i becomes what row rows[i] was."""
        if self.tail:
            self.tail.rearrange(rows)
        self.key_scale.rearrange(rows)
        self.value_scale.rearrange(rows)

    @property
    def _kv_heads(self) -> int:
        return self.shape()["kv_heads"]

    def _write_back(self) -> None:
        """Whole multiples of the spill interval go to the drives while the model goes on."""
        due = self.tokens // self.cache.backing.spill * self.cache.backing.spill - self.stored
        if due > 0:
            self._spill(due)

    def _spill(self, tokens: int) -> None:
        if tokens:
            assert self.tail is not None
            self.cache.transfers.make_room()
            self._send(*self.tail.take(tokens))

    def _send(self, k: Halves, v: Halves) -> None:
        futures: list[Future[None]] = []
        for row, sequence in enumerate(self.cache.sequences):
            futures += sequence.append(self.index, self.stored, k[row], v[row], self.cache.transfers.worked)
        self.cache.transfers.add(k.nbytes + v.nbytes, futures)
        self.stored += k.shape[2]

    def _exponents(self, scale: HeadScale) -> NDArray[np.int64]:
        assert scale.exponents is not None
        return scale.exponents

    def _seen(
        self, mask: torch.Tensor | None, row: int, token: int, tokens: int
    ) -> tuple[int, NDArray[np.bool_] | None, NDArray[np.intp]]:
        """What a query may attend to: tokens on the drives, their validity, and which ones of the tail."""
        stored = min(self.stored, tokens)
        allowed = _allowed(mask, row, token, tokens)
        if allowed is None:
            return stored, None, np.arange(tokens - stored)
        valid = allowed[:stored]
        return stored, None if valid.all() else valid, np.flatnonzero(allowed[stored:])

    def _queries(
        self,
        one: Slice,
        q: Halves,
        out: Halves,
        scales: NDArray[np.uint32],
        row: int,
        seen: tuple[int, NDArray[np.bool_] | None, NDArray[np.intp]],
    ) -> Iterator[tuple[Query, Halves]]:
        """q [heads, g, d] to a slice, and where its answers go; one query for each run of heads with the same scale."""
        assert self.tail is not None
        stored, valid, waiting = seen
        how = self.cache.policy.parameters(stored, q.shape[2], valid, len(waiting))
        for first, last in _runs(scales[one.first : one.last], one.first):
            scale = int(scales[first])
            part = np.ascontiguousarray(q[first:last])
            scores = tail_v = None
            if len(waiting):
                scores = self.cache.scorer.scores(part, self.tail.k[row, first:last][:, waiting], scale)
                tail_v = self.tail.v[row, first:last][:, waiting]
            query = Query(one.session, self.index, part, stored, scale, how, first - one.first, scores, tail_v)
            yield query, out[first:last]

    def _to_tensor(self, out: Halves, query: torch.Tensor) -> torch.Tensor:
        """[batch, q, heads, g, d] in the model's precision, V's scale undone."""
        result = torch.from_numpy(out).to(device=query.device)
        exponents = self._exponents(self.value_scale)
        if exponents.any():
            result = result.double() * torch.from_numpy(np.exp2(exponents))[:, None, :, None, None].to(query.device)
        return result.to(query.dtype)


def _answer(jobs: list[tuple[Query, Halves]], target: Target) -> None:
    """Attend, and put every output in its place."""
    results: list[AttentionOutput] = attend(target, [query for query, _ in jobs])
    for (_, out), result in zip(jobs, results, strict=True):
        out[:] = result.out


def _score_scales(exponents: NDArray[np.int64], scaling: float | None, head_dim: int) -> NDArray[np.uint32]:
    """Binary32 patterns [batch, heads] of the factor from the halves' dot products to the scores' logarithm of two."""
    scale = head_dim**-0.5 if scaling is None else scaling
    known = {int(e): scale_bits(scale * 2.0 ** int(e), head_dim) for e in np.unique(exponents)}
    return np.array([[known[int(e)] for e in row] for row in exponents], np.uint32)


def _runs(values: NDArray[np.uint32], offset: int) -> Iterator[tuple[int, int]]:
    """Where equal neighbours begin and end."""
    changes = np.flatnonzero(np.diff(values)) + 1
    return pairwise((offset, *(changes + offset).tolist(), offset + len(values)))


def _allowed(mask: torch.Tensor | None, row: int, token: int, tokens: int) -> NDArray[np.bool_] | None:
    """Row `token` of the mask [batch, 1, q, tokens] as bool [tokens]; None where every token counts."""
    if mask is None:
        return None
    if mask.dtype != torch.bool or mask.shape[1] != 1:
        raise UnsupportedError("only boolean masks that are the same for all heads can go to the drive")
    allowed: NDArray[np.bool_] = mask[row if mask.shape[0] > 1 else 0, 0, token].cpu().numpy()
    if allowed[tokens:].any():
        raise UnsupportedError("the mask lets a token attend to later ones: the drive serves causal models only")
    return None if allowed[:tokens].all() else allowed[:tokens]
