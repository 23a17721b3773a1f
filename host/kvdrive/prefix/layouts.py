"""How a store's sessions lie on the drives: as K and V, or as layer inputs where the model is attached with X-cache."""

from __future__ import annotations

from collections.abc import Sequence as Several
from dataclasses import replace
from typing import TYPE_CHECKING

from kvdrive.kvcache.backing import Backing
from kvdrive.kvcache.sequence import Sequence
from kvdrive.kvcache.xcache.sequence import InputSequence
from kvdrive.nvme.rows import tokens_per_group
from kvdrive.prefix.chain import block_tokens
from kvdrive.prefix.record import Record
from kvdrive.targets.group import split

if TYPE_CHECKING:
    from kvdrive.kvcache.batch import Batch


class Layouts:
    """The part of a record that all sessions of a tenant and a kind have. `shape`: KV heads and head dimension.

    `inputs` is None without X-cache: sessions that hold layer inputs are then not found. `with_state`: the model has
    layers in memory as well, whose state each session has beside its K and V.
    """

    def __init__(
        self, backing: Backing, shape: tuple[int, int], tenant: str, append_options: int, *, with_state: bool = False
    ) -> None:
        self.tenant = tenant
        self.with_state = with_state
        self._backing, self._shape, self._append_options = backing, shape, append_options
        self.renew()

    @property
    def group(self) -> int:
        """Tokens of a group of the drive."""
        return tokens_per_group(self._backing.stored_as, self._shape[1])

    def renew(self) -> None:
        """The model has another identity."""
        backing, (kv_heads, head_dim) = self._backing, self._shape
        drives = len(backing.queues)
        block = block_tokens(head_dim, backing.stored_as)
        parts = len(split(1, kv_heads, drives)[0])
        self.kv = Record(backing.label.hex(), self.tenant, "", self._append_options, block, parts=parts)
        self.inputs: Record | None = None
        if backing.xcache is not None:
            rows = backing.xcache.rows
            record = {
                "slices": rows.slices,
                "slice_dim": rows.slice_dim,
                "arithmetic": backing.xcache.arithmetic(),
                "layers": {},
            }
            self.inputs = replace(self.kv, parts=len(split(1, rows.slices, drives)[0]), inputs=record)

    def of(self, sequences: Several[Sequence]) -> Record:
        """The layout of a cache's one sequence; that of K and V before it is opened."""
        as_inputs = bool(sequences) and isinstance(sequences[0], InputSequence)
        return self.inputs if as_inputs and self.inputs is not None else self.kv

    def record(self, batch: Batch, row: int = 0, name: str = "") -> Record:
        """What is needed to continue a row of a batch."""
        sequence, layout = batch.sequences[row], self.of(batch.sequences[row:])
        inputs = layout.inputs
        if inputs is not None and isinstance(sequence, InputSequence):
            inputs = inputs | {"layers": sequence.describe()}
        indices, removals = (
            [layer.index for layer in batch.drive_layers],
            [[one.at, one.tokens] for one in batch.removals],
        )
        layers = batch.describe_layers()
        return replace(layout, name=name, indices=indices, layers=layers, removals=removals, inputs=inputs)

    @property
    def all(self) -> list[Record]:
        """Every layout whose sessions can be used."""
        return [self.kv] if self.inputs is None else [self.kv, self.inputs]
