"""How likely the tokens of an answer were, as OpenAI's `logprobs` say it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

import torch

from kvdrive.generation.tokenizer import Tokenizer
from kvdrive.server.fields import Json


@dataclass(frozen=True)
class Chances:
    """Natural logarithms of what the model gave a token and the `top` likeliest ones, before any rule of a request.

    `own`: None for a token that nothing stands before.
    """

    token: int
    own: float | None
    top: tuple[tuple[int, float], ...]

    @staticmethod
    def first(token: int) -> Chances:
        """Of the first token of a prompt."""
        return Chances(token, None, ())

    @staticmethod
    def of(logits: torch.Tensor, token: int, top: int) -> Chances:
        """From logits float32 [1, vocabulary]."""
        all_of_them = logits[0].log_softmax(-1)
        values, tokens = all_of_them.topk(top)
        return Chances(token, float(all_of_them[token]), tuple(zip(tokens.tolist(), values.tolist(), strict=True)))


def as_chat(tokenizer: Tokenizer, several: Sequence[Chances]) -> Json:
    """`logprobs` of a choice of a chat."""
    content = [
        _entry(tokenizer, one.token, one.own) | {"top_logprobs": [_entry(tokenizer, *other) for other in one.top]}
        for one in several
    ]
    return {"content": content, "refusal": None}


def as_completion(tokenizer: Tokenizer, several: Sequence[Chances], offset: int) -> Json:
    """`logprobs` of a choice of a completion; `offset`: characters of the answer before the first of them."""
    texts = [_text(tokenizer, one.token) for one in several]
    special = set(tokenizer.all_special_ids)  # they are no part of the text
    lengths = [0 if one.token in special else len(text) for one, text in zip(several, texts, strict=True)]
    return {
        "tokens": texts,
        "token_logprobs": [one.own for one in several],
        "top_logprobs": [
            None if one.own is None else {_text(tokenizer, token): chance for token, chance in one.top}
            for one in several
        ],
        "text_offset": [offset + before for before in accumulate([0, *lengths[:-1]])],
    }


def _entry(tokenizer: Tokenizer, token: int, chance: float | None) -> Json:
    text = _text(tokenizer, token)
    return {"token": text, "logprob": chance, "bytes": list(text.encode())}


def _text(tokenizer: Tokenizer, token: int) -> str:
    text: str = tokenizer.decode([token])
    return text
