"""Ratios of policy groups for each KV head: as few bytes as a limit of the KL divergence allows.

First, each head alone reads less, at each ratio, while all others attend exactly: the divergence that this causes is
the head's price. Steps to smaller ratios are then taken in the order of divergence per saved byte. How many of them, a
search by halves finds, in which every measurement is of the whole model with all steps together. So prices, which are
estimates, decide the order only; what a choice says of its divergence was measured.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from fractions import Fraction

from transformers import PreTrainedModel

from kvdrive.errors import InputError
from kvdrive.eval.points import Answer, Answers, Point, Question, Way
from kvdrive.eval.scoring import Scores, prefill
from kvdrive.eval.sweep import kv_shape, rate_question
from kvdrive.kvcache.formats import named
from kvdrive.kvcache.hf_cache import HfCache
from kvdrive.nvme.rows import bytes_of_row
from kvdrive.plugins.support import layers_in_memory
from kvdrive.plugins.transformers import attach
from kvdrive.policies.auto import Auto
from kvdrive.policies.choice import Choice, Ratios, Text
from kvdrive.policies.drive import DrivePolicy
from kvdrive.policies.exact import Exact
from kvdrive.policies.groups import Groups
from kvdrive.targets.base import Target

RATIOS = tuple(Fraction(1, share) for share in (8, 16, 4, 2))  # in the order in which they are measured
ALL = Fraction(1)


@dataclass(frozen=True)
class Step:
    """Head `head` of layer `layer` goes on to `ratio`; `price`: nats of divergence per byte that this saves."""

    price: float
    layer: int
    head: int
    ratio: Fraction


@dataclass(frozen=True)
class Limits:
    """What a calibration aims at: `divergences` as text, in nats per token. `seconds`: for prices; 0: no bound."""

    divergences: Sequence[str]
    seconds: float = 0.0


class Rater:
    """Measures ratios on questions whose contexts one drive holds, each in one of `caches`.

    `exact`: the scores under exact attention over K and V in binary16. Answers in `known` are not computed again; new
    ones are put there at once. `on_answer` is called after each of them.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        asked: Sequence[Question],
        unit: int,
        kv_format: str,
        known: MutableMapping[str, Answer],
        on_answer: Callable[[], None] | None = None,
    ) -> None:
        self.asked, self.unit, self.kv_format = asked, unit, kv_format
        self.layers, self.heads, self.head_dim = kv_shape(model)
        in_memory = layers_in_memory(model)
        self.on_drives = [layer for layer in range(self.layers) if layer not in in_memory]
        self.caches: list[HfCache] = []
        self.exact: list[Scores] = []
        self.exact_bytes = 0.0
        self._model, self._known, self._on_answer = model, known, on_answer

    @contextmanager
    def on_drive(self, target: Target) -> Iterator[Rater]:
        """Put the contexts on a drive, and measure exact attention. Raises UnsupportedError, TargetError."""
        with self._contexts(target, "f16") as caches:
            read = 0
            for question, cache in zip(self.asked, caches, strict=True):
                scores, count = self._answer(question, cache, Exact())
                self.exact.append(scores)
                read += count
            self.exact_bytes = read / sum(len(question.target) for question in self.asked)
            if self.kv_format == "f16":
                self.caches = caches
                yield self
                return
        with self._contexts(target, self.kv_format) as self.caches:
            yield self

    def measure(self, ratios: Ratios) -> Point:
        """The model with all of these ratios at once."""
        policy = self.policy(ratios)
        answers = Answers(Way(policy, self.kv_format))
        for number, (question, cache, exact) in enumerate(zip(self.asked, self.caches, self.exact, strict=True)):
            place = answers.way.place(number, question)
            if place not in self._known:
                scores, read = self._answer(question, cache, policy)
                self._known[place] = Answer.of(scores, exact, read)
            if self._on_answer:
                self._on_answer()
            answers.add(question, self._known[place], (self.layers, self.heads, self.head_dim))
        return answers.point()

    def policy(self, ratios: Ratios) -> Auto:
        """The policy with these ratios, of which nothing was measured yet."""
        return Auto(choice=Choice(ratios, self.unit, 0.0, None, 1.0, Text("", 0, 0, 0)))

    def ratios(self, others: Mapping[tuple[int, int], Fraction]) -> Ratios:
        """Every head reads everything, except `others`, by layer and head."""
        return tuple(
            tuple(others.get((layer, head), ALL) for head in range(self.heads)) for layer in range(self.layers)
        )

    def bytes_of_head(self, ratio: Fraction) -> int:
        """Bytes that a head needs for a step behind the contexts."""
        tokens, row = len(self.asked[0].context), bytes_of_row(named(self.kv_format), self.head_dim)
        return Groups(ratio, self.unit).bytes_needed(tokens, self.head_dim, row)

    @contextmanager
    def _contexts(self, target: Target, kv_format: str) -> Iterator[list[HfCache]]:
        with attach(self._model, target, "groups", kv_format=kv_format) as attached:
            caches = [attached.on_drives() for _ in self.asked]
            for question, cache in zip(self.asked, caches, strict=True):
                prefill(self._model, question.context, cache)
            yield caches

    def _answer(self, question: Question, cache: HfCache, policy: DrivePolicy) -> tuple[Scores, int]:
        cache.batch.part.shared.policy = policy
        scores, read = rate_question(self._model, question, cache)
        cache.crop(-len(question.target))
        return scores, read


