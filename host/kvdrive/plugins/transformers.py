"""Runs the decode attention of transformers models in drives.

    with attach(model, target) as attached:
        model.generate(ids)                                         # a cache of its own, gone with the result
        model.generate(ids, past_key_values=attached.cache())       # one to go on with

The attention function, its mask and the cache are transformers' own extension points, by name. While the model is
attached, `model.forward` is wrapped: the wrapper replaces an empty cache by a drive's cache, and undoes failed calls.
The first call of a sequence attends to its own K and V on the host, as stock sdpa does; every later token attends
in the drives, over K and V rounded to binary16.
"""

from __future__ import annotations

import inspect
import logging
import time
import weakref
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from fractions import Fraction
from functools import partial, wraps
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar, cast

import torch
from transformers import AttentionInterface, AttentionMaskInterface, PreTrainedModel
from transformers.cache_utils import Cache, DynamicCache
from transformers.masking_utils import sdpa_mask

from kvdrive import abi
from kvdrive.config.resolve import Plan, part_of, resolve
from kvdrive.config.run import RunConfig
from kvdrive.config.table import SESSIONS, require
from kvdrive.errors import InputError, TargetError, UnsupportedError
from kvdrive.identity.calls import flat
from kvdrive.identity.content import covers
from kvdrive.identity.model import ModelIdentity
from kvdrive.kvcache import formats
from kvdrive.kvcache.backing import Backing
from kvdrive.kvcache.base import AttachedCache, KvHandle, LayerCall
from kvdrive.kvcache.borrowed import BorrowedCache, borrow
from kvdrive.kvcache.budget import Budget
from kvdrive.kvcache.cache import DriveCache
from kvdrive.kvcache.drive_rates import Clock, Heads
from kvdrive.kvcache.loading import LateLoadError
from kvdrive.kvcache.memory import MemoryCache
from kvdrive.kvcache.mini_batches import MiniBatches
from kvdrive.kvcache.rows import Place, capacity_for
from kvdrive.kvcache.shipped_scales import scales_of
from kvdrive.kvcache.xcache.inputs import XCache
from kvdrive.kvcache.xcache.measured import Measured, rates_here
from kvdrive.kvcache.xcache.share import choose
from kvdrive.nvme.errors import CommandError
from kvdrive.nvme.rows import tokens_per_group
from kvdrive.perf.kept import KeptRates
from kvdrive.plugins import together
from kvdrive.plugins.host_attention import attend_on_host, causal_mask
from kvdrive.plugins.layer_inputs import open_xcache
from kvdrive.plugins.positions import positions_of
from kvdrive.plugins.probe import CHANGES_SCORES, probe
from kvdrive.plugins.support import (
    check_model,
    decoder_config,
    group_of,
    heads_of,
    layers_in_memory,
    report_layers_in_memory,
)
from kvdrive.plugins.traits import traits_of
from kvdrive.policies import Policy
from kvdrive.policies.drive import DrivePolicy
from kvdrive.prefix.calibration import LONGEST, Shape, measure
from kvdrive.prefix.opening import open_store
from kvdrive.prefix.options import SessionOptions
from kvdrive.prefix.rates import Rates
from kvdrive.prefix.store import PrefixStore
from kvdrive.targets.group import Drives, drives_of
from kvdrive.targets.opening import open_named
from kvdrive.targets.options import DriveOptions
from kvdrive.targets.process import Owned, leave_alone
from kvdrive.targets.queue import WorkQueue

NAME = "kvdrive"
Cached = TypeVar("Cached", bound=AttachedCache)
_LOST_DATA = (abi.NvmeStatus.UNRECOVERED_READ, abi.NvmeStatus.INTERNAL_ERROR)
_TOKENS = ("input_ids", "inputs_embeds")
_RECOVERIES = 3  # the most recoveries in one call of the model; more failures than that have a permanent cause
log = logging.getLogger(__name__)


