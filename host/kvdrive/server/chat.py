"""Turns a conversation into the tokens that the model continues."""

from __future__ import annotations

import json
from collections.abc import Sequence

from transformers import PreTrainedTokenizerBase

from kvdrive.generation import conversation
from kvdrive.server.errors import ApiError
from kvdrive.server.messages import Message, ToolDefinition
from kvdrive.server.prompts import Prompts


def encode(
    tokenizer: PreTrainedTokenizerBase,
    prompts: Prompts,
    messages: Sequence[Message],
    tools: Sequence[ToolDefinition] = (),
) -> list[int]:
    """Encode by the checkpoint's template; without a template, as a line for each message. Raises ApiError."""
    offered = [one.for_template() for one in tools]
    prompts.check_characters(sum(one.characters for one in messages) + len(json.dumps(offered)), "messages")
    try:
        text = conversation.as_text(tokenizer, [one.for_template() for one in messages], offered)
    except Exception as error:  # a template may raise any kind of error for messages that it does not support
        first = (str(error) or type(error).__name__).splitlines()[0]
        refusal = f"the model's chat template refuses this conversation: {first}"
        raise ApiError(400, refusal, param="messages", code="invalid_value") from error
    return prompts.encode(text, "messages", special=conversation.wants_special(tokenizer))
