"""Models whose experts stay on flash. No tensor of an expert is in memory while the model is made."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Literal

import torch

from kvdrive import choices
from kvdrive.errors import InputError
from kvdrive.weights.acceptance import Accepted
from kvdrive.weights.eviction import Eviction, make_eviction
from kvdrive.weights.eviction.prior import Prior
from kvdrive.weights.experts import NAME, Streamed, install
from kvdrive.weights.lookahead import LookAhead
from kvdrive.weights.managing import Managing
from kvdrive.weights.memory import needs
from kvdrive.weights.modules import experts_of
from kvdrive.weights.payoff import Pace
from kvdrive.weights.reader import Reader
from kvdrive.weights.resident import resident_model
from kvdrive.weights.slots import Slots


@dataclass(frozen=True)
class WeightsOptions:
    """How much memory all weights may take: bytes, or a share of what they take together; "auto": half of that, or the
    least that the model needs where that is more. `eviction`: see EVICTIONS.

    `look_ahead`: on, off, or auto, which prefetches while that pays. `window`: neurons that none of the last so many
    calls of a layer used are evicted; of a call with several tokens of one sequence the first ones count, by the share
    `accepted` of them that speculative decoding accepts, "auto": that of the calls so far, if it says how they ended.
    """

    memory: int | Fraction | Literal["auto"] = "auto"
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
