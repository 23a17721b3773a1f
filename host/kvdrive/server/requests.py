"""All kinds of requests with a body."""

from __future__ import annotations

from kvdrive.server.anthropic_messages import CountRequest, MessagesRequest
from kvdrive.server.fields import Fields
from kvdrive.server.protocol import ChatRequest, CompletionRequest, SlotRequest
from kvdrive.server.responses_requests import ResponseRequest

REQUESTS: tuple[type[Fields], ...] = (
    CompletionRequest,
    ChatRequest,
    ResponseRequest,
    MessagesRequest,
    CountRequest,
    SlotRequest,
)
