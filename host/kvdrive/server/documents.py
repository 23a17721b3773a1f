"""The contract of what makes the documents of an answer, whatever the protocol is, and what all of them need."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Protocol

from kvdrive.server.calls import Piece
from kvdrive.server.chances import Chances
from kvdrive.server.fields import Json
from kvdrive.server.generation import Generation

Come = tuple[int, Piece | None, list[Chances]]


class Documents(Protocol):
    """Makes the documents of the answer to one request. An object is used for one answer, in the event loop.

    `choices`: what the model says, each choice of each prompt; one, unless the request asked for more.
    """

    async def whole(self, choices: Sequence[Generation]) -> Json:
        """The answer as one document. All pieces of every choice have come."""

    def events(self, choices: Sequence[Generation]) -> AsyncIterator[str]:
        """The answer as server-sent events, as it comes. Takes the pieces of the choices itself.

        Raises no ApiError: one that comes after the first byte is an event. Leaving early cancels what still runs.
        """


async def pieces_of(choices: Sequence[Generation]) -> AsyncIterator[Come]:
    """What is said, thought and called, as it comes: the choice's place, the piece (None: the choice has ended) and the
    chances of the tokens since the last one. Raises the first ApiError. Leaving early cancels all choices.
    """
    came: asyncio.Queue[Come | Exception] = asyncio.Queue()

    async def take(place: int, choice: Generation) -> None:
        try:
            async for piece in choice.pieces():
                came.put_nowait((place, piece, choice.take_chances()))
            came.put_nowait((place, None, choice.take_chances()))
        except Exception as error:  # a fault is raised where the pieces are taken, not lost in a task
            came.put_nowait(error)

    tasks = [asyncio.ensure_future(take(place, choice)) for place, choice in enumerate(choices)]
    try:
        left = len(tasks)
        while left:
            found = await came.get()
            if isinstance(found, Exception):
                raise found
            left -= found[1] is None
            yield found
    finally:
        for task, choice in zip(tasks, choices, strict=True):
            task.cancel()
            choice.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def take_all(choices: Sequence[Generation]) -> None:
    """Wait for the ends of all choices. Raises ApiError."""
    async for _ in pieces_of(choices):
        pass
