"""One generation of a batch: tokens with a record of times and traffic; and its comparison with stock transformers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from kvdrive.config.run import RunConfig
from kvdrive.generation.assistant import Assistant, assisted_steps
from kvdrive.generation.checkpoints import Checkpoint
from kvdrive.generation.decode import Step, steps
from kvdrive.generation.generate import greedy
from kvdrive.generation.sampling import GREEDY, Sampling
from kvdrive.kvcache.hf_cache import HfCache
from kvdrive.kvcache.overflow import Removal
from kvdrive.plugins.transformers import Attachment, attach
from kvdrive.report.record import Recorder
from kvdrive.targets.group import DriveGroup

OnStep = Callable[[Step], None]
OnLayer = Callable[[int], None]


@dataclass(frozen=True)
class Batch:
    """Prompts of one generation, padded on the left: ids and mask int64 [rows, tokens], mask 0 = padding.

    `session`: the name of the session that goes on with `ids`, behind the tokens that it has; "": none.
    """

    ids: torch.Tensor
    mask: torch.Tensor
    new_tokens: int
    sampling: Sampling = GREEDY
    stop_ids: frozenset[int] = frozenset()
    session: str = ""


def batch(
    prompts: list[list[int]],
    new_tokens: int,
    sampling: Sampling = GREEDY,
    stop_ids: frozenset[int] = frozenset(),
) -> Batch:
    """Prompts of different lengths as one batch."""
    length = max(map(len, prompts))
    ids = torch.zeros(len(prompts), length, dtype=torch.int64)
    mask = torch.zeros_like(ids)
    for row, prompt in enumerate(prompts):
        ids[row, length - len(prompt) :] = torch.tensor(prompt)
        mask[row, length - len(prompt) :] = 1
    return Batch(ids, mask, new_tokens, sampling, stop_ids)


@dataclass(frozen=True)
class Generated:
    """New tokens of each row up to its first stop token, the record, and how K and V went to the drives.

    `writeback` is None where nothing goes to drives; `removals`: see Batch; `logits` are those of the
    first steps asked for. `weights_bytes`: of weights read by steps behind the first one; None: in memory.
    """

    tokens: list[list[int]]
    record: Recorder
    writeback: dict[str, Any] | None
    removals: list[Removal]
    logits: list[torch.Tensor] = field(default_factory=list)
    weights_bytes: int | None = None


def generate(
    checkpoint: Checkpoint,
    work: Batch,
    drives: DriveGroup,
    config: RunConfig,
    *,
    on_step: OnStep = lambda step: None,
    on_layer: OnLayer = lambda layer: None,
    keep_logits: int = 0,
    assistant: Assistant | None = None,
) -> Generated:
    """Generate with K and V on `drives`; `on_layer` is called during the prefill, `on_step` after each step.

    `assistant`: drafts tokens for a batch of one sequence.
    Raises UnsupportedError, RangeError, CommandError, TargetError.
    """
    rows: list[torch.Tensor] = []
    logits: list[torch.Tensor] = []
    record = Recorder(drives)
    with attach(checkpoint.model, record.drives, config=config) as attachment:
        cache, work = _begin(attachment, work)
        record.begin()
        with record.watch_layers(checkpoint.model, lambda layer: None if rows else on_layer(layer)):
            for step in _steps(checkpoint, work, cache, assistant):
                if not rows:
                    cache.batch.synchronize()  # writing K and V to the drives counts as part of the prefill
                    in_prefill = _weights_bytes(checkpoint)
                record.step()
                rows.append(step.tokens)
                if len(logits) < keep_logits:
                    logits.append(step.logits)
                on_step(step)
        if work.session:
            with torch.no_grad():  # the last token has not been computed: the next text goes on behind it
                checkpoint.model(rows[-1][:, None].to(checkpoint.model.device), past_key_values=cache)
        writeback, removals = cache.batch.statistics.writeback(), cache.batch.removals
    record.end()
    tokens = _until_stop(torch.stack(rows, dim=1), work.stop_ids)
    read = None if checkpoint.weights is None else _weights_bytes(checkpoint) - in_prefill
    return Generated(tokens, record, writeback, removals, logits, read)


def _steps(checkpoint: Checkpoint, work: Batch, cache: HfCache, assistant: Assistant | None) -> Iterator[Step]:
    """The steps of a batch, with drafts if there is an assistant."""
    how: dict[str, Any] = {"sampling": work.sampling, "stop_ids": work.stop_ids}
    if assistant is not None:
        return assisted_steps(checkpoint.model, work.ids, cache, work.new_tokens, assistant, **how)
    return steps(checkpoint.model, work.ids, cache, work.new_tokens, mask=work.mask, **how)


def _weights_bytes(checkpoint: Checkpoint) -> int:
    """Bytes of weights that were read so far."""
    return 0 if checkpoint.weights is None else checkpoint.weights.file.counters()["bytes"]


def _begin(attachment: Attachment, work: Batch) -> tuple[HfCache, Batch]:
    """The cache of a batch. A session's tokens come in front of those of the batch. Raises InputError."""
    if not work.session:
        rows, tokens = work.ids.shape
        return attachment.cache(tokens + work.new_tokens, rows), work
    cache = attachment.sessions.cache(name=work.session, new_tokens=work.ids.shape[1] + work.new_tokens)
    if not cache.get_seq_length():
        return cache, work
    ids = torch.cat([cache.batch.token_ids(), work.ids], dim=1)
    return cache, replace(work, ids=ids, mask=torch.ones_like(ids))


