"""Requests of the page: an answer that is generated whether or not anybody reads it, and texts to show."""

from __future__ import annotations

from typing import Annotated

from pydantic import FailFast, Field, model_validator

from kvdrive.server.common_fields import (
    MinP,
    Model,
    RepetitionPenalty,
    Seed,
    Session,
    Temperature,
    TopK,
    TopP,
)
from kvdrive.server.fields import AsChat, Fields, Json, Says, refuse
from kvdrive.server.messages import Message

MOST_TEXTS, MOST_CHARACTERS = 64, 256 << 10


class AnswerRequest(AsChat):
    """`POST /v1/answers/NAME`: a conversation, whose answer is kept for a while and read by its name."""

    model: Model
    messages: Annotated[
        list[Message],
        FailFast(),
        Field(min_length=1),
        Says("a list of one message or more, each with role and content", "the conversation so far"),
    ]
    session: Session = None
    max_tokens: Annotated[
        int | None,
        Field(ge=1),
        Says("a whole number, 1 or more", "tokens of the answer at most; default: as many as there is room"),
    ] = None
    temperature: Temperature = None
    top_p: TopP = None
    top_k: TopK = None
    min_p: MinP = None
    repetition_penalty: RepetitionPenalty = None
    seed: Seed = None

    def for_chat(self) -> Json:
        """See AsChat."""
        return {name: getattr(self, name) for name in self.known() if name != "session"}


class RenderRequest(Fields):
    """`POST /render`: Markdown as HTML that a page may show."""

    texts: Annotated[
        list[str],
        FailFast(),
        Field(max_length=MOST_TEXTS),
        Says(f"a list of up to {MOST_TEXTS} texts", f"Markdown, {MOST_CHARACTERS} characters together at most"),
    ]

    @model_validator(mode="after")
    def _is_short(self) -> RenderRequest:
        if sum(map(len, self.texts)) > MOST_CHARACTERS:
            refuse(f"{{param}} have more than {MOST_CHARACTERS} characters: send them in parts", "texts")
        return self
