"""Speculative decoding: an assistant drafts tokens, and one call of the model verifies all of them.

The drafts are transformers' (`AssistedCandidateGenerator`, the interface behind `model.generate(assistant_model=..)`).
The model's own choices decide, so the tokens are those without an assistant, also those of a sampling. K and V of
drafted tokens that the model rejects are removed from the cache, and so from the drives.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch
from transformers import GenerationConfig, PreTrainedModel
from transformers.cache_utils import Cache
from transformers.generation.candidate_generator import AssistedCandidateGenerator

from kvdrive.config.run import ModelOptions
from kvdrive.errors import InputError, UnsupportedError
from kvdrive.generation import checkpoints
from kvdrive.generation.checkpoints import Checkpoint
from kvdrive.generation.decode import Step
from kvdrive.generation.sampling import GREEDY, Sampling, choose
from kvdrive.weights.acceptance import Acceptance
from kvdrive.weights.neurons import DRAFT
from kvdrive.weights.sparse import SparseWeights


@dataclass
class Drafted:
    """Tokens that the assistant drafted, those of them that the model accepted, and the calls that verified them."""

    drafted: int = 0
    accepted: int = 0
    calls: int = 0

    @property
    def share(self) -> float | None:
        """Accepted ones of those drafted; None before the first."""
        return self.accepted / self.drafted if self.drafted else None


class Assistant:
    """A model in memory that drafts for another one. `acceptance` counts what was verified, if weights need it."""

    def __init__(self, checkpoint: Checkpoint, acceptance: Acceptance | None = None) -> None:
        self._checkpoint, self._acceptance = checkpoint, acceptance
        self.counters = Drafted()

    def drafts(self, text: torch.Tensor, max_length: int, stop_ids: frozenset[int]) -> Drafts:
        """Drafts for a text [1, tokens] that grows up to so many tokens."""
        return Drafts(self._checkpoint, text, max_length, stop_ids)

    def verified(self, drafted: int, kept: int) -> None:
        """A call has verified `drafted` tokens behind a known one; it chose `kept` tokens, the last of them itself."""
        self.counters.calls += 1
        self.counters.drafted += drafted
        self.counters.accepted += kept - 1
        if drafted and self._acceptance is not None:
            self._acceptance.add(kept, drafted + 1)

    def report(self) -> dict[str, Any]:
        """The counters for the report of a generation."""
        share = None if self._acceptance is None else self._acceptance.share
        return {
            "model": self._checkpoint.name,
            **asdict(self.counters),
            "share": self.counters.share,
            "window_share": share,
        }


class Drafts:
    """What an assistant drafts behind a text [1, tokens] that grows. It keeps K and V of the text in memory."""

    def __init__(self, checkpoint: Checkpoint, text: torch.Tensor, max_length: int, stop_ids: frozenset[int]) -> None:
        config = GenerationConfig(
            max_length=max_length,
            min_length=0,
            do_sample=False,
            num_beams=1,
            eos_token_id=sorted(stop_ids) or None,
            pad_token_id=0,
        )
        mask = {"attention_mask": torch.ones_like(text)}
        self._candidates = AssistedCandidateGenerator(text, checkpoint.model, config, mask)
        self._longest, self._context = max_length, checkpoint.context

    def behind(self, text: torch.Tensor) -> torch.Tensor:
        """Drafted tokens int64 [n], none where the assistant has no positions left; first for the text it began with.

        The model chooses one token itself, so a text that lacks one gets no draft.
        """
        tokens = text.shape[1]
        self._candidates.num_assistant_tokens = min(int(self._candidates.num_assistant_tokens), DRAFT - 1)
        if tokens + 1 >= self._longest or tokens + self._candidates.num_assistant_tokens > self._context:
            return text[0, tokens:]
        with torch.no_grad():
            drafted: torch.Tensor = self._candidates.get_candidates(text)[0][0, tokens:].cpu()
        return drafted

    def verified(self, text: torch.Tensor, logits: torch.Tensor, accepted: int) -> None:
        """The model accepted so many of the tokens drafted last; logits [n + 1, vocabulary]."""
        self._candidates.update_candidate_strategy(text, logits[None], accepted)


def load_assistant(options: ModelOptions, checkpoint: Checkpoint) -> Assistant:
    """The assistant that `options` name for their own model `checkpoint`, in memory.

    Raises InputError if it has another vocabulary.
    """
    found = load_draft_model(options, checkpoint)
    weights = checkpoint.weights
    return Assistant(found, weights.acceptance if isinstance(weights, SparseWeights) else None)


def load_draft_model(options: ModelOptions, checkpoint: Checkpoint) -> Checkpoint:
    """The assistant's model, which `options` name beside their own one. Raises InputError for another vocabulary."""
    found = checkpoints.load(options.assistant, options.dtype, options.device)
    sizes = [one.model.config.get_text_config().vocab_size for one in (checkpoint, found)]
    if sizes[0] != sizes[1] or checkpoint.tokenizer.get_vocab() != found.tokenizer.get_vocab():
        raise InputError(
            f"`assistant={options.assistant}` has another vocabulary than {checkpoint.name}: take a smaller model of "
            "its family"
        )
    return found