@dataclass(frozen=True)
class Comparison:
    """`identical` of `total` tokens equal those of stock transformers; `difference` describes the first other one.

    `ties`: of the identical ones, those that transformers rates exactly as high as the one that it took itself.
    """

    identical: int
    total: int
    difference: str | None
    ties: int = 0


def compare_with_transformers(
    checkpoint: Checkpoint, work: Batch, ours: list[list[int]], on_token: Callable[[], None] = lambda: None
) -> Comparison:
    """Greedy generation of the same batch by `model.generate` with the model's own attention and cache."""
    no_stop = -1  # None would mean the model's own stop token
    eos = sorted(work.stop_ids) or no_stop
    length = work.ids.shape[1]
    found = greedy(checkpoint.model, work.ids, work.new_tokens, work.mask, on_token, eos_token_id=eos, pad_token_id=0)
    stock = _until_stop(found[:, length:], work.stop_ids)
    rows = [_compared(checkpoint, work, row, x, y) for row, (x, y) in enumerate(zip(ours, stock, strict=True))]
    return Comparison(
        sum(one.identical for one in rows),
        sum(one.total for one in rows),
        next((one.difference for one in rows if one.difference), None),
        sum(one.ties for one in rows),
    )


def _compared(checkpoint: Checkpoint, work: Batch, row: int, ours: list[int], stock: list[int]) -> Comparison:
    """One row of the batch. Behind an exact tie, transformers goes on with our token."""
    ties = 0
    while (first := _first_difference(ours, stock)) < min(len(ours), len(stock)):
        logits = _next_logits(checkpoint, work, row, stock[:first])
        gap = float(logits[stock[first]] - logits[ours[first]])
        if gap:
            identical = sum(a == b for a, b in zip(ours, stock, strict=False))
            difference = (
                f"row {row}, new token {first + 1}: {ours[first]} instead of {stock[first]}; transformers rates them "
                f"{gap:.2g} apart (standard deviation of its logits: {float(logits.std()):.2g})"
            )
            return Comparison(identical, len(stock), difference, ties)
        ties += 1
        stock = ours[: first + 1]
        if stock[-1] not in work.stop_ids and len(stock) < work.new_tokens:
            stock = stock + _continued(checkpoint, work, row, stock)
    if ours == stock:
        return Comparison(len(stock), len(stock), None, ties)
    difference = f"row {row} has {len(ours)} tokens, transformers {len(stock)}"
    return Comparison(first, len(stock), difference, ties)


def _first_difference(ours: list[int], stock: list[int]) -> int:
    """The place of the first token that differs; the length of the shorter text without one."""
    pairs = enumerate(zip(ours, stock, strict=False))
    return next((i for i, (a, b) in pairs if a != b), min(len(ours), len(stock)))


def _text(work: Batch, row: int, new: list[int]) -> torch.Tensor:
    """A row's prompt and new tokens, int64 [1, tokens]."""
    return torch.cat([work.ids[row][work.mask[row] == 1], torch.tensor(new, dtype=torch.int64)])[None]


def _next_logits(checkpoint: Checkpoint, work: Batch, row: int, new: list[int]) -> torch.Tensor:
    """What stock transformers rates the token behind `new`: float32 [vocabulary]."""
    with torch.no_grad():
        ids = _text(work, row, new).to(checkpoint.model.device)
        logits: torch.Tensor = checkpoint.model(ids, logits_to_keep=1).logits[0, -1].float()
        return logits


def _continued(checkpoint: Checkpoint, work: Batch, row: int, new: list[int]) -> list[int]:
    """What stock transformers says behind `new`."""
    ids = _text(work, row, new)
    eos = sorted(work.stop_ids) or -1
    found = greedy(checkpoint.model, ids, work.new_tokens - len(new), eos_token_id=eos, pad_token_id=0)
    return _until_stop(found[:, ids.shape[1] :], work.stop_ids)[0]


def _until_stop(tokens: torch.Tensor, stop_ids: frozenset[int]) -> list[list[int]]:
    """Rows of [rows, steps], each cut after its first stop token."""
    rows: list[list[int]] = tokens.tolist()
    ends = [next((i + 1 for i, token in enumerate(row) if token in stop_ids), len(row)) for row in rows]
    return [row[:end] for row, end in zip(rows, ends, strict=True)]
