"""A sequence in generation."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch

from kvdrive.generation.sampling import choose
from kvdrive.server.chances import Chances
from kvdrive.server.drafts import Drafts
from kvdrive.server.engine import Sequence
from kvdrive.server.jobs import Job, Token


@dataclass(eq=False)
class Running:
    """A sequence in generation. `tokens`: its prompt and what came behind it; `cached` of them were on the drive.

    `shares`: its decode steps may share calls of the model. `drafts`: None where nothing is drafted.
    """

    job: Job
    sequence: Sequence
    cached: int
    resume: str
    tokens: list[int]
    generator: torch.Generator
    shares: bool
    drafts: Drafts | None = None
    removed_before: int = field(default=0)
    last_logits: torch.Tensor | None = None  # of a prompt whose tokens are scored, behind its last computed token

    @property
    def computed(self) -> int:
        """Tokens that were computed, those included that have left the sequence."""
        return self.sequence.computed

    @property
    def held(self) -> int:
        """Tokens of it that are on the drives or in flight."""
        return self.computed - self.sequence.removed

    @property
    def in_prompt(self) -> bool:
        """True until the prompt's last chunk is computed."""
        return len(self.tokens) == len(self.job.prompt)

    def draft(self) -> list[int]:
        """Tokens that may come behind its last one. It has room for them, and for one that the model chooses."""
        if self.drafts is None or not self.shares:
            return []
        return self.drafts.draft(self.tokens, self.job.most_tokens - len(self.tokens) - 1)

    def next(self, logits: torch.Tensor) -> Token:
        """The next token, as the request wants it, from logits [1, vocabulary], which may be changed by that. Raises
        GrammarError.
        """
        job, grammar = self.job, self.job.grammar
        wanted = job.rules.applied(logits, job.prompt, self.tokens[len(job.prompt) :])
        if grammar:
            wanted = wanted.clone() if wanted is logits and job.chances is not None else wanted
            grammar.restrict(wanted)
        token = int(choose(wanted, job.sampling, self.generator)[0])
        ends = token in job.rules.ends
        if grammar and not ends:
            grammar.take(token)
        chances = None if job.chances is None else Chances.of(logits, token, job.chances)
        completes = grammar is not None and not ends and grammar.complete
        return Token(token, ends, completes, chances)

    def is_last(self, token: Token) -> bool:
        """True if the sequence ends with a token, which it has."""
        return token.ends or token.completes or len(self.tokens) == self.job.most_tokens
