"""One layer of a drive cache. It sends K and V to the drives, at once or after a time as pending tokens."""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Iterator
from collections.abc import Sequence as Several
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray

from kvdrive import abi
from kvdrive.errors import UnsupportedError
from kvdrive.kernels.native import scale_bits
from kvdrive.kvcache.arrivals import Arriving, Rounded, arrived, depart, host_halves, leaves_late, to_device
from kvdrive.kvcache.base import AttachedLayer, KvHandle, LayerCall
from kvdrive.kvcache.pending import PendingTokens, Scores, sink_scores, with_sinks
from kvdrive.kvcache.scaling import Exponents, Factors, HeadScale, to_halves
from kvdrive.kvcache.seen import HIDDEN, LOWEST_MAX, Seen, blocks, seen_by
from kvdrive.kvcache.sequence import Answer, Endpoint, Sequence, Slice, gather
from kvdrive.kvcache.session import Query
from kvdrive.kvcache.unread import UnreadMass
from kvdrive.kvcache.xcache.inputs import Inputs
from kvdrive.kvcache.xcache.sequence import InputSequence
from kvdrive.nvme.commands import Halves
from kvdrive.targets.base import Target
from kvdrive.targets.queue import WorkQueue

if TYPE_CHECKING:
    from kvdrive.kvcache.cache import DriveCache
    from kvdrive.policies.drive import DrivePolicy

_MINI_BATCH = 8  # queries sent to a drive together; it works on them while the host prepares the next ones


@dataclass(frozen=True)
class Queries:
    """The queries of one call of a layer and where their answers go.

    q [batch, kv_heads, g, tokens, d], `out` [batch, tokens, kv_heads, g, d], binary16; `scales` [batch, kv_heads],
    binary32 patterns; `sinks` int32 [kv_heads, g]: the score of a token with V = 0, None without one. `mask` bool
    [batch, 1, tokens, keys]; the call's first token is number `first_token`.
    """

    q: Halves
    out: Halves
    scales: NDArray[np.uint32]
    sinks: Scores | None
    mask: torch.Tensor | None
    first_token: int


@dataclass(frozen=True)
class Job:
    """A query and its answers' array [heads, tokens, g, d]. `hides`: some tokens do not see all inline tokens.

    `unread`: gets the drive's estimates of what was left unread, for the step behind `step` tokens.
    """

    query: Query
    out: Halves
    hides: bool
    unread: UnreadMass | None = None
    step: int = 0


class HiddenCountsError(Exception):
    """All scores of a query are so low that tokens hidden from it would count. Its token has to ask separately."""


