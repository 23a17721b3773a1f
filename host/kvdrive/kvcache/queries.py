"""The queries of one call of a layer: from the model's tensors to the drives' numbers, and the answers back."""

from __future__ import annotations

from collections.abc import Iterator
from collections.abc import Sequence as Several
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch
from numpy.typing import NDArray

from kvdrive.kernels.native import scale_bits
from kvdrive.kvcache.arrivals import arrived, host_halves, to_device
from kvdrive.kvcache.calls import LayerCall
from kvdrive.kvcache.layer import StoredLayer
from kvdrive.kvcache.part import Part
from kvdrive.kvcache.pending import Scores, sink_scores, with_sinks
from kvdrive.kvcache.scaling import Exponents, Factors, Halves, to_halves
from kvdrive.kvcache.seen import HIDDEN, Seen, blocks, seen_by
from kvdrive.kvcache.sequence import Endpoint
from kvdrive.kvcache.session import Query
from kvdrive.kvcache.unread import UnreadMass
from kvdrive.policies.drive import DrivePolicy


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


@dataclass(frozen=True)
class Queries:
    """The queries of one call of `layer`, whose rows are those of `part`, and where their answers go.

    q [batch, kv_heads, g, tokens, d], `out` [batch, tokens, kv_heads, g, d], binary16; `scales` [batch, kv_heads],
    binary32 patterns; `sinks` int32 [kv_heads, g]: the score of a token with V = 0, None without one. `mask` bool
    [batch, 1, tokens, keys]; the call's first token is number `first_token`.
    """

    part: Part
    layer: StoredLayer
    q: Halves
    out: Halves
    scales: NDArray[np.uint32]
    sinks: Scores | None
    mask: torch.Tensor | None
    first_token: int

    @classmethod
    def of(cls, part: Part, layer: StoredLayer, call: LayerCall) -> Queries:
        """Those of a call. Raises RangeError."""
        batch, heads, new_tokens, head_dim = call.query.shape
        kv_heads = layer.kv_heads
        grouped = arrived(call.query).reshape(batch, kv_heads, -1, head_dim)
        part.writeback.land(layer)
        halves, exponents = to_halves(grouped, f"Q of layer {layer.index}")
        q = halves.reshape(batch, kv_heads, heads // kv_heads, new_tokens, head_dim)
        out = host_halves((batch, new_tokens, kv_heads, heads // kv_heads, head_dim), call.query.device)
        scales = _scales(layer, exponents, call.scaling, head_dim)
        scores = None if call.sinks is None else sink_scores(call.sinks, kv_heads)
        return cls(part, layer, q, out, scales, scores, call.mask, call.handle.first_token)

    @property
    def new_tokens(self) -> int:
        """Tokens of the call."""
        return int(self.q.shape[3])

    def jobs(self, together: bool = True) -> Iterator[tuple[Endpoint, Job]]:
        """The jobs of the call, each with what answers it. `together` False: each token is a job of its own.

        Raises UnsupportedError for masks that a drive cannot apply.
        """
        shared, layer = self.part.shared, self.layer
        policies = shared.policy.of_heads(layer.index, layer.kv_heads)
        together = together and shared.asks_together and not any(policy.sees_query for policy in policies)
        for part in blocks(self.new_tokens, self.q.shape[2], together):
            for row, sequence in enumerate(self.part.sequences):
                for tokens, all_seen in seen_by(self.mask, row, part, self.first_token, layer.stored):
                    seen = all_seen.without_first(layer.moved_tokens) if layer.moved else all_seen
                    for one in sequence.endpoints():
                        for job in self._jobs(one, row, tokens, seen, policies):
                            yield one, job

    def _jobs(
        self, one: Endpoint, row: int, tokens: range, seen: Seen, policies: Several[DrivePolicy]
    ) -> Iterator[Job]:
        """One job for each run of KV heads of equal scale and policy. The `tokens` of `row` see the same tokens on the
        drive.
        """
        layer, shared = self.layer, self.part.shared
        chosen = slice(tokens[0], tokens[-1] + 1)
        head_dim = self.q.shape[-1]
        inline = layer.moved_tokens + len(seen.inline)
        scales = self.scales[row].tolist()
        alike = list(zip(scales, policies, strict=True))[one.first : one.last]
        for first, last in _runs(alike, one.first):
            scale = scales[first]
            how = policies[first].parameters(seen.stored, head_dim, seen.valid, inline)
            places = self.out[row, chosen, first:last].transpose(1, 0, 2, 3)
            together = np.ascontiguousarray(self.q[row, first:last, :, chosen].transpose(0, 2, 1, 3))  # heads first
            queries = together.reshape(last - first, -1, head_dim)
            scores = inline_v = None
            if inline:
                k, inline_v = layer.inline(row, slice(first, last), seen.stored, seen.inline)
                scores = shared.scorer.scores(queries, k, scale)
                if seen.hidden is not None:
                    of_tokens = scores.reshape(*together.shape[:3], -1)[..., layer.moved_tokens :]
                    of_tokens[np.broadcast_to(seen.hidden[:, None], of_tokens.shape)] = HIDDEN
            if self.sinks is not None:
                scores, inline_v = with_sinks(self.sinks[first:last], queries, scores, inline_v)
            query = Query(
                one.session, layer.index, queries, seen.stored, scale, how, first - one.first, scores, inline_v
            )
            yield Job(query, places, seen.hidden is not None, shared.counted_unread, layer.tokens)

    def answers(self, like: torch.Tensor) -> torch.Tensor:
        """The answers [batch, q, heads, d] in the precision of `like`, multiplied by V's scale, when all jobs are done.

        Pending tokens that are due are in transfer then.
        """
        self.layer.turn = None
        self.part.writeback.send_due(self.layer)
        batch, new_tokens, kv_heads, group, head_dim = self.out.shape
        result = torch.from_numpy(self.out)
        if self.layer.value_scale.is_one:
            result = to_device(result, like)
        else:
            factors = torch.from_numpy(self.layer.value_scale.factors)
            result = (result.double() * factors[:, None, :, None, None]).to(like)
        return result.reshape(batch, new_tokens, kv_heads * group, head_dim)


def _scales(
    layer: StoredLayer, exponents: Exponents | None, scaling: float | None, head_dim: int
) -> NDArray[np.uint32]:
    """Binary32 patterns [batch, heads] of the factors of a query's scores, whose exponents `to_halves` chose."""
    factors = layer.key_scale.factors
    if exponents is not None:
        return _score_scales(np.exp2(exponents) * factors, scaling, head_dim)
    known = layer.score_scales
    if known is None or known[0] is not factors or known[1] != scaling:
        layer.score_scales = known = factors, scaling, _score_scales(factors, scaling, head_dim)
    return known[2]


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
