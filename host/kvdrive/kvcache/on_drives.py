"""Rows that run on drives: the drives attend to K and V where they are."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import torch

from kvdrive.kvcache.asking import ask
from kvdrive.kvcache.calls import KvHandle, LayerCall
from kvdrive.kvcache.layer import StoredLayer
from kvdrive.kvcache.part import Part
from kvdrive.kvcache.placement import Placement, RowsLayer
from kvdrive.kvcache.queries import Queries
from kvdrive.kvcache.scaling import Halves, HeadScale
from kvdrive.kvcache.xcache.inputs import Inputs


class DriveLayer(RowsLayer):
    """See RowsLayer. The first call of a sequence attends on the host, to its own K and V; later ones in the drives."""

    def update(
        self,
        key_states: torch.Tensor,
        value_states: torch.Tensor,
        *args: object,
        inputs: Inputs | None = None,
        **kwargs: object,
    ) -> tuple[KvHandle, KvHandle]:
        """Take K and V [batch, heads, tokens, d]. Raises what `Part.update` raises."""
        first = self.part.update(self.stored, key_states, value_states, inputs)
        self.is_initialized = True
        handle = KvHandle(self, first, key_states, value_states)
        return handle, handle

    def earlier(self, handle: KvHandle) -> tuple[torch.Tensor, torch.Tensor] | None:
        """See AttachedLayer. Reads the tokens back from the drives, as they were rounded to binary16."""
        part, stored = self.part, self.stored
        if not part.in_prompt or stored.moved:
            return None
        part.writeback.land(stored)
        if handle.first_token > stored.stored:
            return None
        stored.turn = None
        part.writeback.send_due(stored)
        rows = [one.read(stored.index, handle.first_token, stored.head_dim) for one in part.sequences]
        k, v = (np.stack(states) for states in zip(*rows, strict=True))
        return _as_states(k, stored.key_scale, handle.keys), _as_states(v, stored.value_scale, handle.values)

    def attend(self, call: LayerCall) -> torch.Tensor:
        """See AttachedLayer.

        Writes pending tokens when they are due. Raises RangeError, CommandError, TargetError, UnsupportedError.
        """
        queries = self.queries(call)
        ask([queries])
        return queries.answers(call.query)

    def queries(self, call: LayerCall) -> Queries:
        """The queries of a call. Raises RangeError."""
        return Queries.of(self.part, self.stored, call)

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        """Length and offset of the keys that a mask for `query_length` new tokens covers."""
        return self.part.tokens(self.stored) + query_length, self.part.removed

    def get_seq_length(self) -> int:
        """Tokens so far, removed ones included: the position of the next one."""
        return self.part.tokens(self.stored) + self.part.removed


class OnDrives(Placement):
    """See Placement. Nothing is loaded."""

    drives_attend: ClassVar[bool] = True

    def layer(self, part: Part, stored: StoredLayer) -> DriveLayer:
        return DriveLayer(part, stored)

    def fork(self) -> OnDrives:
        return OnDrives()


def _as_states(halves: Halves, scale: HeadScale, like: torch.Tensor) -> torch.Tensor:
    """Stored rows [rows, heads, tokens, d] as the model had them, in the precision of `like`."""
    states = torch.from_numpy(halves).to(like.device)
    if not scale.is_one:
        states = states.double() * torch.from_numpy(scale.factors)[..., None, None].to(like.device)
    return states.to(like.dtype)