class DriveLayer(AttachedLayer):
    """Layer `index` of `cache`: `stored` tokens on the drives, then the pending ones."""

    is_croppable = True

    def __init__(self, cache: DriveCache, index: int) -> None:
        super().__init__()
        self._cache = weakref.ref(cache)  # a weak reference: without a cycle, an unreferenced cache is freed at once
        self.index = index
        self.forget()

    @property
    def cache(self) -> DriveCache:
        """The cache of this layer."""
        cache = self._cache()
        assert cache is not None
        return cache

    def forget(self) -> None:
        """Make the layer empty. Sends no command to the drives."""
        self.stored = 0
        self.pending: PendingTokens | None = None
        self._arriving: tuple[Arriving, Arriving] | None = None  # K and V of the last call, where it has not taken them
        self._turn: tuple[Halves, Halves] | None = None  # K and V of a call that went to the drives at once
        self.moved: tuple[Halves, Halves] | None = None  # K and V of the first group, moved behind removed tokens
        backing = self.cache.backing
        shipped = backing.scales.get(self.index)
        of_k, of_v = (shipped.k, shipped.v) if shipped else (None, None)
        self.key_scale = HeadScale(f"K of layer {self.index}", backing.stored_as, of_k)
        self.value_scale = HeadScale(f"V of layer {self.index}", backing.stored_as, of_v)
        self._plain_scales: tuple[Factors, float | None, NDArray[np.uint32]] | None = None  # the last, and of what
        self.is_initialized = False

    @property
    def tokens(self) -> int:
        """Tokens held, on the drives and pending."""
        if self._arriving is not None:
            self.land()
        return self.stored + (self.pending.count if self.pending else 0)

    def lazy_initialization(self, key_states: torch.Tensor, value_states: torch.Tensor) -> None:
        """Open the sequences, when the first layer gets its first states."""
        batch, heads, _, head_dim = key_states.shape
        self.cache.open(batch, heads)
        self._begin(0, batch, heads, head_dim)

    def update(
        self,
        key_states: torch.Tensor,
        value_states: torch.Tensor,
        *args: object,
        inputs: Inputs | None = None,
        **kwargs: object,
    ) -> tuple[KvHandle, KvHandle]:
        """Take K and V [batch, heads, tokens, d], from a GPU when they have arrived.

        The first call of a sequence and long ones go to the drives at once. Tokens of other calls are pending until
        there are `spill` of them. `inputs`: the call's, for X-cache; None: those that the hooks noted.
        Raises RangeError, CommandError, TargetError, UnsupportedError.
        """
        self._begin_call(key_states, value_states)
        first = self.tokens
        if leaves_late(key_states) and self.cache.backing.xcache is None:
            self._arriving = depart(key_states), depart(value_states)
            self.cache.land_behind(self)
        else:
            self._receive(first, key_states, value_states, inputs)
        handle = KvHandle(self, first, key_states, value_states)
        return handle, handle

    def land(self) -> None:
        """Take the K and V that are on their way from the model's device, if there are any; wait for them.

        Raises RangeError.
        """
        if self._arriving is None:
            return
        (k, v), self._arriving = self._arriving, None
        self._receive(self.tokens, k.wait(), v.wait(), None)

    def _receive(
        self, first: int, keys: torch.Tensor | Rounded, values: torch.Tensor | Rounded, inputs: Inputs | None
    ) -> None:
        """Take the K and V of tokens from number `first` on."""
        k, v = self.key_scale.convert(keys), self.value_scale.convert(values)
        self._note_inputs(first, inputs)
        self._turn = (k, v) if self._take(k, v) and first > 0 else None

    def drop_arriving(self) -> None:
        """Forget K and V on their way from the model's device: their call has failed."""
        self._arriving = None

    def _begin_call(self, key_states: torch.Tensor, value_states: torch.Tensor) -> None:
        """Check that a call fits the cache, and wait until there is room for its K and V on their way."""
        self.cache.require_usable()
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        if len(self.cache.sequences) != key_states.shape[0]:
            raise UnsupportedError(
                f"the cache holds {len(self.cache.sequences)} sequences, the call {key_states.shape[0]}"
            )
        self.cache.transfers.make_room(leaves_late(key_states))

    def _take(self, k: Halves, v: Halves) -> bool:
        """Send new tokens to the drives and return True, or let them be pending if they are few."""
        assert self.pending is not None
        if self.tokens and k.shape[2] < self.cache.backing.spill:
            self.pending.add(k, v)
            return False
        self._spill(self.pending.count)
        self._send(k, v)
        return True

    def prefilled(self, call: LayerCall) -> None:
        """See AttachedLayer. K and V are already being sent."""

    def earlier(self, handle: KvHandle) -> tuple[torch.Tensor, torch.Tensor] | None:
        """See AttachedLayer. Reads the tokens back from the drives, as they were rounded to binary16."""
        if not self.cache.in_prompt or self.moved:
            return None
        self.land()
        if handle.first_token > self.stored:
            return None
        self._turn = None
        self._write_back()
        rows = [self._read(sequence, handle.first_token) for sequence in self.cache.sequences]
        k, v = (np.stack(states) for states in zip(*rows, strict=True))
        return self._as_states(k, self.key_scale, handle.keys), self._as_states(v, self.value_scale, handle.values)

    def attend(self, call: LayerCall) -> torch.Tensor:
        """See AttachedLayer.

        Writes pending tokens when they are due. Raises RangeError, CommandError, TargetError, UnsupportedError.
        """
        queries = self.queries(call)
        try:
            self._ask(queries)
        except HiddenCountsError:
            self._ask(queries, together=False)
        return self.answer(queries, call.query)

    def queries(self, call: LayerCall) -> Queries:
        """The queries of a call, for `jobs`. Raises RangeError."""
        batch, heads, new_tokens, head_dim = call.query.shape
        kv_heads = self._kv_heads
        grouped = arrived(call.query).reshape(batch, kv_heads, -1, head_dim)
        self.land()
        halves, exponents = to_halves(grouped, f"Q of layer {self.index}")
        q = halves.reshape(batch, kv_heads, heads // kv_heads, new_tokens, head_dim)
        out = host_halves((batch, new_tokens, kv_heads, heads // kv_heads, head_dim), call.query.device)
        scales = self._scales(exponents, call.scaling, head_dim)
        scores = None if call.sinks is None else sink_scores(call.sinks, kv_heads)
        return Queries(q, out, scales, scores, call.mask, call.handle.first_token)

    def _scales(self, exponents: Exponents | None, scaling: float | None, head_dim: int) -> NDArray[np.uint32]:
        """Binary32 patterns [batch, heads] of the factors of a query's scores, whose exponents `to_halves` chose."""
        factors = self.key_scale.factors
        if exponents is not None:
            return _score_scales(np.exp2(exponents) * factors, scaling, head_dim)
        if self._plain_scales is None or self._plain_scales[0] is not factors or self._plain_scales[1] != scaling:
            self._plain_scales = factors, scaling, _score_scales(factors, scaling, head_dim)
        return self._plain_scales[2]

    def answer(self, queries: Queries, like: torch.Tensor) -> torch.Tensor:
        """The answers [batch, q, heads, d] in the precision of `like`. Pending tokens that are due are on their way."""
        self._turn = None
        self._write_back()
        batch, new_tokens, kv_heads, group, head_dim = queries.out.shape
        return self._to_tensor(queries.out, like).reshape(batch, new_tokens, kv_heads * group, head_dim)

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        """Length and offset of the keys that a mask for `query_length` new tokens covers."""
        return self.tokens + query_length, self.cache.removed

    def get_seq_length(self) -> int:
        """Tokens so far, removed ones included: the position of the next one."""
        return self.tokens + self.cache.removed

    def write_all(self) -> None:
        """Send all pending tokens. Raises CommandError, TargetError."""
        self.land()
        if self.pending:
            self._spill(self.pending.count)

    def truncate(self, tokens: int) -> None:
        """Keep the first `tokens` tokens; those on the drives are trimmed by the cache."""
        if self.pending:
            self.pending.count = min(self.pending.count, max(tokens - self.stored, 0))
        self.stored = min(self.stored, tokens)

    def shape(self) -> dict[str, int]:
        """KV heads and head dimension; 0 before the first call."""
        k = self.pending.k if self.pending else np.empty((0, 0, 0, 0))
        return {"kv_heads": k.shape[1], "head_dim": k.shape[3]}

    def describe(self) -> dict[str, Any]:
        """KV heads, head dimension and the exponents of the scales of K and V, as plain values for `resume`."""
        return self.shape() | {"k": self.key_scale.plain(), "v": self.value_scale.plain()}

    def resume(self, tokens: int, batch: int, kept: dict[str, Any]) -> None:
        """Continue after `tokens` tokens that are on the drives already; `describe` made `kept`."""
        self.key_scale.restore(kept["k"])
        self.value_scale.restore(kept["v"])
        self._begin(tokens, batch, kept["kv_heads"], kept["head_dim"])

    def _begin(self, tokens: int, batch: int, kv_heads: int, head_dim: int) -> None:
        self.stored = tokens
        self.pending = PendingTokens(batch, kv_heads, 2 * self.cache.backing.spill, head_dim)
        self.is_initialized = True

    def rearrange(self, rows: list[int]) -> None:
        """Row i becomes what row rows[i] was."""
        if self.pending:
            self.pending.rearrange(rows)
        if self.moved:
            self.moved = self.moved[0][rows], self.moved[1][rows]
        self.key_scale.rearrange(rows)
        self.value_scale.rearrange(rows)

    def move_first(self, keys: torch.Tensor, values: torch.Tensor) -> None:
        """From now on attend to these K and V [batch, heads, tokens, d] instead of those of the first tokens."""
        self.moved = self.key_scale.convert(keys), self.value_scale.convert(values)

    @property
    def _kv_heads(self) -> int:
        return self.shape()["kv_heads"]

    def _write_back(self) -> None:
        """Start sending pending tokens up to the last whole multiple of the spill interval. Does not wait."""
        due = self.tokens // self.cache.backing.spill * self.cache.backing.spill - self.stored
        if due > 0:
            self._spill(due)

    def _spill(self, tokens: int) -> None:
        if tokens:
            assert self.pending is not None
            self.cache.transfers.make_room()
            self._send(*self.pending.take(tokens))

    def _send(self, k: Halves, v: Halves) -> None:
        size, appends = 0, []
        for row, sequence in enumerate(self.cache.sequences):
            sent = sequence.append(self.index, self.stored, k[row], v[row], self.cache.transfers.worked)
            size += sent.size
            appends += sent.appends
        self.cache.transfers.add(size, appends)
        self.stored += k.shape[2]

    def _note_inputs(self, first: int, inputs: Inputs | None) -> None:
        """Give the rows that are stored as X their inputs; the layer's tokens from `first` on are new."""
        xcache = self.cache.backing.xcache
        if xcache is None:
            return
        x, positions = inputs or xcache.call(self.index)
        exponents = self._exponents(self.key_scale), self._exponents(self.value_scale)
        for row, sequence in enumerate(self.cache.sequences):
            if isinstance(sequence, InputSequence):
                at = positions[min(row, len(positions) - 1)]
                sequence.note(self.index, first, x[row], at, (exponents[0][row], exponents[1][row]))

    def rebuild_next(self, new_tokens: int) -> None:
        """Rebuild K and V of the next layer while the drives work, unless a call of this length changes them first."""
        later = self.cache.layer_after(self)
        if later is not None and new_tokens < self.cache.backing.spill:
            for sequence in self.cache.sequences:
                if isinstance(sequence, InputSequence):
                    sequence.rebuild_ahead(later.index)

    def _read(self, sequence: Sequence, tokens: int) -> tuple[Halves, Halves]:
        """K and V [heads, tokens, d] of a row's first tokens, from the drives. Raises CommandError, TargetError."""
        if isinstance(sequence, InputSequence):
            rebuilt = sequence.rebuild(self.index)
            return rebuilt.k[:, :tokens], rebuilt.v[:, :tokens]
        head_dim = self.shape()["head_dim"]

        def read(one: Slice, kind: abi.KvKind, target: Target) -> Halves:
            return one.session.read(self.index, kind, 0, (one.last - one.first, tokens, head_dim))

        kinds = [[one.queue.start(partial(read, one, kind)) for one in sequence] for kind in abi.KvKind]
        k, v = (np.concatenate(gather(parts)) for parts in kinds)
        return k, v

    def _as_states(self, halves: Halves, scale: HeadScale, like: torch.Tensor) -> torch.Tensor:
        """Stored rows [rows, heads, tokens, d] as the model had them, in the precision of `like`."""
        states = torch.from_numpy(halves).to(like.device)
        if not scale.is_one:
            states = states.double() * torch.from_numpy(scale.factors)[..., None, None].to(like.device)
        return states.to(like.dtype)

    def _exponents(self, scale: HeadScale) -> NDArray[np.int64]:
        assert scale.exponents is not None
        return scale.exponents

    def _ask(self, queries: Queries, together: bool = True) -> None:
        """Send the queries of a call and wait for the answers."""
        meanwhile = self.cache.while_drives_attend is not None or self.cache.backing.xcache is not None
        answers = send(self.jobs(queries, together), here=not meanwhile)
        self.rebuild_next(queries.q.shape[3])
        if self.cache.while_drives_attend is not None:
            self.cache.while_drives_attend()
        try:
            gather(answers)
        except HiddenCountsError:
            raise
        except Exception:
            self.cache.transfers.finish()  # if an append failed, this raises its error, which explains more
            raise

    def jobs(self, call: Queries, together: bool = True) -> Iterator[tuple[Endpoint, Job]]:
        """The jobs of a call, each with what answers it. `together` False: each token is a job of its own.

        Raises UnsupportedError for masks that a drive cannot apply.
        """
        group, new_tokens = call.q.shape[2:4]
        policies = self.cache.policy.of_heads(self.index, self._kv_heads)
        together = together and self.cache.asks_together and not any(policy.sees_query for policy in policies)
        for part in blocks(new_tokens, group, together):
            for row, sequence in enumerate(self.cache.sequences):
                for tokens, all_seen in seen_by(call.mask, row, part, call.first_token, self.stored):
                    seen = all_seen.without_first(self.moved[0].shape[2]) if self.moved else all_seen
                    for one in sequence.endpoints():
                        for job in self._jobs(call, one, row, tokens, seen, policies):
                            yield one, job

    def _jobs(
        self, call: Queries, one: Endpoint, row: int, tokens: range, seen: Seen, policies: Several[DrivePolicy]
    ) -> Iterator[Job]:
        """One job for each run of KV heads of equal scale and policy. The `tokens` of `row` see the same tokens on the
        drive.
        """
        chosen = slice(tokens[0], tokens[-1] + 1)
        head_dim = call.q.shape[-1]
        moved = self.moved[0].shape[2] if self.moved else 0
        scales = call.scales[row].tolist()
        alike = list(zip(scales, policies, strict=True))[one.first : one.last]
        for first, last in _runs(alike, one.first):
            scale = scales[first]
            how = policies[first].parameters(seen.stored, head_dim, seen.valid, moved + len(seen.inline))
            places = call.out[row, chosen, first:last].transpose(1, 0, 2, 3)
            together = np.ascontiguousarray(call.q[row, first:last, :, chosen].transpose(0, 2, 1, 3))  # heads first
            queries = together.reshape(last - first, -1, head_dim)
            scores = inline_v = None
            if moved or len(seen.inline):
                k, inline_v = self._inline(row, slice(first, last), seen)
                scores = self.cache.scorer.scores(queries, k, scale)
                if seen.hidden is not None:
                    of_tokens = scores.reshape(*together.shape[:3], -1)[..., moved:]
                    of_tokens[np.broadcast_to(seen.hidden[:, None], of_tokens.shape)] = HIDDEN
            if call.sinks is not None:
                scores, inline_v = with_sinks(call.sinks[first:last], queries, scores, inline_v)
            query = Query(
                one.session, self.index, queries, seen.stored, scale, how, first - one.first, scores, inline_v
            )
            yield Job(query, places, seen.hidden is not None, self.cache.unread, self.tokens)

    def _inline(self, row: int, heads: slice, seen: Seen) -> tuple[Halves, Halves]:
        """K and V [heads, n, d] of inline tokens: the first group if it moved, then pending tokens, or tokens of this
        call that the drive already has.
        """
        assert self.pending is not None
        places, (k, v) = seen.inline, (self.pending.k, self.pending.v)
        if seen.stored != self.stored:
            assert self._turn is not None
            k, v = self._turn
            places = places + seen.stored - (self.stored - k.shape[2])
        k, v = k[row, heads][:, places], v[row, heads][:, places]
        if self.moved is None:
            return k, v
        first_k, first_v = self.moved
        return np.concatenate([first_k[row, heads], k], axis=1), np.concatenate([first_v[row, heads], v], axis=1)

    def _to_tensor(self, out: Halves, query: torch.Tensor) -> torch.Tensor:
        """The answers [batch, q, heads, g, d] in the model's precision, multiplied by V's scale."""
        result = torch.from_numpy(out)
        if self.value_scale.is_one:
            return to_device(result, query)
        factors = torch.from_numpy(self.value_scale.factors)
        return (result.double() * factors[:, None, :, None, None]).to(query)


def send(jobs: Iterable[tuple[Endpoint, Job]], here: bool) -> list[Future[None]]:
    """Start jobs where they are answered, several at a time. A future may raise HiddenCountsError, and drives' errors.

    When all futures are done, every answer is in its place. `here`: the caller waits at once, so its thread may do the
    last ones.
    """
    waiting: dict[tuple[WorkQueue[Any], Answer], list[Job]] = {}
    answers: list[Future[None]] = []
    for one, job in jobs:
        where = one.queue, one.answer
        mine = waiting.setdefault(where, [])
        mine.append(job)
        if len(mine) >= _MINI_BATCH:
            answers.append(one.queue.start(partial(_answer, waiting.pop(where), one.answer)))
    for number, ((queue, answer), rest) in enumerate(waiting.items(), 1):
        start = queue.start_here if here and number == len(waiting) else queue.start
        answers.append(start(partial(_answer, rest, answer)))
    return answers


def _answer(jobs: list[Job], answer: Answer, target: Any) -> None:
    """Attend, and copy every output to its place. Raises HiddenCountsError."""
    results = answer(target, [job.query for job in jobs])
    for job, result in zip(jobs, results, strict=True):
        if job.hides and int(result.max.min()) < LOWEST_MAX:
            raise HiddenCountsError
        job.out[:] = result.out.reshape(job.out.shape)
        if job.unread is not None:
            job.unread.add(job.step, result.alpha)


def _score_scales(factors: Factors, scaling: float | None, head_dim: int) -> NDArray[np.uint32]:
    """Binary32 patterns [batch, heads] of the factor from the halves' dot products to the scores' logarithm of two.

    `factors` [batch, heads]: what a dot product of 1 stands for.
    """
    scale = head_dim**-0.5 if scaling is None else scaling
    first = factors.flat[0].item()
    if (factors == first).all():
        return np.full(factors.shape, scale_bits(scale * first, head_dim), np.uint32)
    known = {factor: scale_bits(scale * factor, head_dim) for factor in np.unique(factors).tolist()}
    return np.array([[known[factor] for factor in row] for row in factors.tolist()], np.uint32)


def _runs(values: Several[object], offset: int) -> Iterator[tuple[int, int]]:
    """Begin and end of each run of equal neighbours."""
    changes = [place + offset for place in range(1, len(values)) if values[place] != values[place - 1]]
    return pairwise((offset, *changes, offset + len(values)))