def attach(
    model: PreTrainedModel,
    target: Drives | str | Path | None = None,
    attention: str | Policy = "exact",
    ratio: Fraction | None = None,
    *,
    config: RunConfig | None = None,
    options: DriveOptions | None = None,
    **fields: Any,
) -> Attachment:
    """Send the decode attention of `model` to drives; as a context manager it restores the model.

    `target`: drives that are open, and stay so; or "emulator" or "cpu", empty drives as `options` describes them; or
    "smartssd", the cards of this machine; or an address ("tcp://HOST:PORT", "PATH.sock", "nvme:/dev/ngXnY"); or
    the path of a drive's file, which is mounted with what it holds, or made where there is none (an emulator, unless
    `options.target` is "cpu"); None: `options.target`. What is opened here is closed when the model is detached.

    `attention`: a policy or its name, at compression `ratio`. `fields`: any other option of `RunConfig` by its name, as
    sessions=True, active="memory" or kv_format="int8"; docs/options.md explains them and says what goes with
    what. Or `config` has all of them. `options`: those of the drives, if they are not in `config`.
    With `sessions`, `attached.sessions.cache(ids)` begins with what the drive has of `ids`.

    Raises UnsupportedError for models that a drive cannot serve exactly, ConflictError for options that exclude each
    other, InputError, TargetError.
    """
    config = _config(attention, ratio, config, options, fields)
    if options is not None and not isinstance(target, str | Path | None):
        raise InputError("options are for drives that are opened here: leave them out for drives that are open")
    check_model(model)
    traits = traits_of(model)
    if model.config._attn_implementation == NAME:
        raise UnsupportedError(f"{type(model).__name__} is attached already: detach it first")
    plan = resolve(config, traits)
    with ExitStack() as opened:
        if isinstance(target, str | Path | None):
            there = config.target
            if there.engine == "rtl":
                there = replace(there, group=group_of(decoder_config(model)))
            target = opened.enter_context(open_named(there.target if target is None else target, there))
        attachment = Attachment(model, target, plan)
        attachment.close_with(opened.pop_all())
    return attachment


def _config(
    attention: str | Policy,
    ratio: Fraction | None,
    config: RunConfig | None,
    options: DriveOptions | None,
    fields: dict[str, Any],
) -> RunConfig:
    """The options of `attach` as one value. Raises InputError."""
    if config is None:
        config = RunConfig.of(attention=attention, ratio=ratio, **fields)
        return config if options is None else replace(config, target=options)
    if fields or options is not None or attention != "exact" or ratio is not None:
        raise InputError("config has all options: leave the others out, or change it with config.changed")
    return config