def prices(
    rater: Rater, seconds: float = 0.0, clock: Callable[[], float] = time.monotonic
) -> dict[tuple[int, int], dict[Fraction, float]]:
    """The divergence that each head alone adds to the format's, by layer, head and ratio, as far as `seconds` allow."""
    found: dict[tuple[int, int], dict[Fraction, float]] = {}
    end = clock() + seconds
    before = rater.measure(rater.ratios({})).kl or 0.0
    for ratio in RATIOS:
        for layer in rater.on_drives:
            for head in range(rater.heads):
                if seconds and clock() >= end:
                    return found
                kl = rater.measure(rater.ratios({(layer, head): ratio})).kl
                assert kl is not None
                found.setdefault((layer, head), {})[ratio] = kl - before
    return found


def steps_of(
    priced: Mapping[tuple[int, int], Mapping[Fraction, float]], bytes_of_head: Callable[[Fraction], int]
) -> list[Step]:
    """Steps in the order of their price. Those of a head follow the lower hull of its divergence over saved bytes."""
    found = []
    for (layer, head), costs in priced.items():
        saved, kl = 0, 0.0
        options = {ratio: bytes_of_head(ALL) - bytes_of_head(ratio) for ratio in costs}
        while options := {ratio: bytes_saved for ratio, bytes_saved in options.items() if bytes_saved > saved}:
            rate = {ratio: (costs[ratio] - kl) / (more - saved) for ratio, more in options.items()}
            ratio = min(rate, key=lambda one: (rate[one], -options[one]))
            found.append(Step(rate[ratio], layer, head, ratio))
            saved, kl = options[ratio], costs[ratio]
    return sorted(found, key=lambda step: step.price)  # stable: steps of a head, with rising prices, keep their order


def choose(rater: Rater, steps: Sequence[Step], limit: str) -> tuple[Ratios, Point]:
    """The ratios after the most steps found with a measured divergence below `limit`, and their measurement.

    Raises InputError where no step stays below it.
    """

    def after(count: int) -> tuple[Ratios, Point]:
        ratios = rater.ratios({(step.layer, step.head): step.ratio for step in steps[:count]})
        return ratios, rater.measure(ratios)

    def fits(point: Point) -> bool:
        return point.kl is not None and point.kl < float(limit)

    best, first_not = after(0), len(steps) + 1
    if not fits(best[1]):
        raise InputError(
            f"K and V in {rater.kv_format} alone have a KL of {best[1].kl:.4f}, not below {limit}: take a larger `kl`, "
            "or another `kv_format`"
        )
    count = 0
    while count + 1 < first_not:
        middle = (count + first_not) // 2
        tried = after(middle)
        if fits(tried[1]):
            count, best = middle, tried
        else:
            first_not = middle
    if count == 0:
        raise InputError(f"no head can read less with a KL below {limit}: take a larger `kl`")
    return best


def calibrate(rater: Rater, limits: Limits, text: str) -> dict[str, Choice]:
    """A choice for each of the limits. `text` identifies the questions' tokens. Raises InputError."""
    steps = steps_of(prices(rater, limits.seconds), rater.bytes_of_head)
    question = rater.asked[0]
    about = Text(text, len(question.context), len(rater.asked), len(question.target))
    found = {}
    for limit in limits.divergences:
        ratios, point = choose(rater, steps, limit)
        assert point.kl is not None
        share = point.bytes_read / rater.exact_bytes
        found[limit] = Choice(ratios, rater.unit, point.kl, point.kl_error, share, about)
    return found
