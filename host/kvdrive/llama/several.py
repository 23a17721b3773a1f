"""Several texts that are continued at the same time: their steps share calls of the model."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from collections.abc import Sequence as Several
from dataclasses import dataclass, field, replace

from kvdrive.generation.sampling import Chooser, Sampling
from kvdrive.llama.context import Context, Logits, Sequence


@dataclass(frozen=True)
class Prompt:
    """`ids`: what is continued. `number`: of the text."""

    number: int
    ids: Several[int]


@dataclass
class _Running:
    prompt: Prompt
    sequence: Sequence
    choose: Chooser
    tokens: list[int] = field(default_factory=list)


class Continued:
    """Texts in the sequences of a context, as many at once as it has. `new_tokens`: of each, at most.

    Each is sampled with a seed of its own. `ignore_stop`: none ends before.
    """

    def __init__(self, context: Context, new_tokens: int, sampling: Sampling, *, ignore_stop: bool = False) -> None:
        self._context, self._new_tokens, self._sampling = context, new_tokens, sampling
        self._ignore_stop = ignore_stop
        self._free = list(reversed(context.sequences))
        self._running: list[_Running] = []

    def texts(
        self, prompts: Iterable[Prompt], on_token: Callable[[], None] = lambda: None
    ) -> Iterator[tuple[int, list[int]]]:
        """Number and new tokens of each text when it has ended. `on_token` is called for each token.

        Raises as `Sequence.extend` does.
        """
        waiting = iter(prompts)
        while self._begin(waiting, on_token) or self._running:
            yield from self._ended()
            if self._running:
                several = [one.sequence for one in self._running]
                logits = self._context.step(several, [one.tokens[-1:] for one in self._running])
                for one, row in zip(self._running, logits, strict=True):
                    self._take(one, row, on_token)
                yield from self._ended()

    def _begin(self, waiting: Iterator[Prompt], on_token: Callable[[], None]) -> bool:
        """Compute prompts as far as sequences are free. True if there were any."""
        begun = False
        while self._free and (prompt := next(waiting, None)) is not None:
            sampling = replace(self._sampling, seed=self._sampling.seed + prompt.number)
            one = _Running(prompt, self._free.pop(), Chooser(sampling))
            self._running.append(one)
            self._take(one, one.sequence.extend(prompt.ids), on_token)
            begun = True
        return begun

    def _take(self, one: _Running, logits: Logits, on_token: Callable[[], None]) -> None:
        one.tokens.append(one.choose(logits))
        on_token()

    def _ended(self) -> Iterator[tuple[int, list[int]]]:
        """Texts that have ended, whose sequences are free then."""
        ends = self._context.model.vocabulary.ends
        for one in list(self._running):
            if len(one.tokens) == self._new_tokens or (not self._ignore_stop and ends(one.tokens[-1])):
                self._running.remove(one)
                one.sequence.truncate(0)
                self._free.append(one.sequence)
                yield one.prompt.number, one.tokens
