"""An answer as the event loop sees it: what is said and called, piece by piece, and at the end the counts."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field

from kvdrive.errors import InputError
from kvdrive.generation.text import TextStream
from kvdrive.generation.tokenizer import Tokenizer
from kvdrive.server.calls import Call, Piece, Reader, Thought
from kvdrive.server.chances import Chances
from kvdrive.server.errors import ApiError
from kvdrive.server.fields import Json
from kvdrive.server.grammar import GrammarError
from kvdrive.server.jobs import DeadlinePassed, End, Event, Job, Prompt, Token
from kvdrive.server.protocol import URI
from kvdrive.server.stops import StopFilter
from kvdrive.server.thoughts import ThoughtReader


@dataclass(frozen=True)
class Form:
    """How an answer is read. `stops`: texts that end it. `echo`: what is said before it; None: nothing. `reader`: finds
    its calls.

    `grammar_of`: the field that asks for its grammar. `names`: what the client calls fields of a chat (see `AsChat`).
    `keep`: is called with an answer that is whole and says all that its tokens say. `thoughts`: finds what is thought,
    before `reader` gets the rest. `shows_special`: tokens without a text of their own have one, as some markers do.
    """

    stops: Sequence[str] = ()
    echo: str | None = None
    reader: Reader | None = None
    grammar_of: str = "response_format"
    names: Mapping[str, str] = field(default_factory=dict)
    keep: Callable[[Generation], None] | None = None
    thoughts: ThoughtReader | None = None
    shows_special: bool = False


class Generation:
    """The answer of a job, which comes through `events`. `said`: its pieces so far; `chances`: of all tokens so far."""

    def __init__(self, job: Job, events: asyncio.Queue[Event], tokenizer: Tokenizer, form: Form | None = None) -> None:
        self.said: list[Piece] = []
        self.thought_tokens = 0  # of the answer so far
        self.chances: list[Chances] = []
        self._form = form or Form()
        self._job = job
        self._events = events
        special = self._form.shows_special or self._form.reader is not None  # some calls begin with such a token
        self._text = TextStream(tokenizer, special=special)
        self._filter = StopFilter(self._form.stops)
        self._reader = self._form.reader
        self._numbers: list[int] = []
        self._prompt = Prompt(0)
        self._taken = 0
        self._sum = 0.0
        self._end = End()
        self._stopped = False
        self._ended = False  # by a token that is no part of it

    async def pieces(self) -> AsyncIterator[Piece]:
        """The answer as it comes. Raises ApiError. Leaving early cancels the job."""
        try:
            while not isinstance(event := await self._events.get(), End):
                for piece in self._noted(event):
                    yield piece
                if self._filter.stopped:
                    self.cancel()
                    while not isinstance(event := await self._events.get(), End):
                        pass  # a step that was under way
                    break
            self._end = event
            self._check()
            for piece in self._split(self._filter.put(self._text.end()) + self._filter.end(), last=True):
                yield piece
            if self._form.keep and self._says_all:
                self._form.keep(self)
        finally:
            self.cancel()

    def cancel(self) -> None:
        """Generate no more. Does nothing once the answer has ended."""
        self._job.cancelled.set()

    def take_chances(self) -> list[Chances]:
        """Those of the tokens since the last call."""
        found, self._taken = self.chances[self._taken :], len(self.chances)
        return found

    @property
    def tokens(self) -> list[int]:
        """Those of the prompt and of the answer, without the one that has ended it."""
        return self._job.prompt + (self._numbers[:-1] if self._ended else self._numbers)

    @property
    def thoughts(self) -> str:
        """What was thought so far."""
        return "".join(one.text for one in self.said if isinstance(one, Thought))

    @property
    def mean_chance(self) -> float:
        """The mean of the logarithms of what the model gave the tokens of the answer; higher is likelier."""
        return self._sum / max(len(self._numbers), 1)

    @property
    def reason(self) -> str:
        """Why the answer ended, in OpenAI's words."""
        if self._reader is not None and self._reader.calls:
            return "tool_calls"
        return "stop" if self._stopped else "length"

    @property
    def stop_text(self) -> str:
        """The text that ended the answer; "" if something else did."""
        return self._filter.stopped_by

    @property
    def usage(self) -> Json:
        """Counts of the tokens so far."""
        return total_usage([self])

    @property
    def stored(self) -> Json:
        """The session of the sequence, how its prompt went on with its history, and what attention left unread."""
        found = stored(self._end.session, self._job.session, self._prompt.resume, self._end.removed)
        if self._job.explained and self._prompt.cached <= self._job.explained.tokens:
            found["differs"] = self._job.explained.document()
        return found | {"unread": self._end.unread} if self._end.unread else found

    def _noted(self, event: Prompt | Token) -> list[Piece]:
        """What an event completes."""
        if isinstance(event, Prompt):
            self._prompt = event
            if self._form.echo is None:
                return []
            self.chances.extend(event.chances)
            return self._take([self._form.echo])
        self._numbers.append(event.number)
        if event.chances is not None:
            self.chances.append(event.chances)
            self._sum += event.chances.own or 0.0
        self._ended = event.ends
        said = "" if event.ends else self._filter.put(self._text.put(event.number))
        self._stopped = event.ends or event.completes or self._filter.stopped
        found = self._split(said)
        self.thought_tokens += any(reader is not None and reader.thinks for reader in self._readers)
        return found

    @property
    def _readers(self) -> tuple[ThoughtReader | None, Reader | None]:
        return self._form.thoughts, self._reader

    def _split(self, text: str, *, last: bool = False) -> list[Piece]:
        """What is thought, said and called with this text."""
        found: list[Piece] = [text] if text else []
        for reader in self._readers:
            if reader is None:
                continue
            before, found = found, []
            for piece in before:
                found += reader.put(piece) if isinstance(piece, str) else [piece]
            found += reader.end() if last else []
        return self._take(found)

    def _take(self, pieces: list[Piece]) -> list[Piece]:
        self.said += pieces
        return pieces

    @property
    def _says_all(self) -> bool:
        """True if nothing of the answer was left out: neither what followed a stop text nor calls."""
        calls = sum(isinstance(one, Call) for one in self.said)
        return not self._filter.stopped and (self._reader is None or self._reader.calls == calls)

    def _check(self) -> None:
        """Raises ApiError for an answer that has failed."""
        error = self._end.error
        if isinstance(error, InputError):
            raise ApiError(409, str(error), param="session", code="session_unavailable")
        if isinstance(error, GrammarError):
            found = ApiError(400, str(error), param=self._form.grammar_of, code="grammar_too_large")
            raise found.renamed(self._form.names)
        if isinstance(error, DeadlinePassed):
            raise ApiError(504, str(error), code="deadline_passed")
        if error:
            raise ApiError(500, f"generation failed: {error}", code="generation_failed")


def total_usage(choices: Sequence[Generation]) -> Json:
    """Counts of the tokens so far of all choices. What several of them have in common, their prompt, counts once, and
    so do its tokens that were on the drive already.
    """
    prompts = [(len(one._job.prompt), one._prompt.cached) for one in choices if one._job.leader is None]
    prompt_tokens, new_tokens = sum(tokens for tokens, _ in prompts), sum(len(one._numbers) for one in choices)
    thought_tokens = sum(one.thought_tokens for one in choices)
    found = {
        "prompt_tokens": prompt_tokens,
        "completion_tokens": new_tokens,
        "total_tokens": prompt_tokens + new_tokens,
        "prompt_tokens_details": {"cached_tokens": sum(cached for _, cached in prompts)},
    }
    return found | ({"completion_tokens_details": {"reasoning_tokens": thought_tokens}} if thought_tokens else {})


def stored(session: int | None, name: str, resume: str, removed: int) -> Json:
    """What an answer says of its session: number and address, and how its prompt went on with it (see `engine.Begun`).

    `removed`: tokens that have left it because the positions were used up.
    """
    uri = f"{URI}{name}" if name and session is not None else None
    return {"session": session, "kv_uri": uri, "resume": resume, "removed_tokens": removed}
