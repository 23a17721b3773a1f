"""What policy groups leaves unread on a real model: the drive's estimate and proven bounds, beside the true mass.

K and queries of a model that reads source code. Each query sees the tokens before it: the golden model chooses units by
the index, as the drive does, and true scores of all tokens say what the unchosen units weigh.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from bench.attention.groups import RATIOS, data_of_a_model
from bench.setup import Setup
from bench.table import Block, Table
from golden.abi import SCORE_FRACTION_BITS, SPAN_TOKENS
from golden.group_index import GroupIndex, build_index
from golden.groups import chosen_tokens, group_choice, left_out
from kvdrive.kernels.native import scale_bits
from kvdrive.policies.groups import DEFAULT_UNIT, Groups

Real = NDArray[np.float64]
LEAST = 1e-3  # ratios to the true mass count from here on: less does not matter
QUANTILES = (0.05, 0.5, 0.95)


@dataclass(frozen=True)
class Head:
    """One KV head: K [tokens, d] in binary16, its index, and an upper bound [tokens] of each row's error, rounded up
    to the binary16 that could be stored beside the codes."""

    k: NDArray[np.float16]
    index: GroupIndex
    residual: NDArray[np.float16]

    @classmethod
    def of(cls, k: NDArray[np.float16]) -> Head:
        """Build the index as if all of K came with one append: no channel is saturated then."""
        index = build_index(k.view(np.uint16))
        norm = np.linalg.norm(k[: index.tokens].astype(np.float64) - decoded(index), axis=1)
        stored = norm.astype(np.float16)
        return cls(k, index, np.where(stored < norm, np.nextafter(stored, np.float16(np.inf)), stored))


@dataclass(frozen=True)
class Masses:
    """Of each query head [g]: estimated and true share of the softmax that was left unread; how many times more than
    the unread tokens' true mass is proven possible, from the ranges of the codes or from stored residual norms."""

    estimated: Real
    true: Real
    by_ranges: Real
    by_norms: Real


def decoded(index: GroupIndex) -> Real:
    """What the codes stand for [tokens, d]."""
    return np.ldexp(index.quarters().astype(np.float64), index.exponent - 26)


def masses(head: Head, q: NDArray[np.float16], position: int, ratio: Fraction) -> Masses:
    """The masses for the queries q [g, d] of the token `position`, which sees itself and all tokens before it."""
    policy, d = Groups(ratio), q.shape[1]
    spans = position // SPAN_TOKENS
    indexed = spans * SPAN_TOKENS
    index = replace(head.index, **{name: getattr(head.index, name)[:spans] for name in ("lo", "step", "codes")})
    to_log2 = np.log2(np.e) / np.sqrt(d)
    exact_q = q.astype(np.float64)
    true = exact_q @ head.k[: position + 1].astype(np.float64).T * to_log2
    tail = np.rint(np.ldexp(true[:, indexed:], SCORE_FRACTION_BITS)).astype(np.int32)
    choice = group_choice(
        q.view(np.uint16), index, policy.unit, policy.chosen(indexed), int(scale_bits(None, d)), None, tail
    )
    assert choice.status == 0
    read = chosen_tokens(choice, policy.unit, indexed, position + 1)
    top = choice.max[:, None].astype(np.float64)
    weights = np.exp2(true - top)
    sums = np.ldexp(weights[:, read].sum(1), 31)
    unread = ~read[:indexed]
    middle = exact_q @ decoded(index)[unread].T * to_log2
    reach = np.ldexp(index.step.astype(np.float64), index.exponent - 27)  # of a code: step * u / 8
    ranges = np.repeat(np.abs(exact_q) @ reach.T * to_log2, SPAN_TOKENS, axis=1)[:, unread]
    norms = np.linalg.norm(exact_q, axis=1)[:, None] * head.residual[:indexed][unread].astype(np.float64) * to_log2
    true_mass = weights[:, :indexed][:, unread].sum(1)
    return Masses(
        left_out(choice, choice.max, sums),
        true_mass / weights.sum(1),
        np.exp2(middle + ranges - top).sum(1) / true_mass,
        np.exp2(middle + norms - top).sum(1) / true_mass,
    )


