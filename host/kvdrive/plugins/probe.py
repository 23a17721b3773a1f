"""Runs a few tokens through a model before it is attached, to check that a drive can compute its attention.

A drive computes softmax(scale q.k) V over the tokens that a mask allows, with optional sinks. A configuration does not
say if a model's attention is exactly that. So the probe runs a padded batch and a step through the model, with handles
in place of K and V. It compares the drive's formula with the model's own attention function and with sdpa.
"""

from __future__ import annotations

import inspect
import sys
from collections import Counter
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

import torch
from transformers import AttentionInterface, AttentionMaskInterface, PreTrainedModel
from transformers.cache_utils import Cache, DynamicLayer
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

from kvdrive.errors import InputError, KvdriveError, UnsupportedError
from kvdrive.plugins.support import decoder_config, layers_in_memory, shape_reason

NAME = "kvdrive_probe"
CHANGES_SCORES = ("softcap", "position_bias", "sliding_window")
_PROMPT, _PADDING = 5, 2  # tokens of the prompt, and how many of them are padding in one of the two rows
_TOLERANCE = 1e-3  # relative to the largest output; binary32 rounding makes 1e-6, another scale makes more
_known: WeakKeyDictionary[PreTrainedModel, Probe] = WeakKeyDictionary()


@dataclass(frozen=True)
class Shape:
    """Heads of one layer's attention, and whether it has sinks."""

    query_heads: int
    kv_heads: int
    head_dim: int
    sinks: bool


@dataclass(frozen=True)
class Probe:
    """The layers that go to the drive, by index."""

    layers: dict[int, Shape]

    @property
    def sinks(self) -> bool:
        """True if a layer on the drive has attention sinks."""
        return any(shape.sinks for shape in self.layers.values())


def probe(model: PreTrainedModel) -> Probe:
    """Run a few tokens through `model`, once for each model object.

    Raises UnsupportedError with the reason where a drive would compute other attention.
    """
    if model not in _known:
        _known[model] = _Run(model).run()
    return _known[model]


@dataclass(frozen=True)
class _Held:
    """A handle for K or V of a probed layer. The model cannot look inside, just as with a drive's handle."""

    layer: int
    tensor: torch.Tensor


