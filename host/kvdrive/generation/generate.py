"""Greedy generation with the KV cache in a drive."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from transformers import PreTrainedModel
from transformers.generation.streamers import BaseStreamer

from kvdrive.plugins.transformers import attach
from kvdrive.targets.group import Drives

OnToken = Callable[[], None]


def generate(
    model: PreTrainedModel,
    input_ids: torch.Tensor,
    target: Drives,
    *,
    max_new_tokens: int,
    attention_mask: torch.Tensor | None = None,
    on_token: OnToken | None = None,
    **options: Any,
) -> torch.Tensor:
    """Greedy continuation of input_ids [batch, tokens] int64 -> [batch, tokens + new], with `target` as the KV cache.

    `attention_mask` [batch, tokens], 0 = padding (on the left). `on_token` is called after each new token. `options` go
    to `attach`. Raises UnsupportedError, RangeError, CommandError, TargetError.
    """
    with attach(model, target, **options):
        return greedy(model, input_ids, max_new_tokens, attention_mask, on_token)


def greedy(
    model: PreTrainedModel,
    input_ids: torch.Tensor,
    max_new_tokens: int,
    attention_mask: torch.Tensor | None = None,
    on_token: OnToken | None = None,
    **options: object,
) -> torch.Tensor:
    """`model.generate` without sampling; `options` go to it unchanged."""
    mask = torch.ones_like(input_ids) if attention_mask is None else attention_mask
    tokens: torch.Tensor = model.generate(
        input_ids.to(model.device),
        attention_mask=mask.to(model.device),
        max_new_tokens=max_new_tokens,
        do_sample=False,
        num_beams=1,
        streamer=None if on_token is None else _Steps(on_token),
        **options,
    )
    return tokens.to(input_ids.device)


class _Steps(BaseStreamer):  # type: ignore[misc]
    """Calls back for each generated token; transformers puts the prompt first."""

    def __init__(self, on_token: OnToken) -> None:
        self._on_token = on_token
        self._prompt_seen = False

    def put(self, value: torch.Tensor) -> None:
        if self._prompt_seen:
            self._on_token()
        self._prompt_seen = True

    def end(self) -> None:
        pass
