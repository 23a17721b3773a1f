"""What an evaluation asks, what the policies answer, and one point of the result for each policy and ratio."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field
from typing import Any

from kvdrive.eval import retrieval
from kvdrive.eval.scoring import Scores
from kvdrive.eval.statistics import over_windows, share_interval
from kvdrive.eval.tasks import Tokens, that_count
from kvdrive.kvcache import formats
from kvdrive.nvme.rows import bytes_of_row
from kvdrive.policies import Policy

TEXT = "text"  # the task of a window of text


@dataclass(frozen=True)
class Question:
    """A context and the tokens after it. `task` is TEXT for perplexity, else the name of a retrieval task.

    `counted`: as in Case.
    """

    task: str
    context: Tokens
    target: Tokens
    counted: list[bool] | None = None


@dataclass(frozen=True)
class Answer:
    """What one policy made of one question, for each token of its target: `nats` and `first` as in Scores.

    Beside exact attention over K and V in binary16: `divergence` and `agrees` as in Scores, and `added`, nats minus its
    nats. `bytes_read`: of K and V, for all of these tokens together.
    """

    nats: list[float]
    first: list[bool]
    divergence: list[float]
    agrees: list[bool]
    added: list[float]
    bytes_read: int

    @classmethod
    def of(cls, scores: Scores, exact: Scores, bytes_read: int) -> Answer:
        """From the scores of the target, and those of exact attention."""
        divergence, added = scores.divergence(exact).tolist(), (scores.nats - exact.nats).tolist()
        agrees = scores.agrees(exact).tolist()
        return cls(scores.nats.tolist(), scores.first.tolist(), divergence, agrees, added, bytes_read)


@dataclass
class Point:
    """One policy at one ratio. Bytes are those of K and V per decode step, all layers and heads together.

    `ratio`: the policy's label. `bytes_read`: what was read, in whole pages where `counted_by` is "drive";
    `bytes_needed`: the rows by the policy's own count. `standard_error`: of the nats per token behind `perplexity`,
    over windows. Beside exact attention over binary16, on the windows: `kl`, divergence in nats per token;
    `agreement`, share of tokens with the same first choice; `added_nats` per token. Each has its standard error over
    windows. `accuracy`: share of the cases of each task where all that counts of the answer is the model's first
    choice; `interval`: its 95 % interval; `token_accuracy`: share of the answers' tokens that count. `kv_format`: how K
    and V are stored.
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
    kl: float | None = None
    kl_error: float | None = None
    agreement: float | None = None
    agreement_error: float | None = None
    added_nats: float | None = None
    added_error: float | None = None
    accuracy: dict[str, float] = field(default_factory=dict)
    interval: dict[str, list[float]] = field(default_factory=dict)
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

    @property
    def is_reference(self) -> bool:
        """True for exact attention over binary16: the others are compared with it."""
        return self.policy.name == "exact" and self.kv_format == "f16"

    def place(self, number: int, question: Question) -> str:
        """Identifies an answer among those of all contexts, questions and ways."""
        policy, stored = self.policy, "" if self.kv_format == "f16" else f", {self.kv_format}"
        return f"{len(question.context)} tokens, {question.task} {number}, {policy.name} {policy.identity}{stored}"


@dataclass
class Answers:
    """The answers of one way so far."""

    way: Way
    bytes_read: int = 0
    bytes_needed: int = 0
    steps: int = 0
    windows: list[Answer] = field(default_factory=list)
    right: dict[str, list[list[bool]]] = field(default_factory=dict)

    @property
    def policy(self) -> Policy:
        return self.way.policy

    def add(self, question: Question, answer: Answer, shape: tuple[int, int, int]) -> None:
        """`shape`: layers, KV heads of a layer, head dimension."""
        layers, heads, head_dim = shape
        row = bytes_of_row(formats.named(self.way.kv_format), head_dim)
        held = [len(question.context) + i for i in range(len(question.target))]
        self.bytes_read += answer.bytes_read
        needed = layers * heads * sum(self.policy.bytes_needed(tokens, head_dim, row) for tokens in held)
        self.bytes_needed += needed if self.policy.in_drive else answer.bytes_read
        self.steps += len(held)
        if question.task == TEXT:
            self.windows.append(answer)
        else:
            self.right.setdefault(question.task, []).append(that_count(answer.first, question.counted))

    def point(self) -> Point:
        """The results of all answers."""
        found = Point(self.policy.name, self.policy.label, "drive" if self.policy.in_drive else "kept rows")
        found.bytes_read, found.bytes_needed = self.bytes_read / self.steps, self.bytes_needed / self.steps
        found.steps, found.kv_format = self.steps, self.way.kv_format
        if self.windows:
            nats, found.standard_error = over_windows([answer.nats for answer in self.windows])
            found.perplexity = math.exp(nats)
            found.kl, found.kl_error = over_windows([answer.divergence for answer in self.windows])
            found.agreement, found.agreement_error = over_windows([answer.agrees for answer in self.windows])
            found.added_nats, found.added_error = over_windows([answer.added for answer in self.windows])
        for task, right in self.right.items():
            row = retrieval.summarise(task, 0, right)
            found.accuracy[task], found.token_accuracy[task] = row.exact, row.tokens
            found.interval[task] = share_interval(sum(map(all, right)), len(right))
        return found
