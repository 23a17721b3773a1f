"""Texts that llama.cpp continues: a single one streamed to the terminal, several at the same time; and reported."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from collections.abc import Sequence as Several
from dataclasses import dataclass
from typing import Any

from kvdrive.generation.sampling import GREEDY, Sampling
from kvdrive.llama.context import Context, Sequence
from kvdrive.llama.model import Model
from kvdrive.llama.report import Generated
from kvdrive.llama.several import Continued, Prompt
from kvdrive.llama.steps import steps
from kvdrive.llama.vocabulary import TextStream

OnTokens = Callable[[int], None]


@dataclass(frozen=True)
class Request:
    """How texts are continued. `stream`: a single one goes to stdout as it comes."""

    new_tokens: int
    sampling: Sampling = GREEDY
    ignore_stop: bool = False
    stream: bool = True


def generate(
    sequence: Sequence, ids: Several[int], request: Request, on_tokens: OnTokens = lambda count: None
) -> Generated:
    """Continue a sequence by the prompt `ids`. `on_tokens`: is called with the number of tokens that were computed."""
    model = sequence.model
    stream, tokens = TextStream(model.vocabulary), list[int]()
    write = _write if request.stream else _drop
    before = prefilled = _counters(model)
    began = first = last = time.perf_counter()
    try:
        for token in steps(
            sequence,
            ids,
            request.new_tokens,
            request.sampling,
            ignore_stop=request.ignore_stop,
            on_tokens=on_tokens,
        ):
            last = time.perf_counter()
            if not tokens:
                first, prefilled = last, _counters(model)
            tokens.append(token)
            write(stream.put(token))
    finally:
        write(stream.end() + "\n")
    return Generated([len(ids)], [tokens], first - began, last - first, before, prefilled, _counters(model))


def generate_several(
    context: Context, prompts: Several[Several[int]], request: Request, on_tokens: OnTokens = lambda count: None
) -> Generated:
    """Continue as many texts as the context has sequences. `on_tokens`: is called with the number of new tokens."""
    model, count = context.model, 0
    continued = Continued(context, request.new_tokens, request.sampling, ignore_stop=request.ignore_stop)
    before = prefilled = _counters(model)
    began = first = time.perf_counter()

    def on_token() -> None:
        nonlocal count, first, prefilled
        count += 1
        if count == len(prompts):  # the first one of each
            first, prefilled = time.perf_counter(), _counters(model)
        on_tokens(count)

    found = dict(continued.texts((Prompt(number, ids) for number, ids in enumerate(prompts)), on_token))
    tokens = [found[number] for number in range(len(prompts))]
    seconds = time.perf_counter() - first
    return Generated(list(map(len, prompts)), tokens, first - began, seconds, before, prefilled, _counters(model))


def _counters(model: Model) -> dict[str, Any]:
    assert model.plugin is not None
    return model.plugin.statistics() or {}


def _write(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()


def _drop(text: str) -> None:
    """Nothing is shown."""
