"""All kinds of requests with a body, by their paths."""

from __future__ import annotations

from kvdrive.server.answer_requests import AnswerRequest, RenderRequest
from kvdrive.server.anthropic_messages import CountRequest, MessagesRequest
from kvdrive.server.fields import Fields
from kvdrive.server.protocol import ChatRequest, CompletionRequest, SlotRequest
from kvdrive.server.responses_requests import ResponseRequest
from kvdrive.server.token_requests import DetokenizeRequest, TokenizeRequest

BODIES: dict[str, type[Fields]] = {
    "/v1/completions": CompletionRequest,
    "/v1/chat/completions": ChatRequest,
    "/v1/responses": ResponseRequest,
    "/v1/messages": MessagesRequest,
    "/v1/messages/count_tokens": CountRequest,
    "/slots/{slot}": SlotRequest,
    "/tokenize": TokenizeRequest,
    "/detokenize": DetokenizeRequest,
    "/v1/answers/{answer}": AnswerRequest,
    "/render": RenderRequest,
}
REQUESTS = tuple(BODIES.values())
