"""What the kept sequences of one context share: the drive, its index, and how their rows lie there."""

from __future__ import annotations

from collections.abc import Sequence as Several
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from kvdrive import abi
from kvdrive.errors import UnsupportedError
from kvdrive.kvcache.backing import Backing
from kvdrive.llama.plugin import Plugin
from kvdrive.llama.state import Rows
from kvdrive.prefix.context import Context
from kvdrive.prefix.index import Index
from kvdrive.prefix.lookup import Lookup, Lookups
from kvdrive.prefix.stored import StoredSessions


@dataclass(frozen=True)
class KeptStore:
    """`rows`: of a token, as llama.cpp has them. `context`: what the prefix store needs (`store_context.open_store`).
    `append_options`: see nvme.rows.joined.
    """

    plugin: Plugin
    rows: Several[Rows]
    backing: Backing
    context: Context
    append_options: int

    @cached_property
    def shape(self) -> tuple[int, int]:
        """KV heads and head dimension. Raises UnsupportedError for layers of different shapes."""
        shapes = {(one.heads, one.dim) for one in self.rows}
        kinds = {kind: {one.layer for one in self.rows if one.kind == kind} for kind in abi.KvKind}
        if len(shapes) != 1 or len({frozenset(layers) for layers in kinds.values()}) != 1:
            raise UnsupportedError("layers of different shapes cannot be kept")
        return shapes.pop()

    @property
    def layers(self) -> dict[str, Any]:
        """The layers, as a record says them."""
        (heads, dim), numbers = self.shape, sorted({one.layer for one in self.rows})
        return {"indices": numbers, "layers": [{"kv_heads": heads, "head_dim": dim} for _ in numbers]}

    @property
    def bytes_per_token(self) -> int:
        """Of a stored session, as the index counts them."""
        return replace(self.lookup_of("").layouts.kv, **self.layers).bytes_per_token

    @property
    def stored(self) -> StoredSessions:
        """The sessions that the index names."""
        return self.context.stored

    @property
    def index(self) -> Index:
        """The index of the drive."""
        return self.context.stored.index

    def lookup_of(self, tenant: str) -> Lookup:
        """What finds the sessions of a tenant."""
        return self._lookups.of(tenant)

    @cached_property
    def _lookups(self) -> Lookups:
        return Lookups(self.stored, self.context.governor, self.shape, self.append_options)