def require_one(rows: int) -> None:
    """Raises InputError for a batch of several sequences."""
    if rows > 1:
        raise InputError(f"`assistant` drafts for one sequence, not for {rows}: give one prompt, or leave it out")


def assisted_steps(
    model: PreTrainedModel,
    ids: torch.Tensor,
    cache: Cache,
    max_new_tokens: int,
    assistant: Assistant,
    *,
    sampling: Sampling = GREEDY,
    stop_ids: frozenset[int] = frozenset(),
) -> Iterator[Step]:
    """`decode.steps` of one sequence, ids [1, tokens], with the same tokens in fewer calls of the model.

    Raises UnsupportedError where the cache cannot remove tokens, and what the cache raises.
    """
    generator = torch.Generator().manual_seed(sampling.seed)
    cache.activate_past_recording()
    text, longest = ids, ids.shape[1] + max_new_tokens
    drafts, drafted = None, ids[0, :0]  # the prompt is computed by itself, as without an assistant
    while text.shape[1] < longest:
        given = torch.cat([text[:, cache.get_seq_length() :], drafted[None]], dim=1)
        with torch.no_grad():
            out = model(given.to(model.device), past_key_values=cache, use_cache=True, logits_to_keep=len(drafted) + 1)
        logits = out.logits[0].float().cpu()
        if drafts is None and not all(layer.is_croppable for layer in cache.layers):
            raise UnsupportedError("the model or its attention cannot remove drafted tokens: leave `assistant` out")
        chosen = _chosen(logits, drafted.tolist(), sampling, generator, stop_ids)
        cache.crop(len(chosen) - 1 - len(drafted))
        if drafts is not None:
            assistant.verified(len(drafted), len(chosen))
            drafts.verified(text, logits, len(chosen) - 1)
        for token, row in zip(chosen, logits, strict=False):
            yield Step(torch.tensor([token]), row[None])
        text = torch.cat([text, torch.tensor([chosen])], dim=1)
        if chosen[-1] in stop_ids:
            return
        drafts = drafts or assistant.drafts(text, longest, stop_ids)
        drafted = drafts.behind(text)


def _chosen(
    logits: torch.Tensor,
    drafted: Sequence[int],
    sampling: Sampling,
    generator: torch.Generator,
    stop_ids: frozenset[int],
) -> list[int]:
    """The tokens that steps would have chosen from logits [n + 1, vocabulary], up to the first that was not drafted."""
    chosen: list[int] = []
    for row, expected in zip(logits, [*drafted, None], strict=True):
        chosen.append(int(choose(row[None], sampling, generator)[0]))
        if chosen[-1] != expected or chosen[-1] in stop_ids:
            break
    return chosen