class Attachment(Owned):
    """A model that is attached to drives, until `detach`."""

    def __init__(self, model: PreTrainedModel, target: Drives, plan: Plan) -> None:
        super().__init__()
        place = plan.config.placement
        self.target = target
        self.recoveries = 0
        self.overflow = plan.config.limits
        self._opened = ExitStack()
        self._model = model
        self._warned = False
        self._recompute = place.on_failure == "recompute"
        self._layers = decoder_config(model).num_hidden_layers
        self._memory = place.memory if place.active == "memory" else None
        self._budget = Budget(self._memory.bytes if self._memory else 0)
        self._others = partial(layers_in_memory, model)
        self._caches: weakref.WeakSet[AttachedCache] = weakref.WeakSet()
        self._sessions: PrefixStore | None = None
        self._threads: list[WorkQueue[None]] = []  # of mini-batches, but for the first one
        with ExitStack() as undo:
            xcache = open_xcache(model, probe(model).layers, place.xcache)
            if xcache is not None:
                undo.callback(xcache.close)
            self._take_over()  # before the identity is taken, which watches the model from then on
            undo.callback(self._give_back)
            self._keep_on_drives(plan, xcache)
            undo.pop_all()
        report_layers_in_memory(model)
        self._threads = [WorkQueue(None, "kvdrive-mini-batch") for _ in range(place.mini_batches - 1)]
        try:
            if place.xcache == "auto" and xcache is not None:
                self.choose_share()
            if plan.config.sessions is not None:
                self.keep_sessions(plan.config.sessions)
        except BaseException:
            self.detach()
            raise

    def _keep_on_drives(self, plan: Plan, xcache: XCache | None) -> None:
        """Prepare what caches need of the drives. Raises InputError."""
        model, stored_as = self._model, formats.named(plan.config.placement.kv_format)
        self._identity, scales = ModelIdentity(model, stored_as), scales_of(model, stored_as)
        label = self._identity.value
        if scales:
            log.info("%s ships scales of K and V for %d layers: they are used", model.name_or_path, len(scales))
        self._policy = plan.policy.fitted(lambda: label)
        self._fitted = self._policy is not plan.policy  # it was measured for this very model
        spill = plan.config.placement.spill
        self._backing = Backing(drives_of(self.target), spill, label, xcache, stored_as, scales)

    def _take_over(self) -> None:
        """Let the model call the drives' attention, and `_call` in place of its forward."""
        AttentionInterface.register(NAME, attention_function)
        AttentionMaskInterface.register(NAME, sdpa_mask)
        model = self._model
        self._stock = model.config._attn_implementation
        self._forward: Callable[..., Any] = model.forward
        self._before: Callable[..., Any] | None = vars(model).get("forward")  # not the class's, where there is one
        self._signature = inspect.signature(model.forward)
        model.set_attn_implementation(NAME)
        model.forward = self._wrapped()

    def _give_back(self) -> None:
        """Undo `_take_over`."""
        self._model.set_attn_implementation(self._stock)
        del self._model.forward  # uncovers the forward of the class
        if self._before is not None:
            self._model.forward = self._before

    def cache(self, tokens: int = 0, rows: int = 1) -> AttachedCache:
        """A new, empty cache for one batch: pass it as `past_key_values`. Detaching the model empties it.

        `tokens`: how many each of its `rows` will have, where that is known. If memory has no room for them, the drives
        attend.
        """
        self.require_own()
        in_memory = self.in_memory(tokens, rows)
        if in_memory is not None:
            return in_memory
        cache = self._new_cache()
        if self._threads and rows > 1:
            others = [self._new_cache() for _ in self._threads[: rows - 1]]
            cache = MiniBatches([cast(DriveCache, one) for one in (cache, *others)], rows, self._threads)
        return self._registered(cache)

    def _registered(self, cache: Cached) -> Cached:
        self._caches.add(cache)
        cache.family = self._caches
        return cache

    def _new_cache(self) -> AttachedCache:
        return self._policy.new_cache(self._backing, self._layers, self._others)

    def on_drives(self) -> DriveCache:
        """See prefix.placement.Placements. Raises UnsupportedError for policies that keep K and V in memory."""
        cache = self._new_cache()
        return self._registered(cast(DriveCache, cache))  # other policies keep no sessions

    def fits(self, tokens: int, rows: int = 1) -> bool:
        """See prefix.placement.Placements."""
        return self._memory is not None and self._budget.fits(self._bytes_in_memory(tokens, rows))

    def in_memory(self, tokens: int, rows: int = 1) -> MemoryCache | None:
        """See prefix.placement.Placements."""
        if self._memory is None or not self.fits(tokens, rows):
            return None
        policy = cast(DrivePolicy, self._policy)  # `attach` takes exact attention only
        claim = self._budget.claim(self._bytes_in_memory(tokens, rows))
        place = Place(self._model.dtype, self._model.device, claim)
        cache = MemoryCache(self._backing, self._layers, policy, self._others, place, self._memory, tokens)
        weakref.finalize(cache, claim.release).atexit = False
        return self._registered(cache)

    def _bytes_in_memory(self, tokens: int, rows: int) -> int:
        """K and V of so many tokens in the model's precision."""
        _, kv_heads, head_dim = heads_of(decoder_config(self._model))
        per_token = 2 * self._layers * kv_heads * head_dim * self._model.dtype.itemsize
        return int(rows * capacity_for(tokens) * per_token)

    @property
    def sessions(self) -> PrefixStore:
        """What is kept beyond this process. Raises InputError unless the model was attached with `sessions`."""
        self.require_own()
        if self._sessions is None:
            raise InputError("no sessions are kept here: attach the model with sessions=True")
        return self._sessions

    def choose_share(self) -> None:
        """Measure, and give X-cache the share of the sequences that is fastest. Raises CommandError, TargetError."""
        xcache = self._backing.xcache
        assert xcache is not None
        _, kv_heads, head_dim = heads_of(decoder_config(self._model))
        found = choose(xcache.rows.token_bytes, 4 * kv_heads * head_dim, self.attention_rates)
        xcache.share = found.share
        log.warning("X-cache takes %g of the sequences: %s", found.share, found.reason)
        if not found.share:
            self._backing.xcache = None
            xcache.close()

    def attention_rates(self, known: KeptRates | None = None, clock: Clock = time.perf_counter) -> Measured:
        """What attention takes here, from `known` (default: this machine's file) or measured now by `clock`.

        Raises CommandError, TargetError.
        """
        shared = self._model.device.type == "cpu" and all(drive.exclusive for drive in drives_of(self.target))
        return rates_here(self._backing, Heads(*heads_of(decoder_config(self._model))), shared, known, clock)

    def keep_sessions(self, options: SessionOptions) -> None:
        """Open the store. Raises InputError, TargetError, UnsupportedError, ConflictError."""
        require([SESSIONS, part_of(self._policy)])
        if self._identity.reason:
            raise UnsupportedError(f"no sessions of this model can be kept: {self._identity.reason}")
        _, kv_heads, head_dim = heads_of(decoder_config(self._model))
        self._sessions = open_store(self._backing, (kv_heads, head_dim), self, options)

    def measure(self) -> Rates:
        """What this model and its drives take, measured now. Raises CommandError, TargetError."""
        config = decoder_config(self._model)
        shape = Shape(self._layers, *heads_of(config), getattr(config, "max_position_embeddings", None) or LONGEST)
        like = torch.empty(0, dtype=self._model.dtype, device=self._model.device)
        return measure(self._forward, shape, like, self._backing)

    def reopen(self, path: Path) -> AttachedCache:
        """The cache that `save` left on these drives, maybe in another process; its tokens are `cache.token_ids()`.

        Raises InputError when it was saved by another model or precision, CommandError, TargetError.
        """
        cache = self.cache()
        cache.reopen(path)
        return cache

    def save(self, cache: AttachedCache, path: Path) -> None:
        """Make `cache` durable; `path` describes it for `reopen`. It survives detaching and the end of the process.

        Removing tokens or rows later removes the file. Raises UnsupportedError, CommandError, TargetError.
        """
        cache.save(path)

    def why_alone(self, cache: AttachedCache) -> str | None:
        """The reason why `step_together` cannot take `cache`; None if it can."""
        return together.refusal(self._model, self._signature, cache)

    def step_together(self, caches: list[DriveCache], ids: torch.Tensor) -> tuple[torch.Tensor, list[int]]:
        """One decode step of several caches in one call of the model: ids int64 [rows] -> logits [rows, vocabulary].

        Each cache holds one sequence. A call that fails is undone in all caches, and raises its error. Also returns
        the rows for which only the end of the call failed: it was undone for them, and their logits mean nothing. What
        failed can be repeated with one cache at a time, where lost data is recomputed.
        """
        self.require_own()
        if not self._identity.is_current():
            self._renew()
        for row, cache in enumerate(caches):
            arguments = {"input_ids": ids[row : row + 1, None]}
            cache.calling(arguments)
            self._fit(cache, arguments)
        return together.step(self._forward, caches, ids.to(self._model.device))

    def detach(self) -> None:
        """Give the model its own attention back and forget every cache that is not saved."""
        if self._model.config._attn_implementation != NAME:
            return
        self._give_back()
        if self.is_foreign:
            return leave_alone(self._sessions, self._backing, self._opened, list(self._caches))
        if self._sessions is not None:
            self._sessions.prefetch.close()
        for cache in list(self._caches):
            cache.leave()
        if self._sessions is not None:
            self._sessions.close()
            self._sessions = None
        self._backing.close()
        for thread in self._threads:
            thread.close()
        self._opened.close()

    def close_with(self, opened: ExitStack) -> None:
        """Detaching the model closes `opened` as well, last of all."""
        self._opened.push(opened)

    def __enter__(self) -> Attachment:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.detach()

    def _wrapped(self) -> Callable[..., Any]:
        """`_call` with the signature of the model's own forward, which transformers looks at."""

        @wraps(self._forward)
        def forward(*args: Any, **kwargs: Any) -> Any:
            return self._call(*args, **kwargs)

        return covers(forward, self._before)

    def check_model(self) -> None:
        """See prefix.placement.Placements. Raises InputError where an attention policy was measured for the model."""
        self.require_own()
        if not self._identity.look():
            self._renew()

    def _renew(self) -> None:
        """The model may be another one now. Raises InputError where an attention policy was measured for it."""
        if not self._identity.renew():
            return
        self._backing.label = self._identity.value
        if self._backing.xcache is not None:
            self._backing.xcache.projections.forget()
        for cache in list(self._caches):
            cache.model_changed("the model has changed since the sequence began")
        if self._sessions is not None:
            self._sessions.model_changed()
        if self._fitted:
            raise InputError(
                f"the model has changed, and {self._policy.name} attention was measured for what it was: detach it, "
                "and attach it again"
            )

    def _call(self, *args: Any, **kwargs: Any) -> Any:
        """`model.forward` while the model is attached."""
        if self.is_foreign:
            self.require_own()
        bound = self._signature.bind(*args, **kwargs)
        self._check_call(flat(bound))
        cache = self._cache_of(bound.arguments)
        if cache is None:
            return self._forward(*args, **kwargs)
        bound.arguments["past_key_values"] = cache
        arguments = flat(bound)
        cache.calling(arguments)
        before = cache.get_seq_length()
        failures = 0
        while True:
            try:
                self._fit(cache, arguments)
                output = cache.run(self._forward, bound)
                if not self._identity.is_current():
                    self._renew()
                cache.called(arguments)
                return output
            except LateLoadError as error:
                log.warning("%s", error)
                cache.undo(before)
                cache.compute_instead(self._forward, self._model.device)
            except (TargetError, CommandError) as error:
                failures += 1
                if failures <= _RECOVERIES and cache.survives(error):
                    cache.undo(before)
                    continue
                recompute = self._recompute or (cache.is_kept and isinstance(error, CommandError))
                if not recompute or not _is_loss(error) or failures > _RECOVERIES:
                    cache.undo(before)
                    raise
                log.warning("%s; computing its tokens again", error)
                self.recoveries += 1
                cache.recompute(self._forward, self._model.device)
                before = cache.get_seq_length()  # more than at first, if an earlier recovery had failed halfway
            except BaseException:
                cache.undo(before)
                raise

    def _check_call(self, arguments: dict[str, Any]) -> None:
        """Raises InputError for no tokens. Says once that there are no attention weights."""
        tokens = [given.shape[1] for name in _TOKENS if isinstance(given := arguments.get(name), torch.Tensor)]
        if 0 in tokens:
            raise InputError("the prompt is empty: give the model one token at least")
        wanted = arguments.get("output_attentions")
        if (self._model.config.output_attentions if wanted is None else wanted) and not self._warned:
            self._warned = True
            log.warning("output_attentions: drives do not return the weights of attention, so the output has none")

    def _fit(self, cache: AttachedCache, arguments: dict[str, Any]) -> None:
        """Remove tokens if the positions are used up. Raises InputError if that is not allowed, CommandError."""
        cache.catch_up(self._forward, self._model.device)
        limit, (_, new_tokens) = self.overflow.context or positions_of(self._model), _shape_of(arguments)
        held = cache.get_seq_length() - cache.removed
        if limit is None or held + new_tokens <= limit:
            return
        if self.overflow.overflow == "error":
            raise InputError(
                f"{held} tokens and {new_tokens} new ones exceed the {limit} positions of the model: take overflow "
                "'trim', which removes old tokens, or start anew"
            )
        mask = arguments.get("attention_mask")
        if mask is not None and not bool(torch.as_tensor(mask).all()):
            raise UnsupportedError("prompts of different lengths in one batch cannot lose tokens: compute them singly")
        group = tokens_per_group(self._backing.stored_as, heads_of(decoder_config(self._model))[2])
        cache.remove(self.overflow.tokens_to_remove(held, new_tokens, limit, group), self._forward, self._model.device)

    def _cache_of(self, arguments: dict[str, Any]) -> AttachedCache | None:
        """The cache of a call; a new one where transformers would start with an empty one. Raises UnsupportedError."""
        given = arguments.get("past_key_values")
        if isinstance(given, BorrowedCache):
            given = given.stands_for
        if isinstance(given, AttachedCache):
            if given not in self._caches:
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
        cache = self.cache(tokens, rows)
        if given is not None:
            borrow(given, cache)
        return cache


