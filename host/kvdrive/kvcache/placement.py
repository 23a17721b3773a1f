"""Where the rows of one batch run: the contract of a placement. In either placement the rows are stored on drives.

There are two: the drives attend (`on_drives`), or K and V are in memory as well, for the model's own attention
(`memory`). All methods are called in the thread of the model, by the batch that the placement was made for.

An implementer

1. makes the layers that the model sees, which give their K and V to the batch's part (`Part.update`, `Writeback.add`);
2. has equally many tokens in all of its layers between two calls;
3. may load in the background, after `adopt`; a layer's `update` waits for what it needs. `finish` waits for all,
   `stop` gives up what has not come.
"""

from __future__ import annotations

from collections.abc import Sequence as Several
from typing import Any, ClassVar

import torch

from kvdrive.kvcache.calls import AttachedLayer
from kvdrive.kvcache.layer import StoredLayer
from kvdrive.kvcache.loading import LoadStats
from kvdrive.kvcache.part import Part, Shared
from kvdrive.kvcache.sequence import Sequence


class RowsLayer(AttachedLayer):
    """A layer of a batch as the model sees it. `stored`: its K and V on the drives, a layer of `part`."""

    is_croppable = True

    def __init__(self, part: Part, stored: StoredLayer) -> None:
        super().__init__()
        self.part = part
        self.stored = stored

    def forget(self) -> None:
        """Make the layer empty. Sends no command to the drives."""
        self.stored.forget()
        self.is_initialized = False

    def truncate(self, tokens: int) -> None:
        """Drop all but the first `tokens` tokens; the part has removed them."""

    def rearrange(self, rows: list[int]) -> None:
        """Row i becomes what row rows[i] was."""
        self.stored.rearrange(rows)

    def remove(self, tokens: range) -> None:
        """The drives have removed `tokens`, from behind the first group."""
        self.stored.stored -= len(tokens)

    def move_first(self, keys: torch.Tensor, values: torch.Tensor) -> None:
        """From now on attend to these K and V [batch, heads, tokens, d] instead of those of the first tokens."""
        self.stored.move_first(keys, values)


class Placement:
    """See above. `drives_attend`: they do it for all rows, behind the first call. Where they do not, what they have
    received is saved while the model computes on.
    """

    drives_attend: ClassVar[bool]

    def layer(self, part: Part, stored: StoredLayer) -> RowsLayer:
        """An empty layer."""
        raise NotImplementedError

    def fork(self) -> Placement:
        """The placement of a batch that begins with the same tokens. Raises UnsupportedError."""
        raise NotImplementedError

    def open(self, shared: Shared, rows: int, heads: int) -> list[Sequence]:
        """Sequences that store new rows of so many KV heads. Raises CommandError, TargetError."""
        return shared.backing.open(rows, heads, shared.append_options)

    def adopt(self, layers: Several[RowsLayer], sequences: list[Sequence], ids: torch.Tensor, removed: int) -> bool:
        """The drives have K and V of ids [batch, tokens], `removed` of which are gone from the middle.

        True if the model continues behind them; False if they are to be computed again, into an empty batch, and the
        drives hold on to what they have. Raises UnsupportedError.
        """
        return True

    def continues(self, arguments: dict[str, Any], tokens: int) -> bool:
        """A call of the model with these arguments of its forward comes, behind `tokens` tokens. False: the drives
        have other tokens there, which have to be removed.
        """
        return True

    def remove(self, layers: Several[RowsLayer], sequences: list[Sequence], tokens: range) -> None:
        """The drives have removed `tokens`, from behind the first group, from `sequences`."""
        for layer in layers:
            layer.remove(tokens)

    def finish(self) -> None:
        """Wait for what is being loaded. Raises CommandError, TargetError, LateLoadError."""

    def stop(self) -> None:
        """The tokens are about to go: load no more of them."""

    def reset(self) -> None:
        """`stop`; the batch is a new one from now on."""

    def write_nothing(self) -> bool:
        """Store the rows on no drive from now on. False where that cannot be: the drives attend."""
        return False

    @property
    def loads_from_memory(self) -> bool:
        """True if a load from a copy in memory has begun."""
        return False

    def load_ended(self) -> LoadStats | None:
        """What a load has read, returned once after its end; None: nothing was loaded since."""
        return None
