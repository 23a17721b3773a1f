"""All kinds of requests with a body."""

from __future__ import annotations

from kvdrive.server.anthropic_messages import CountRequest, MessagesRequest
from kvdrive.server.fields import Fields
from kvdrive.server.protocol import ChatRequest, CompletionRequest, SlotRequest

REQUESTS: tuple[type[Fields], ...] = (CompletionRequest, ChatRequest, MessagesRequest, CountRequest, SlotRequest)
