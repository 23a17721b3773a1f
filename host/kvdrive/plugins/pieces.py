"""A call of the model in pieces that end where what stores the sequence takes a checkpoint."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import torch

from kvdrive.identity.calls import why_not_plain
from kvdrive.kvcache.batch import Batch

_PASSED = ("use_cache", "return_dict")
_PLAIN = ("input_ids", "attention_mask", "position_ids", "cache_position")  # `why_not_plain` looks at them
_KNOWN = (*_PLAIN, "past_key_values", "logits_to_keep", *_PASSED)


def pieces_of(batch: Batch, arguments: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The arguments of the calls that a call with these arguments of its forward consists of; empty: it stays whole.

    Only a plain call that wants the last token's logits and nothing else is divided.
    """
    ids = arguments.get("input_ids")
    if batch.listener is None or not isinstance(ids, torch.Tensor) or ids.dim() != 2 or ids.shape[1] < 2:
        return []
    first, end = batch.length, batch.length + ids.shape[1]
    stops = batch.listener.checkpoints(first, end)
    if not stops or arguments.get("logits_to_keep") != 1 or why_not_plain(arguments, first):
        return []
    if any(value is not None for name, value in arguments.items() if name not in _KNOWN):
        return []
    passed = {name: arguments[name] for name in _PASSED if arguments.get(name) is not None}
    return [
        passed | {"input_ids": ids[:, begin - first : stop - first], "logits_to_keep": 1}
        for begin, stop in pairwise([first, *stops, end])
    ]
