"""Attention policies at several ratios on the same questions: what each costs in accuracy and reads in bytes.

A context is prefilled once, with exact attention. Every policy of the drive continues from there, and the drive counts
the bytes that it reads. Each policy that runs on the host prefills its own cache; its bytes are the rows that it keeps.
"""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from fractions import Fraction
from itertools import chain
from typing import Any

from transformers import PreTrainedModel

from kvdrive import abi
from kvdrive.errors import InputError
from kvdrive.eval import perplexity, retrieval
from kvdrive.eval.perplexity import OnStep
from kvdrive.eval.scoring import prefill, score
from kvdrive.eval.tasks import Case, Tokens
from kvdrive.kvcache import formats
from kvdrive.kvcache.base import AttachedCache
from kvdrive.nvme.rows import bytes_of_row
from kvdrive.nvme.wire import RowFormat
from kvdrive.plugins.support import decoder_config
from kvdrive.plugins.transformers import attach
from kvdrive.policies import POLICIES, Policy, make_policy
from kvdrive.targets.base import Target

_EVERYTHING_KEPT = abi.AppendOption.APPEND_SPARSE | abi.AppendOption.APPEND_GROUPS


@dataclass(frozen=True)
class Question:
    """A context and the tokens after it. `task` is "text" for perplexity, else the name of a retrieval task."""

    task: str
    context: Tokens
    target: Tokens


@dataclass(frozen=True)
class Answer:
    """What one policy made of one question, for each token of its target: `nats` and `first` as in Scores.

    `bytes_read`: of K and V, for all of these tokens together.
    """

    nats: list[float]
    first: list[bool]
    bytes_read: int


@dataclass
class Point:
    """One policy at one ratio. Bytes are those of K and V per decode step, all layers and heads together.

    `bytes_read`: what was read, in whole pages where `counted_by` is "drive"; `bytes_needed`: the rows by the policy's
    own count. `standard_error`: of the nats per token behind `perplexity`, over windows. `accuracy`: share of the cases
    of each task whose whole answer is the model's first choice, `token_accuracy`: share of the answers' tokens.
    `kv_format`: how K and V are stored.
    """

    policy: str
    ratio: str
    counted_by: str
    context: int = 0
    bytes_read: float = 0.0
    bytes_needed: float = 0.0
    steps: int = 0
    perplexity: float | None = None
    standard_error: float | None = None
    accuracy: dict[str, float] = field(default_factory=dict)
    token_accuracy: dict[str, float] = field(default_factory=dict)
    kv_format: str = "f16"

    def as_dict(self) -> dict[str, Any]:
        """The point as a dictionary for JSON."""
        return asdict(self)


@dataclass(frozen=True)
class Way:
    """A policy over K and V in a format."""

    policy: Policy
    kv_format: str = "f16"

    def place(self, number: int, question: Question) -> str:
        """Identifies an answer among those of all contexts, questions and ways."""
        policy, stored = self.policy, "" if self.kv_format == "f16" else f", {self.kv_format}"
        return f"{len(question.context)} tokens, {question.task} {number}, {policy.name} {policy.ratio}{stored}"


@dataclass
class _Answers:
    """The answers of one way so far."""

    way: Way
    bytes_read: int = 0
    bytes_needed: int = 0
    steps: int = 0
    nats: list[list[float]] = field(default_factory=list)
    right: dict[str, list[list[bool]]] = field(default_factory=dict)

    @property
    def policy(self) -> Policy:
        return self.way.policy

    def add(self, question: Question, answer: Answer, shape: tuple[int, int, int]) -> None:
        layers, heads, head_dim = shape
        share = bytes_of_row(formats.named(self.way.kv_format), head_dim) / (2 * head_dim)
        held = [len(question.context) + i for i in range(len(question.target))]
        self.bytes_read += answer.bytes_read
        needed = layers * heads * sum(self.policy.bytes_needed(tokens, head_dim) for tokens in held)
        self.bytes_needed += round(needed * share) if self.policy.in_drive else answer.bytes_read
        self.steps += len(held)
        if question.task == "text":
            self.nats.append(answer.nats)
        else:
            self.right.setdefault(question.task, []).append(answer.first)

    def point(self) -> Point:
        found = Point(self.policy.name, str(self.policy.ratio), "drive" if self.policy.in_drive else "kept rows")
        found.bytes_read, found.bytes_needed = self.bytes_read / self.steps, self.bytes_needed / self.steps
        found.steps, found.kv_format = self.steps, self.way.kv_format
        if self.nats:
            row = perplexity.summarise(0, self.nats)
            found.perplexity, found.standard_error = row.perplexity, row.standard_error
        rows = [retrieval.summarise(task, 0, right) for task, right in self.right.items()]
        found.accuracy = {row.task: row.exact for row in rows}
        found.token_accuracy = {row.task: row.tokens for row in rows}
        return found


