"""X-cache for a model: finds its projections, and checks that they rebuild its K and V."""

from __future__ import annotations

import logging
from collections.abc import Iterable

import torch
from transformers import DynamicCache, PreTrainedModel

from kvdrive.config.run import Share
from kvdrive.errors import UnsupportedError
from kvdrive.kvcache.xcache.inputs import XCache
from kvdrive.kvcache.xcache.projections import Projections, RotaryTable
from kvdrive.kvcache.xcache.rows import InputRows
from kvdrive.plugins.probe import probe
from kvdrive.plugins.support import decoder_config, heads_of

_PROMPT, _PADDING = 6, 2  # tokens of the check's two rows, and how many of them are padding in the second row
_TOLERANCE = (
    0.02  # relative to the largest number: some units in the last place of bfloat16; another formula is far off
)
log = logging.getLogger(__name__)


def open_xcache(model: PreTrainedModel, share: Share) -> XCache | None:
    """The X-cache that `attach` was asked for; None without one.

    Raises UnsupportedError as `make_xcache`; for "auto" it is logged.
    """
    if share == 0:
        return None
    try:
        return make_xcache(model, probe(model).layers, 1.0 if share == "auto" else float(share))
    except UnsupportedError as error:
        if share != "auto":
            raise
        log.warning("X-cache takes none of the sequences: %s", error)
        return None


def make_xcache(model: PreTrainedModel, layers: Iterable[int], share: float) -> XCache:
    """The X-cache of `model`, whose `layers` go to drives; not attached yet, `close` removes its hooks.

    Raises UnsupportedError where the model's K and V are not those of k_proj, v_proj, a norm for each head and rotary
    positions.
    """
    modules = _attention_modules(model, layers)
    widths = {module.k_proj.in_features for module in modules.values()}
    if len(widths) > 1:
        raise UnsupportedError("X-cache needs layers of equal width")
    _, _, head_dim = heads_of(decoder_config(model))
    rotary = getattr(model.get_decoder(), "rotary_emb", None)
    table = None if rotary is None else RotaryTable(rotary, model.dtype, model.device)
    xcache = XCache(share, InputRows(widths.pop(), model.dtype, head_dim), Projections(modules, head_dim, table))
    try:
        _check(model, xcache)
    except BaseException:
        xcache.close()
        raise
    return xcache


def _attention_modules(model: PreTrainedModel, layers: Iterable[int]) -> dict[int, torch.nn.Module]:
    found = {
        module.layer_idx: module
        for module in model.get_decoder().modules()
        if isinstance(getattr(module, "layer_idx", None), int)
        and all(isinstance(getattr(module, name, None), torch.nn.Linear) for name in ("k_proj", "v_proj"))
    }
    missing = sorted(set(layers) - set(found))
    if missing:
        raise UnsupportedError(f"X-cache needs projections of K and V of their own, which layer {missing[0]} has not")
    return {layer: found[layer] for layer in sorted(layers)}


def _check(model: PreTrainedModel, xcache: XCache) -> None:
    """Compare rebuilt K and V with the model's own for two rows, one of them padded. Raises UnsupportedError."""
    ids = torch.arange(2, 2 + 2 * _PROMPT, device=model.device).view(2, _PROMPT) % decoder_config(model).vocab_size
    mask = torch.ones_like(ids)
    mask[1, :_PADDING] = 0
    cache = DynamicCache(config=decoder_config(model))
    with xcache.inputs.retained():
        with torch.no_grad(), torch.random.fork_rng(devices=[]):
            model(ids, attention_mask=mask, past_key_values=cache, use_cache=True)
        calls = {layer: xcache.call(layer) for layer in xcache.projections.modules}
    for layer, (x, positions) in calls.items():
        for row in range(len(ids)):
            wanted = [states[row].float().cpu() for states in (cache.layers[layer].keys, cache.layers[layer].values)]
            try:
                rebuilt = xcache.projections.project(layer, x[row].cpu(), positions[min(row, len(positions) - 1)], 0)
            except RuntimeError as error:  # shapes that do not go together
                raise _refusal(model) from error
            if not all(_equal(ours.float().cpu(), theirs) for ours, theirs in zip(rebuilt, wanted, strict=True)):
                raise _refusal(model)


def _equal(ours: torch.Tensor, theirs: torch.Tensor) -> bool:
    """True if the two differ by rounding at most."""
    same_shape = ours.shape == theirs.shape
    return same_shape and bool((ours - theirs).abs().max() <= _TOLERANCE * theirs.abs().max())


def _refusal(model: PreTrainedModel) -> UnsupportedError:
    return UnsupportedError(
        f"X-cache cannot rebuild K and V of {type(model).__name__}: they are not its projections of a layer's input "
        "with norms for each head and rotary positions; attach it without X-cache"
    )
