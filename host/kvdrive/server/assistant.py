"""Drafts of an assistant: a small model in memory, with the vocabulary of the model that is served."""

from __future__ import annotations

from collections.abc import Sequence as Several

import torch
from transformers.cache_utils import DynamicCache

from kvdrive.config.run import RunConfig
from kvdrive.errors import InputError
from kvdrive.generation.assistant import load_draft_model
from kvdrive.generation.checkpoints import Checkpoint
from kvdrive.plugins.support import ON_DRIVES, decoder_config, layer_types
from kvdrive.prefix.chain import common_length
from kvdrive.server.drafts import Drafts, MakeDrafts, looked_up

_SURE = 0.4  # probability of a token that is drafted
_WITH_ROWS = {ON_DRIVES, "sliding_attention"}  # layers from which tokens can be removed


class AssistantSource:
    """See `drafts.Source`. K and V of the sequence that the assistant computes are in memory."""

    kind = "assistant"

    def __init__(self, checkpoint: Checkpoint) -> None:
        self._model, self._context = checkpoint.model, checkpoint.context
        self._cache = DynamicCache()  # of all tokens, also in layers with a window
        self._before = 0  # tokens of the sequence when it drafted last
        self._ahead: list[int] = []  # drafted tokens that the cache has behind these

    def behind(self, tokens: Several[int], most: int) -> list[int]:
        """See Source. Ends before a token of which the assistant is not sure, or where its positions end."""
        if len(tokens) + most > self._context:
            return []
        same = min(common_length(self._ahead, tokens[self._before :]), len(tokens) - 1 - self._before)
        self._cache.crop(same - len(self._ahead))
        ids, drafted = list(tokens[self._before + same :]), list[int]()
        while True:
            token, chance = self._next(ids)
            if chance < _SURE:
                self._ahead = drafted
                break
            drafted.append(token)
            if len(drafted) == most:
                self._ahead = drafted[:-1]
                break
            ids = [token]
        self._before = len(tokens)
        return drafted

    def _next(self, ids: list[int]) -> tuple[int, float]:
        """The likeliest token behind `ids`, and its probability."""
        with torch.no_grad():
            given = torch.tensor([ids], device=self._model.device)
            output = self._model(given, past_key_values=self._cache, use_cache=True, logits_to_keep=1)
            chance, token = output.logits[0, -1].float().softmax(-1).max(-1)
        return int(token), float(chance)


def drafts_of(config: RunConfig, checkpoint: Checkpoint) -> MakeDrafts:
    """What the options of a server of `checkpoint` let it draft. Raises InputError."""
    name, lookup = config.model.assistant, config.drafting.lookup
    if not name:
        return looked_up(lookup)
    if lookup:
        raise InputError("`lookup` and `assistant` both draft tokens: leave one of them out")
    found = load_draft_model(config.model, checkpoint)
    if others := set(layer_types(decoder_config(found.model))) - _WITH_ROWS:
        raise InputError(f"`assistant={name}` has layers that keep a state ({', '.join(sorted(others))}): take another")
    return lambda: Drafts(AssistantSource(found))
