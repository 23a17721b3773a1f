"""Prompts of a file, answered by llama.cpp: several at the same time, each once it is its turn."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Any

from kvdrive.batch.files import Prompt
from kvdrive.config.run import RunConfig
from kvdrive.errors import InputError
from kvdrive.generation.sampling import GREEDY
from kvdrive.llama import several
from kvdrive.llama.context import Context
from kvdrive.llama.model import Model
from kvdrive.llama.opening import open_model, room_of
from kvdrive.llama.several import Continued
from kvdrive.llama.vocabulary import text_of

_AT_ONCE = 8


def answers(
    prompts: Sequence[Prompt], new_tokens: int, config: RunConfig, typed: Collection[str]
) -> Iterator[dict[str, Any]]:
    """The answer to each prompt, greedy, as its line has it, in the order in which they end. A prompt that is too long
    gets an "error" instead of a "text". `typed`: see `open_model`. Raises InputError, UnsupportedError, TargetError.
    """
    with open_model(config, typed) as model:
        ids = [model.vocabulary.encode(prompt.text) for prompt in prompts]
        errors = [_too_long(model, config, len(one) + new_tokens) for one in ids]
        yield from ({"id": prompt.id, "error": error} for prompt, error in zip(prompts, errors, strict=True) if error)
        fitting = [several.Prompt(number, one) for number, one in enumerate(ids) if not errors[number]]
        if not fitting:
            return
        room = max(len(one.ids) for one in fitting) + new_tokens
        with Context(model, room, min(_AT_ONCE, len(fitting))) as context:
            for number, tokens in Continued(context, new_tokens, GREEDY).texts(fitting):
                counts = {"prompt_tokens": len(ids[number]), "new_tokens": len(tokens)}
                yield {"id": prompts[number].id, "text": text_of(model.vocabulary, tokens), **counts}


def _too_long(model: Model, config: RunConfig, tokens: int) -> str:
    """The sentence about more tokens than the context has; "": they fit."""
    try:
        room_of(model, config, tokens)
    except InputError as error:
        return str(error)
    return ""