class _ProbeLayer(DynamicLayer):  # type: ignore[misc]
    """Keeps K and V in memory and gives the model handles."""

    def __init__(self, index: int) -> None:
        super().__init__()
        self.index = index

    def update(self, key_states: torch.Tensor, value_states: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        keys, values = super().update(key_states, value_states, *args, **kwargs)
        return _Held(self.index, keys), _Held(self.index, values)


class _Run:
    """One probe of one model."""

    def __init__(self, model: PreTrainedModel) -> None:
        self._model = model
        self._layers: dict[int, Shape] = {}
        self._calls: Counter[int] = Counter()
        in_memory = layers_in_memory(model)
        count = decoder_config(model).num_hidden_layers
        self._expected = [index for index in range(count) if index not in in_memory]
        self._cache = Cache(layers=[in_memory.get(index) or _ProbeLayer(index) for index in range(count)])

    def run(self) -> Probe:
        """Run the model and return what was found. Raises UnsupportedError."""
        stock = self._model.config._attn_implementation
        AttentionInterface.register(NAME, self._attention)
        AttentionMaskInterface.register(NAME, sdpa_mask)
        self._model.set_attn_implementation(NAME)
        try:
            with torch.no_grad(), torch.random.fork_rng(devices=[]):
                self._forward()
        except KvdriveError:
            raise
        except Exception as error:
            text = (str(error).strip() or "no message").splitlines()[0]
            raise UnsupportedError(f"a few tokens through it ended in {type(error).__name__}: {text}") from error
        finally:
            self._model.set_attn_implementation(stock)
        silent = [index for index in self._expected if self._calls[index] != 2]
        if silent:
            raise UnsupportedError(f"layer {silent[0]} does not attend through transformers' attention interface")
        if len({shape.kv_heads for shape in self._layers.values()}) > 1:
            raise UnsupportedError("its layers have different numbers of KV heads")
        return Probe(self._layers)

    def _forward(self) -> None:
        """Run a prompt of two rows, one of them padded, and then one more token."""
        ids = torch.arange(2, 2 + 2 * _PROMPT, device=self._model.device).view(2, _PROMPT)
        ids = ids % decoder_config(self._model).vocab_size
        mask = torch.ones_like(ids)
        mask[1, :_PADDING] = 0
        self._call(ids, mask)
        self._call(ids[:, :1], torch.cat([mask, mask[:, -1:]], dim=1))

    def _call(self, ids: torch.Tensor, mask: torch.Tensor) -> None:
        """Call the model with positions as `generate` gives them. Raises InputError for NaN."""
        given = {"input_ids": ids, "attention_mask": mask}
        if "position_ids" in inspect.signature(self._model.forward).parameters:
            given["position_ids"] = (mask.cumsum(1) - 1).clamp(min=0)[:, -ids.shape[1] :]
        output = self._model(**given, past_key_values=self._cache, use_cache=True)
        if bool(output.logits[:, -1].isnan().any()):
            raise _no_number(self._model)

    def _attention(
        self,
        module: torch.nn.Module,
        query: torch.Tensor,
        key: _Held | torch.Tensor,
        value: _Held | torch.Tensor,
        attention_mask: torch.Tensor | None,
        scaling: float | None = None,
        dropout: float = 0.0,
        **kwargs: Any,
    ) -> tuple[torch.Tensor, None]:
        """An attention function for transformers. Computes the drive's formula and compares it with the model's own."""
        where = type(module).__name__
        if isinstance(key, _Held) and isinstance(value, _Held):
            index, key, value = key.layer, key.tensor, value.tensor
            self._look(index, where, query, (key, value), kwargs)
        assert isinstance(key, torch.Tensor)
        assert isinstance(value, torch.Tensor)
        if attention_mask is not None and (attention_mask.dtype != torch.bool or attention_mask.shape[1] != 1):
            raise UnsupportedError(f"{where} has a mask that is not boolean or differs between heads")
        ours = formula(query, key, value, attention_mask, scaling, kwargs.get("s_aux"))
        if not bool(ours.isfinite().all()):
            raise _no_number(self._model)
        queries = None if attention_mask is None else attention_mask.any(-1)[:, 0]  # padding has no output to compare
        for theirs in self._stock(module, query.float(), key.float(), value.float(), attention_mask, scaling, kwargs):
            difference = (theirs.float() - ours).abs()
            worst = difference if queries is None else difference[queries.expand(difference.shape[:2])]
            if not bool((worst <= _TOLERANCE * ours.abs().max()).all()):
                raise UnsupportedError(f"{where} computes something else than softmax(scale q.k) V")
        return ours.to(query.dtype).contiguous(), None  # as transformers' own: some models view it

    def _look(
        self,
        index: int,
        where: str,
        query: torch.Tensor,
        rows: tuple[torch.Tensor, torch.Tensor],
        kwargs: dict[str, Any],
    ) -> None:
        """Count a call of a layer that goes to the drive, and check its shape. Raises UnsupportedError."""
        extra = [name for name in CHANGES_SCORES if kwargs.get(name) is not None]
        if extra:
            raise UnsupportedError(f"{where} uses {', '.join(extra)}, which a drive does not compute")
        heads, (_, kv_heads, _, head_dim) = query.shape[1], rows[0].shape
        if rows[1].shape[-1] != head_dim or query.shape[-1] != head_dim:
            raise UnsupportedError(f"{where} has rows of K and V of different lengths")
        reason = shape_reason(heads, kv_heads, head_dim)
        if reason:
            raise UnsupportedError(reason)
        self._calls[index] += 1
        self._layers[index] = Shape(heads, kv_heads, head_dim, kwargs.get("s_aux") is not None)

    def _stock(
        self,
        module: torch.nn.Module,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        mask: torch.Tensor | None,
        scaling: float | None,
        kwargs: dict[str, Any],
    ) -> list[torch.Tensor]:
        """The outputs of the model's own function, if it has one, and of sdpa, if the model may use it."""
        found = []
        own = getattr(sys.modules[type(module).__module__], "eager_attention_forward", None)
        if own is not None:
            scaling = query.shape[-1] ** -0.5 if scaling is None else scaling
            added = query.new_zeros(()).masked_fill(~_visible(query, key, mask), torch.finfo(torch.float32).min)
            found.append(own(module, query, key, value, added, scaling=scaling, dropout=0.0, **kwargs)[0])
        if kwargs.get("s_aux") is None:
            found.append(sdpa_attention_forward(module, query, key, value, mask, scaling=scaling, **kwargs)[0])
        if not found:
            raise UnsupportedError(f"{type(module).__name__} has sinks and no function to compare with")
        return found


def _no_number(model: PreTrainedModel) -> InputError:
    """The error that says why a model computes NaN or infinity."""
    for name, weight in model.named_parameters():
        if weight.is_floating_point() and not weight.is_meta and not bool(weight.isfinite().all()):
            return InputError(f"{name} of {type(model).__name__} holds NaN or infinity: load the checkpoint again")
    return InputError(f"{type(model).__name__} computes NaN or infinity in {model.dtype}: load it in another precision")


def formula(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    mask: torch.Tensor | None,
    scaling: float | None,
    sinks: torch.Tensor | None,
) -> torch.Tensor:
    """What a drive computes, in binary32: query [batch, heads, q, d] -> [batch, q, heads, d].

    `mask` bool [batch, 1, q, keys], None = causal; `sinks` [heads]: scores of a token with V = 0.
    """
    group = query.shape[1] // key.shape[1]
    keys, values = (tensor.float().repeat_interleave(group, 1) for tensor in (key, value))
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    scores = query.float() @ keys.transpose(2, 3) * scale
    scores = scores.masked_fill(~_visible(query, key, mask), torch.finfo(torch.float32).min)
    if sinks is not None:
        scores = torch.cat([scores, sinks.float().view(1, -1, 1, 1).expand(*scores.shape[:3], 1)], -1)
    p = scores.softmax(-1)[..., : keys.shape[2]]
    return (p @ values).transpose(1, 2)


def _visible(query: torch.Tensor, key: torch.Tensor, mask: torch.Tensor | None) -> torch.Tensor:
    if mask is not None:
        return mask
    queries, keys = query.shape[2], key.shape[2]
    return torch.ones(1, 1, queries, keys, dtype=torch.bool, device=query.device).tril(keys - queries)
