"""What happens when an attached model is called: it gets a cache on drives, and a call that fails is undone."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from transformers import PreTrainedModel
from transformers.cache_utils import Cache, DynamicCache

from kvdrive.errors import InputError, TargetError, UnsupportedError
from kvdrive.identity.calls import flat
from kvdrive.kvcache.batch import Batch
from kvdrive.kvcache.hf_cache import HfCache, borrow
from kvdrive.kvcache.loading import LateLoadError
from kvdrive.kvcache.mini_batches import MiniBatches
from kvdrive.kvcache.overflow import Overflow
from kvdrive.kvcache.recovery import Recovery, is_loss
from kvdrive.nvme.errors import CommandError
from kvdrive.plugins.forward import Forward
from kvdrive.plugins.pieces import pieces_of
from kvdrive.plugins.positions import positions_of
from kvdrive.plugins.watched_model import WatchedModel
from kvdrive.targets.process import Owned

_TOKENS = ("input_ids", "inputs_embeds")
_RECOVERIES = 3  # the most recoveries in one call of the model; more failures than that have a permanent cause
log = logging.getLogger(__name__)


class Calls(Owned):
    """The calls of `model`. `new` makes an empty batch for so many tokens and rows; `recomputes`: what a lost drive had
    is computed again. `recoveries` counts that.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        forward: Forward,
        watched: WatchedModel,
        new: Callable[[int, int], Batch],
        schedule: MiniBatches,
        limits: Overflow,
        *,
        recomputes: bool,
    ) -> None:
        super().__init__()
        self.recoveries = 0
        self._model = model
        self._forward = forward
        self._watched = watched
        self._new = new
        self._schedule = schedule
        self._limits = limits
        self._recomputes = recomputes
        self.recovery = Recovery(forward.own, model)
        self._warned = False

    def call(self, *args: Any, **kwargs: Any) -> Any:
        """`model.forward` while the model is attached."""
        if self.is_foreign:
            self.require_own()
        bound = self._forward.signature.bind(*args, **kwargs)
        arguments = flat(bound)
        self._check(arguments)
        cache = self._cache_of(bound.arguments)
        if cache is None:
            return self._forward.own(*args, **kwargs)
        if pieces := pieces_of(cache.batch, arguments):
            return self._in_pieces(cache, pieces)
        bound.arguments["past_key_values"] = cache

        def run(past: Cache) -> Any:
            one = inspect.BoundArguments(bound.signature, bound.arguments | {"past_key_values": past})
            return self._forward.own(*one.args, **one.kwargs)

        return self._call(cache, arguments | {"past_key_values": cache}, run)

    def _in_pieces(self, cache: HfCache, pieces: list[dict[str, Any]]) -> Any:
        """The output of the last piece. A call that fails in one is undone as a whole."""
        batch, before, output = cache.batch, cache.batch.length, None
        try:
            for number, piece in enumerate(pieces):
                batch.part.in_prompt = number > 0 and before == 0
                output = self._call(cache, piece, partial(self._compute, piece))
        except BaseException:
            batch.undo(before)
            raise
        finally:
            batch.part.in_prompt = False
        return output

    def _compute(self, arguments: dict[str, Any], cache: Cache) -> Any:
        return self._forward.own(**arguments, past_key_values=cache)

    def _call(self, cache: HfCache, arguments: dict[str, Any], run: Callable[[Cache], Any]) -> Any:
        """`run(cache)`, again as long as what failed can be repaired. A call that fails is undone."""
        batch, recovery, failures = cache.batch, self.recovery, 0
        batch.calling(arguments)
        before = batch.length
        while True:
            try:
                self._fit(batch, arguments)
                output = self._schedule.run(batch, cache, run, _shape_of(arguments))
                self._watched.check()
                batch.called(arguments)
                return output
            except LateLoadError as error:
                log.warning("%s", error)
                batch.undo(before)
                recovery.compute_instead(batch)
            except (TargetError, CommandError) as error:
                failures += 1
                if failures <= _RECOVERIES and recovery.survives(batch, error):
                    batch.undo(before)
                    continue
                recomputes = self._recomputes or (batch.listener is not None and isinstance(error, CommandError))
                if not recomputes or not is_loss(error) or failures > _RECOVERIES:
                    batch.undo(before)
                    raise
                log.warning("%s; computing its tokens again", error)
                self.recoveries += 1
                recovery.recompute(batch)
                before = batch.length  # more than at first, if an earlier recovery had failed halfway
            except BaseException:
                batch.undo(before)
                raise

    def begin(self, batch: Batch, arguments: dict[str, Any]) -> None:
        """Prepare a call that others make for `batch`, with these arguments of its forward among others."""
        if self.is_foreign:
            self.require_own()
        self._watched.check()
        batch.calling(arguments)
        self._fit(batch, arguments)

    def _check(self, arguments: dict[str, Any]) -> None:
        """Raises InputError for no tokens. Says once that there are no attention weights."""
        tokens = [given.shape[1] for name in _TOKENS if isinstance(given := arguments.get(name), torch.Tensor)]
        if 0 in tokens:
            raise InputError("the prompt is empty: give the model one token at least")
        wanted = arguments.get("output_attentions")
        if (self._model.config.output_attentions if wanted is None else wanted) and not self._warned:
            self._warned = True
            log.warning("output_attentions: drives do not return the weights of attention, so the output has none")

    def _fit(self, batch: Batch, arguments: dict[str, Any]) -> None:
        """Remove tokens if the positions are used up. Raises InputError if that is not allowed, CommandError."""
        self.recovery.catch_up(batch)
        limit, (_, new_tokens) = self._limits.context or positions_of(self._model), _shape_of(arguments)
        held = batch.length - batch.removed
        if limit is None or held + new_tokens <= limit:
            return
        if self._limits.overflow == "error":
            raise InputError(
                f"{held} tokens and {new_tokens} new ones exceed the {limit} positions of the model: take overflow "
                "'trim', which removes old tokens, or start anew"
            )
        mask = arguments.get("attention_mask")
        if mask is not None and not bool(torch.as_tensor(mask).all()):
            raise UnsupportedError("prompts of different lengths in one batch cannot lose tokens: compute them singly")
        self.recovery.remove(batch, self._limits.tokens_to_remove(held, new_tokens, limit, batch.part.group))

    def _cache_of(self, arguments: dict[str, Any]) -> HfCache | None:
        """The cache of a call; a new one where transformers would start with an empty one. Raises UnsupportedError."""
        given = arguments.get("past_key_values")
        if isinstance(given, HfCache):
            if given.batch not in self._watched.family:
                raise UnsupportedError("this cache belongs to another attachment: its K and V are not this model's")
            return given
        use_cache = arguments.get("use_cache")
        if given is None and not (self._model.config.use_cache if use_cache is None else use_cache):
            return None
        if given is not None and (type(given) is not DynamicCache or given.get_seq_length()):
            holds = isinstance(given, Cache) and given.get_seq_length()
            what = f"this {type(given).__name__} holds" if holds else f"a {type(given).__name__} keeps"
            raise UnsupportedError(f"the drives do not have what {what}: pass attached.cache(), or a new DynamicCache")
        rows, tokens = _shape_of(arguments)
        cache = HfCache(self._new(tokens, rows))
        if given is not None:
            borrow(given, cache)
        return cache


def _shape_of(arguments: dict[str, Any]) -> tuple[int, int]:
    """Rows and tokens of a call of the model."""
    given = arguments.get("input_ids")
    given = arguments.get("inputs_embeds") if given is None else given
    return (1, 0) if given is None else (given.shape[0], given.shape[1])
