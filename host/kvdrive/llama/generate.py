"""One text that llama.cpp continues: streamed to the terminal, and reported."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from kvdrive.generation.sampling import GREEDY, Sampling
from kvdrive.llama.context import Context
from kvdrive.llama.model import Model
from kvdrive.llama.report import Generated
from kvdrive.llama.steps import steps
from kvdrive.llama.vocabulary import TextStream

OnTokens = Callable[[int], None]


@dataclass(frozen=True)
class Request:
    """`ids`: the prompt. `stream`: the text goes to stdout as it comes."""

    ids: list[int]
    new_tokens: int
    sampling: Sampling = GREEDY
    ignore_stop: bool = False
    stream: bool = True


def generate(model: Model, context: Context, request: Request, on_tokens: OnTokens = lambda count: None) -> Generated:
    """Continue a prompt in an empty context. `on_tokens`: is called with the number of tokens that were computed."""
    stream, tokens = TextStream(model.vocabulary), list[int]()
    write = _write if request.stream else _drop
    before = prefilled = _counters(model)
    began = first = last = time.perf_counter()
    try:
        for token in steps(
            context,
            request.ids,
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
    return Generated(len(request.ids), tokens, first - began, last - first, before, prefilled, _counters(model))


def _counters(model: Model) -> dict[str, Any]:
    assert model.plugin is not None
    return model.plugin.statistics() or {}


def _write(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()


def _drop(text: str) -> None:
    """Nothing is shown."""
