"""An answer as the event loop sees it: what is said and called, piece by piece, and at the end the counts."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from transformers import PreTrainedTokenizerBase

from kvdrive.errors import InputError
from kvdrive.generation.text import TextStream
from kvdrive.server.call_reader import CallReader
from kvdrive.server.chances import Chances
from kvdrive.server.errors import ApiError
from kvdrive.server.fields import Json
from kvdrive.server.grammar import GrammarError
from kvdrive.server.jobs import DeadlinePassed, End, Job, Token
from kvdrive.server.protocol import URI
from kvdrive.server.stops import StopFilter
from kvdrive.server.tool_formats import Call


class Generation:
    """The answer of a job, which comes through `events`. `stops`: texts that end it. `reader`: finds its calls."""

    def __init__(
        self,
        job: Job,
        events: asyncio.Queue[Token | End],
        tokenizer: PreTrainedTokenizerBase,
        stops: list[str],
        reader: CallReader | None = None,
    ) -> None:
        self._job = job
        self._events = events
        self._text = TextStream(tokenizer, special=reader is not None)  # some calls begin with a special token
        self._filter = StopFilter(stops)
        self._reader = reader
        self._tokens = 0
        self._cached = 0
        self._resume = "none"
        self._chances: list[Chances] = []
        self._end = End()
        self._stopped = False

    async def pieces(self) -> AsyncIterator[str | Call]:
        """The answer as it comes. Raises ApiError. Leaving early cancels the job."""
        try:
            while isinstance(event := await self._events.get(), Token):
                for piece in self._said(event):
                    yield piece
                if self._filter.stopped:
                    self._job.cancelled.set()
                    while isinstance(event := await self._events.get(), Token):
                        pass  # a step that was under way
                    break
            self._end = event
            self._check()
            for piece in self._split(self._filter.put(self._text.end()) + self._filter.end(), last=True):
                yield piece
        finally:
            self._job.cancelled.set()

    def take_chances(self) -> list[Chances]:
        """Those of the tokens since the last call."""
        found, self._chances = self._chances, []
        return found

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
        return usage(len(self._job.prompt), self._tokens, self._cached)

    @property
    def stored(self) -> Json:
        """The session of the sequence, how its prompt went on with its history, and what attention left unread."""
        found = stored(self._end.session, self._job.session, self._resume, self._end.removed)
        return found | {"unread": self._end.unread} if self._end.unread else found

    def _said(self, token: Token) -> list[str | Call]:
        """What a token completes."""
        self._tokens += 1
        self._cached, self._resume = token.cached, token.resume
        if token.chances is not None:
            self._chances.append(token.chances)
        said = "" if token.ends else self._filter.put(self._text.put(token.number))
        self._stopped = token.ends or token.completes or self._filter.stopped
        return self._split(said)

    def _split(self, text: str, *, last: bool = False) -> list[str | Call]:
        if self._reader is None:
            return [text] if text else []
        return self._reader.put(text) + (self._reader.end() if last else [])

    def _check(self) -> None:
        """Raises ApiError for an answer that has failed."""
        error = self._end.error
        if isinstance(error, InputError):
            raise ApiError(409, str(error), param="session", code="session_unavailable")
        if isinstance(error, GrammarError):
            raise ApiError(400, str(error), param="response_format", code="grammar_too_large")
        if isinstance(error, DeadlinePassed):
            raise ApiError(504, str(error), code="deadline_passed")
        if error:
            raise ApiError(500, f"generation failed: {error}", code="generation_failed")


def usage(prompt_tokens: int, new_tokens: int, cached_tokens: int) -> Json:
    """The counts of an answer; `cached_tokens` of the prompt were on the drive already."""
    return {
        "prompt_tokens": prompt_tokens,
        "completion_tokens": new_tokens,
        "total_tokens": prompt_tokens + new_tokens,
        "prompt_tokens_details": {"cached_tokens": cached_tokens},
    }


def stored(session: int | None, name: str, resume: str, removed: int) -> Json:
    """What an answer says of its session: number and address, and how its prompt went on with it (see `idle.Taken`).

    `removed`: tokens that have left it because the positions were used up.
    """
    uri = f"{URI}{name}" if name and session is not None else None
    return {"session": session, "kv_uri": uri, "resume": resume, "removed_tokens": removed}