def attention_function(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: KvHandle | torch.Tensor,
    value: KvHandle | torch.Tensor,
    attention_mask: torch.Tensor | None,
    scaling: float | None = None,
    dropout: float = 0.0,
    **kwargs: Any,
) -> tuple[torch.Tensor, None]:
    """Attention function of transformers: query [batch, heads, q, d] -> [batch, q, heads, d].

    Tensors instead of a handle, from calls without a cache and from layers that stay in memory, are attended to on the
    host. `s_aux` [heads], the scores of attention sinks, is the only extra argument that the drive knows.
    Raises UnsupportedError for scores that the drive does not compute, RangeError, CommandError, TargetError.
    """
    if not isinstance(key, KvHandle):
        return attend_on_host(module, query, key, value, attention_mask, dropout=dropout, scaling=scaling, **kwargs)
    if dropout:
        raise UnsupportedError("attention dropout does not exist in the drive: call model.eval()")
    extra = [name for name in CHANGES_SCORES if kwargs.get(name) is not None]
    if extra:
        raise UnsupportedError(f"{type(module).__name__} uses {', '.join(extra)}, which the drive does not compute")

    def in_memory(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return attend_on_host(module, q, k, v, None, scaling=scaling, **kwargs)[0]

    call = LayerCall(key, query, attention_mask, scaling, kwargs.get("s_aux"), in_memory)
    if key.first_token == 0:
        out = attend_on_host(module, query, key.keys, key.values, attention_mask, scaling=scaling, **kwargs)
        key.layer.prefilled(call)
        return out
    if (earlier := key.layer.earlier(key)) is not None:
        keys, values = (torch.cat(pair, 2) for pair in zip(earlier, (key.keys, key.values), strict=True))
        mask = causal_mask(attention_mask, query.shape[2], keys.shape[2], query.device)
        return attend_on_host(module, query, keys, values, mask, scaling=scaling, **kwargs)
    return key.layer.attend(call), None


def _shape_of(arguments: dict[str, Any]) -> tuple[int, int]:
    """Rows and tokens of a call of the model."""
    given = arguments.get("input_ids")
    given = arguments.get("inputs_embeds") if given is None else given
    return (1, 0) if given is None else (given.shape[0], given.shape[1])


def _is_loss(error: Exception) -> bool:
    """True if the drive caused the error, not the request."""
    return isinstance(error, TargetError) or (isinstance(error, CommandError) and error.status in _LOST_DATA)
