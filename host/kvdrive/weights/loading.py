"""Models whose experts stay on flash. No tensor of an expert is in memory while the model is made."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import torch
from transformers import PreTrainedModel

from kvdrive import choices
from kvdrive.errors import InputError
from kvdrive.weights.acceptance import Accepted
from kvdrive.weights.bundles import Array
from kvdrive.weights.eviction import Eviction, make_eviction
from kvdrive.weights.eviction.prior import Prior
from kvdrive.weights.experts import NAME, Streamed, install
from kvdrive.weights.file import aligned
from kvdrive.weights.lookahead import LookAhead
from kvdrive.weights.managing import Managing
from kvdrive.weights.manifest import Manifest
from kvdrive.weights.memory import needs
from kvdrive.weights.modules import experts_of
from kvdrive.weights.neurons import matrices_in
from kvdrive.weights.payoff import Pace
from kvdrive.weights.reader import Reader
from kvdrive.weights.slots import Slots
from kvdrive.weights.sources import empty_model, precisions


@dataclass(frozen=True)
class WeightsOptions:
    """How much memory all weights may take: bytes, or a share of what they take together. `eviction`: see EVICTIONS.

    `look_ahead`: on, off, or auto, which prefetches while that pays. `window`: neurons that none of the last so many
    calls of a layer used are evicted; of a call with several tokens of one sequence the first ones count, by the share
    `accepted` of them that speculative decoding accepts, "auto": that of the calls so far, if it says how they ended.
    """

    memory: int | Fraction = Fraction(1, 2)
    eviction: str = "lfu"
    look_ahead: choices.LookAhead = "auto"
    window: int = 5
    accepted: Accepted = 1.0


class FlashWeights:
    """A model and the file with its experts; closing it ends the reads.

    `model` has the resident tensors in `dtype`. Raises InputError if the memory is too small.
    """

    def __init__(self, file: Reader, config: Any, dtype: torch.dtype, options: WeightsOptions) -> None:
        self.file, self.dtype = file, dtype
        arrays = list(file.manifest.experts)
        self.need = needs(file.manifest, dtype, int(getattr(config, "num_experts_per_tok", 1)))
        self._eviction: Eviction = make_eviction(options.eviction, file.path)
        count = self.need.slots_in(options.memory)
        config._experts_implementation = NAME
        self.model = resident_model(file, config, dtype)
        modules = experts_of(self.model)
        if list(modules) != [array.name for array in arrays]:
            raise InputError(f"{file.path} holds the experts of another model: convert this one")
        self.slots = Slots(file, arrays, count, self._eviction)
        ahead = LookAhead(self.model, list(modules)) if options.look_ahead != "off" else None
        self.lookahead = ahead if ahead is not None and ahead.works else None
        self._pace = Pace(self.slots, file) if self.lookahead and options.look_ahead == "auto" else None
        at_once = min(count, self.need.experts_at_once)
        self._managing = Managing(file)
        shared = Streamed(self.slots, arrays, self.lookahead, self._pace, self._managing, dtype, at_once)
        install(list(modules.values()), shared)

    @property
    def parameters(self) -> int:
        """Numbers in all experts on flash."""
        return sum(array.count * part.numbers for array in self.file.manifest.experts for part in array.parts)

    def report(self) -> dict[str, Any]:
        """Counters for the report of a generation."""
        slots, reads = self.slots.counters, self.file.counters()
        recall = self.lookahead.recall if self.lookahead else None
        return {
            "bytes": self.need.whole,
            "resident_bytes": self.need.resident,
            "experts_in_memory": self.slots.count,
            "experts": sum(array.count for array in self.file.manifest.experts),
            "hits": slots.hits,
            "hits_ahead": slots.ahead_hits,
            "misses": slots.misses,
            "hit_rate": slots.hit_rate,
            "read_ahead": slots.ahead,
            "read_ahead_withdrawn": slots.withdrawn,
            "waited_ns": self.file.waited_ns,
            "managing_ns": self._managing.ns,
            "recall": recall.share if recall else None,
            "read_ahead_precision": self._pace.payoff.precision if self._pace else None,
            "around_page_cache": self.file.around_cache,
            **{f"flash_{name}": value for name, value in reads.items()},
        }

    def close(self) -> None:
        """End the reads and close the file, and keep what the policy has learned."""
        self.slots.close()
        self.file.close()
        if isinstance(self._eviction, Prior):
            self._eviction.save()


def resident_model(file: Reader, config: Any, dtype: torch.dtype) -> PreTrainedModel:
    """The model with its resident tensors, as transformers loads them; those on flash are without memory."""
    model = empty_model(config, dtype)
    held = precisions(model, dtype)
    for array in file.manifest.resident:
        _set(model, array.name, _read(file, array, held.get(array.name, dtype)))
    model.tie_weights()
    left = [
        name for name, one in model.named_parameters() if one.is_meta and not name.startswith(_on_flash(file.manifest))
    ]
    if left:
        raise InputError(f"{file.path} lacks {left[0]}: convert the checkpoint again")
    return model


def _on_flash(manifest: Manifest) -> tuple[str, ...]:
    """How the names of parameters begin that are not resident."""
    experts = [f"{array.name}." for array in manifest.experts]
    neurons = [f"{array.name}.{name}" for array in manifest.neurons for name in matrices_in(array.parts[0].name)]
    return (*experts, *neurons)


def _read(file: Reader, array: Array, dtype: torch.dtype) -> torch.Tensor:
    """A resident tensor in this precision. Raises TargetError."""
    memory = aligned(array.stride)
    file.read(array, 0, memory)
    part = array.parts[0]
    return part.numbers_of(part.view(torch.from_numpy(memory)), dtype)


def _set(model: PreTrainedModel, name: str, tensor: torch.Tensor) -> None:
    """Replace a parameter or buffer. Raises InputError for one of another shape."""
    place, _, own = name.rpartition(".")
    module = model.get_submodule(place)
    there = module._parameters.get(own, module._buffers.get(own))
    if there is None or there.shape != tensor.shape:
        raise InputError(f"{name} has another shape in the weights than in the model: convert this checkpoint")
    if own in module._buffers:
        module._buffers[own] = tensor
    else:
        module._parameters[own] = torch.nn.Parameter(tensor, requires_grad=False)
