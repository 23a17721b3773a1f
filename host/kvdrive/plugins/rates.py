"""What an attached model and its drives take: measured once, and known from then on."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Any, Literal

import torch
from transformers import PreTrainedModel

from kvdrive.kvcache.backing import Backing
from kvdrive.kvcache.drive_rates import Clock, Heads
from kvdrive.kvcache.mini_batches import MiniBatches, Pace
from kvdrive.kvcache.xcache.measured import Measured, rates_here
from kvdrive.kvcache.xcache.share import choose
from kvdrive.perf.stored_rates import StoredRates
from kvdrive.plugins.support import decoder_config, heads_of
from kvdrive.prefix.calibration import LONGEST, Shape, measure
from kvdrive.prefix.rates import Rates

log = logging.getLogger(__name__)


class ModelRates:
    """Of `model`, whose own forward is `forward`, and the drives of `backing`."""

    def __init__(self, model: PreTrainedModel, forward: Callable[..., Any], backing: Backing) -> None:
        self._model = model
        self._forward = forward
        self._backing = backing

    @property
    def share_cores(self) -> bool:
        """True if drives and host compute on the same cores, so that they take turns."""
        drives = (queue.target for queue in self._backing.queues)
        return bool(self._model.device.type == "cpu") and all(drive.exclusive for drive in drives)

    def attention(self, known: StoredRates | None = None, clock: Clock = time.perf_counter) -> Measured:
        """What attention takes here, from `known` (default: this machine's file) or measured now by `clock`.

        Raises CommandError, TargetError.
        """
        heads = Heads(*heads_of(decoder_config(self._model)))
        return rates_here(self._backing, heads, self.share_cores, known, clock)

    def resuming(self) -> Rates:
        """What loading and computing tokens take, measured now. Raises CommandError, TargetError."""
        config = decoder_config(self._model)
        most = getattr(config, "max_position_embeddings", None) or LONGEST
        shape = Shape(config.num_hidden_layers, *heads_of(config), most)
        like = torch.empty(0, dtype=self._model.dtype, device=self._model.device)
        return measure(self._forward, shape, like, self._backing)

    def schedule(self, count: int | Literal["auto"]) -> MiniBatches:
        """Mini-batches: so many, or as many as pay, which is none where drives and host share cores."""
        if count == "auto":
            return MiniBatches(pace=None if self.share_cores else Pace())
        return MiniBatches(count)

    def choose_share(self) -> None:
        """Measure, and give X-cache the share of the sequences that is fastest. Raises CommandError, TargetError."""
        xcache = self._backing.xcache
        assert xcache is not None
        _, kv_heads, head_dim = heads_of(decoder_config(self._model))
        found = choose(xcache.rows.token_bytes, 4 * kv_heads * head_dim, self.attention)
        xcache.share = found.share
        log.warning("X-cache takes %g of the sequences: %s", found.share, found.reason)
        if not found.share:
            self._backing.xcache = None
            xcache.close()