def chosen_policies(names: str, ratios: Sequence[Fraction]) -> list[Policy]:
    """The policies of a comma-separated list, or "all", at each ratio; exact attention once, and first where named.

    Ratio 1 of the others is exact attention. Raises InputError for unknown names and for nothing to compare.
    """
    wanted = list(POLICIES) if names == "all" else [name.strip() for name in names.split(",") if name.strip()]
    found = [make_policy("exact")] if "exact" in wanted else []
    found += [make_policy(name, ratio) for name in wanted if name != "exact" for ratio in ratios if ratio != 1]
    if not found:
        raise InputError("nothing to evaluate: name policies, and ratios below 1 for those other than exact")
    return found


def ways(policies: Sequence[Policy], kv_formats: Sequence[str]) -> list[Way]:
    """Every policy over every format that it can read. Raises InputError for unknown formats."""
    found = []
    for name in kv_formats:
        plain = formats.named(name) == RowFormat.BINARY16
        found += [Way(p, name) for p in policies if plain or (p.in_drive and not p.append_options)]
    if not found:
        raise InputError("nothing to evaluate: 8 and 4 bits are for exact and local attention")
    return found


def questions(texts: Sequence[Tokens], targets: int, cases: Sequence[Case]) -> list[Question]:
    """Windows of text, of which the last `targets` tokens are rated, and retrieval cases."""
    rated = [Question("text", text[:-targets], text[-targets:]) for text in texts]
    return rated + [Question(case.task, case.prompt, case.answer) for case in cases]


def sweep(
    model: PreTrainedModel,
    target: Target,
    compared: Sequence[Way],
    asked: Sequence[Question],
    on_step: OnStep | None = None,
    known: MutableMapping[str, Answer] | None = None,
) -> list[Point]:
    """Every way on every question, in the order of `compared`; `on_step` is called after each answer.

    Answers in `known` are not computed again; new ones are put there at once.
    Raises UnsupportedError, RangeError, CommandError, TargetError.
    """
    known = {} if known is None else known
    shape = _kv_shape(model)
    answers = [_Answers(way) for way in compared]
    for number, question in enumerate(asked):
        waiting = [way for way in compared if way.place(number, question) not in known]
        in_drive = [way for way in waiting if way.policy.in_drive]
        on_host = [way for way in waiting if not way.policy.in_drive]
        for way, answer in chain(_drive(model, target, question, in_drive), _host(model, target, question, on_host)):
            known[way.place(number, question)] = answer
            if on_step:
                on_step()
        for one in answers:
            one.add(question, known[one.way.place(number, question)], shape)
    return [one.point() for one in answers]


def _drive(
    model: PreTrainedModel, target: Target, question: Question, compared: Sequence[Way]
) -> Iterator[tuple[Way, Answer]]:
    """Answer with the policies that run in the drive. Those over the same format share one prefilled context."""
    for kv_format in dict.fromkeys(way.kv_format for way in compared):
        with _shared_context(model, target, question.context, kv_format) as cache:
            for way in compared:
                if way.kv_format != kv_format:
                    continue
                cache.policy = way.policy
                yield way, _rate(model, question, cache)
                cache.crop(-len(question.target))


@contextmanager
def _shared_context(model: PreTrainedModel, target: Target, context: Tokens, kv_format: str) -> Iterator[Any]:
    """A prefilled cache whose sessions serve every policy over the format. Binary16 K has all indexes."""
    with attach(model, target, "sparf" if kv_format == "f16" else "exact", kv_format=kv_format) as attached:
        cache = attached.cache()
        if kv_format == "f16":
            cache.append_options = _EVERYTHING_KEPT
        prefill(model, context, cache)
        yield cache


def _host(
    model: PreTrainedModel, target: Target, question: Question, compared: Sequence[Way]
) -> Iterator[tuple[Way, Answer]]:
    """Answer with the policies that run on the host; each of them prefills its own cache."""
    for way in compared:
        with attach(model, target, way.policy) as attached:
            cache = attached.cache()
            prefill(model, question.context, cache)
            yield way, _rate(model, question, cache)


def _rate(model: PreTrainedModel, question: Question, cache: AttachedCache) -> Answer:
    """The scores of the question's target after its context, and the bytes of K and V that were read for it."""
    before = cache.bytes_read()
    scores = score(model, int(question.context[-1]), question.target, cache)
    return Answer(scores.nats.tolist(), scores.first.tolist(), cache.bytes_read() - before)


def _kv_shape(model: PreTrainedModel) -> tuple[int, int, int]:
    """Layers, KV heads per layer and head dimension."""
    config = decoder_config(model)
    heads = getattr(config, "num_key_value_heads", None) or config.num_attention_heads
    head_dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    return config.num_hidden_layers, heads, head_dim