def measure(model: str, tokens: int, queries: int, spread: int) -> Iterator[dict]:
    """One record per layer, KV head, ratio and query, with a list per field of Masses."""
    data = data_of_a_model(model, tokens, spread)
    steps = range(spread // queries - 1, spread, spread // queries)
    for layer in range(data.shape.layers):
        for number in range(data.shape.kv_heads):
            head = Head.of(data.k[layer][number])
            for at in steps:
                for ratio in RATIOS:
                    found = masses(head, data.q[at, layer, number], tokens - spread + at, ratio)
                    yield {"layer": layer, "head": number, "step": at, "ratio": str(ratio)} | {
                        name: value.tolist() for name, value in vars(found).items()
                    }


def joined(records: list[dict], name: str, **wanted: object) -> Real:
    """One field of the records that match, all query heads."""
    return np.array([x for r in records if all(r[k] == v for k, v in wanted.items()) for x in r[name]])


def ratio_cell(estimated: Real, true: Real) -> str:
    """Quantiles of estimated over true mass, where the true mass is at least LEAST."""
    counts = true >= LEAST
    if not counts.any():
        return "-"
    return " / ".join(f"{x:.2f}" for x in np.quantile(estimated[counts] / true[counts], QUANTILES))


def unread_table(records: list[dict], about: str) -> Table:
    """Estimated and true unread mass per layer, of all heads, and of whole steps."""
    ratios = list(dict.fromkeys(r["ratio"] for r in records))
    header = ["layer", *(f"{r}: {what}" for r in ratios for what in ("estimated", "true", "estimated / true"))]
    lines = []
    for layer in [*dict.fromkeys(r["layer"] for r in records), None]:
        line = ["all" if layer is None else str(layer)]
        for ratio in ratios:
            wanted = {"ratio": ratio} if layer is None else {"ratio": ratio, "layer": layer}
            estimated, true = joined(records, "estimated", **wanted), joined(records, "true", **wanted)
            line += [f"{estimated.mean():.4f}", f"{true.mean():.4f}", ratio_cell(estimated, true)]
        lines.append(line)
    line = ["a step"]
    for ratio in ratios:
        steps = dict.fromkeys(r["step"] for r in records)
        estimated, true = (
            np.array([joined(records, name, ratio=ratio, step=step).mean() for step in steps])
            for name in ("estimated", "true")
        )
        line += [f"{estimated.max():.4f}", f"{true.max():.4f}", ratio_cell(estimated, true)]
    return Table(header, [*lines, line], about)


def bound_table(records: list[dict], about: str) -> Table:
    """How many times the true unread mass is proven possible."""
    lines = []
    names = {"by_ranges": "ranges of the codes", "by_norms": "residual norms, 2 bytes more a token"}
    for name, shown in names.items():
        for ratio in dict.fromkeys(r["ratio"] for r in records):
            factors = np.quantile(joined(records, name, ratio=ratio), QUANTILES)
            lines.append([shown, ratio, *(f"{x:,.1f}" if x < 1e4 else f"{x:.1e}" for x in factors)])
    return Table(["proof", "ratio", "5 %", "median", "95 %"], lines, about, align="llrrr")


def run(setup: Setup) -> list[Block]:
    """The masses, and the bounds."""
    model, tokens, queries, spread = setup.size(("smollm2", 4096, 32, 1024), ("mini", 512, 2, 64))
    records = list(measure(model, tokens, queries, spread))
    about = (
        f"Model {model}, source code, {tokens:,} tokens; {queries} queries from the last {spread:,} tokens in every "
        f"head; units of {DEFAULT_UNIT} tokens."
    )
    return [Block("unread", [unread_table(records, about)]), Block("bound", [bound_table(records, about)])]
