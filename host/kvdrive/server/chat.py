"""Turns a conversation into the tokens that the model continues."""

from __future__ import annotations

from collections.abc import Sequence

from transformers import PreTrainedTokenizerBase

from kvdrive.generation import conversation
from kvdrive.server.errors import ApiError
from kvdrive.server.prompts import Prompts
from kvdrive.server.protocol import Message


def encode(tokenizer: PreTrainedTokenizerBase, prompts: Prompts, messages: Sequence[Message]) -> list[int]:
    """Encode by the checkpoint's template; without a template, as a line for each message. Raises ApiError."""
    prompts.check_characters(sum(len(message.text) for message in messages), "messages")
    try:
        text = conversation.as_text(tokenizer, [{"role": one.role, "content": one.text} for one in messages])
    except Exception as error:  # a template may raise any kind of error for messages that it does not support
        first = (str(error) or type(error).__name__).splitlines()[0]
        refusal = f"the model's chat template refuses this conversation: {first}"
        raise ApiError(400, refusal, param="messages", code="invalid_value") from error
    return prompts.encode(text, "messages", special=conversation.wants_special(tokenizer))
