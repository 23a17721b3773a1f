"""Makes the batches of an attached model, on its drives or in memory."""

from __future__ import annotations

import weakref
from functools import partial
from typing import cast

import torch
from transformers import PreTrainedModel
from transformers.cache_utils import CacheLayerMixin

from kvdrive.kvcache.batch import Batch
from kvdrive.kvcache.budget import Budget, MemoryOptions
from kvdrive.kvcache.memory import InMemory
from kvdrive.kvcache.on_drives import OnDrives
from kvdrive.kvcache.overflow import Overflow
from kvdrive.kvcache.part import Shared
from kvdrive.kvcache.rows import Place, bound_on, capacity_for, require_one_device
from kvdrive.nvme.rows import joined
from kvdrive.plugins.positions import positions_of
from kvdrive.plugins.rates import ModelRates
from kvdrive.plugins.storage import Storage
from kvdrive.plugins.support import decoder_config, heads_of, layers_in_memory
from kvdrive.policies import Policy, make_policy
from kvdrive.policies.drive import DrivePolicy
from kvdrive.prefix.rates import Rates


class Batches:
    """The placements (`prefix.placement.Placements`) of `model`. `memory`: what running sequences may take of it; None:
    they are on drives. `limits`: how many tokens they hold at most, if older ones leave.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        storage: Storage,
        memory: MemoryOptions | None,
        rates: ModelRates,
        limits: Overflow,
    ) -> None:
        self._model = model
        self._policy = storage.policy
        self._backing = storage.backing
        self._watched = storage.watched
        self._memory = memory
        if memory is not None:
            require_one_device(part.device for part in model.parameters())
        self._budget = Budget(memory.bytes or bound_on(model.device) if memory else 0)
        self._layers = decoder_config(model).num_hidden_layers
        self._rates = rates
        trims = limits.overflow == "trim"
        self._most_tokens = (limits.context or positions_of(model)) if trims else None

    def new(self, tokens: int, rows: int) -> Batch:
        """An empty batch for so many rows and tokens, 0: not known. If memory has no room for them, drives attend."""
        return self.in_memory(tokens, rows) or self.on_drives()

    def on_drives(self) -> Batch:
        return self._registered(Batch(self._shared(), self._layers, self._in_memory(), OnDrives()))

    def fits(self, tokens: int, rows: int = 1) -> bool:
        return self._memory is not None and self._budget.fits(self._bytes_in_memory(tokens, rows))

    def in_memory(self, tokens: int, rows: int = 1) -> Batch | None:
        if self._memory is None or not self.fits(tokens, rows):
            return None
        claim = self._budget.claim(self._bytes_in_memory(tokens, rows))
        place = Place(self._model.dtype, self._model.device, claim)
        placement = InMemory(place, self._memory, self._held_at_once(tokens))
        batch = Batch(self._shared(), self._layers, self._in_memory(), placement, self._memory.write_buffer)
        weakref.finalize(batch, claim.release).atexit = False
        return self._registered(batch)

    def device(self) -> torch.device:
        return self._model.device

    def check_model(self) -> None:
        """See Placements. Raises InputError where an attention policy was measured for the model."""
        self._watched.look()

    def measure(self) -> Rates:
        return self._rates.resuming()

    def _shared(self) -> Shared:
        policy = self._policy if self._policy.in_drive else make_policy("exact")  # where no layer is on drives
        options = joined(policy.append_options, self._backing.stored_as)
        return Shared(self._backing, cast(DrivePolicy, policy), options)

    def _in_memory(self) -> partial[dict[int, CacheLayerMixin]]:
        return partial(_layers_without_home, self._model, self._policy, self._layers)

    def _registered(self, batch: Batch) -> Batch:
        self._watched.family.add(batch)
        batch.family = self._watched.family
        return batch

    def _bytes_in_memory(self, tokens: int, rows: int) -> int:
        """K and V of so many tokens in the model's precision."""
        _, kv_heads, head_dim = heads_of(decoder_config(self._model))
        per_token = 2 * self._layers * kv_heads * head_dim * self._model.dtype.itemsize
        return int(rows * capacity_for(self._held_at_once(tokens)) * per_token)

    def _held_at_once(self, tokens: int) -> int:
        """Tokens that a sequence which gets so many holds at most."""
        return tokens if self._most_tokens is None else min(tokens, self._most_tokens)


def _layers_without_home(model: PreTrainedModel, policy: Policy, layers: int) -> dict[int, CacheLayerMixin]:
    """New layers, by index, that no drive has: those that transformers holds in memory, and those of host policies."""
    found = layers_in_memory(model)
    own = {} if policy.in_drive else {index: policy.new_layer() for index in range(layers)}
    return own | found
