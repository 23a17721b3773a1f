"""Text between a beginning and an end, for models that were trained for it: their tokens say which is which."""

from __future__ import annotations

from kvdrive.generation.tokenizer import Tokenizer
from kvdrive.server.errors import ApiError
from kvdrive.server.prompts import Prompts

# What stands before the beginning, between it and the end, and behind both.
_MARKS = (
    ("<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>"),  # Qwen 2.5 Coder, CodeGemma
    ("<fim_prefix>", "<fim_suffix>", "<fim_middle>"),  # StarCoder
    ("▁<PRE>", "▁<SUF>", "▁<MID>"),  # Code Llama
    ("<\uff5cfim\u2581begin\uff5c>", "<\uff5cfim\u2581hole\uff5c>", "<\uff5cfim\u2581end\uff5c>"),  # DeepSeek Coder
)


def infilled(tokenizer: Tokenizer, prompts: Prompts, text: str, suffix: str) -> list[int]:
    """The tokens of a prompt for what stands between `text` and `suffix`. Raises ApiError."""
    marks = marks_of(tokenizer)
    if marks is None:
        sentence = "suffix needs a model that has tokens for text between two others: leave it out"
        raise ApiError(400, sentence, param="suffix", code="unsupported_parameter")
    before, between, behind = marks
    begin, end = prompts.encode(text, "prompt", special=False), prompts.encode(suffix, "suffix", special=False)
    return [before, *begin, between, *end, behind]


def marks_of(tokenizer: Tokenizer) -> tuple[int, int, int] | None:
    """The token before the beginning, the one between it and the end, and the one behind both; None: it has none."""
    vocabulary = tokenizer.get_vocab()
    for before, between, behind in _MARKS:
        if before in vocabulary and between in vocabulary and behind in vocabulary:
            return vocabulary[before], vocabulary[between], vocabulary[behind]
    return None
