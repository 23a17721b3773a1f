"""What is needed to continue a stored session, besides its tokens."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from typing import Any

from kvdrive import abi
from kvdrive.kvcache.overflow import Removal
from kvdrive.nvme.rows import bytes_of_row, format_of, tokens_per_group
from kvdrive.prefix.chain import Chain

CHAIN_VALUES = 8  # binary16 numbers for a token on the drive (see `metadata`)
CHAIN_BYTES = 2 * CHAIN_VALUES


@dataclass(frozen=True)
class State:
    """What a model's layers in memory hold behind `tokens` tokens (see `states`): in drive session number `session` of
    the drive that has the first part, `bytes` long; `sum`: SHA-256 in hexadecimal digits.
    """

    tokens: int
    session: int
    bytes: int
    sum: str


@dataclass(frozen=True)
class Record:
    """What is needed to continue a session, besides its tokens.

    `model`: the fingerprint, in hexadecimal digits. `block`: see `chain`. `indices`: the layers that are on the drives;
    `layers`: KV heads, head dimension and the scales of K and V of each layer on the drives (see
    `Batch.describe_layers`). `part`: this drive's number among the `parts` that share the
    KV heads, which are `first` to `last` - 1 here. `removals`: [at, tokens] each (see `kvcache.overflow.Removal`); the
    chain names the removed tokens as well. `usable` False: tokens are being removed, so K and V do not fit the chain.
    `inputs`: of a session that holds layer inputs instead of K and V; the heads of its parts are then slices of X.
    `slices` and `slice_dim`: how many, and numbers in a row; `arithmetic`: what a projection's bits depend on beside
    the model; `layers`: see `InputSequence.describe`. `state`: of the layers in memory, where the model has some; such
    a session is continued behind all of its tokens only.
    """

    model: str
    tenant: str
    name: str
    append_options: int
    block: int
    indices: list[int] = field(default_factory=list)
    layers: list[dict[str, Any]] = field(default_factory=list)
    part: int = 0
    parts: int = 1
    first: int = 0
    last: int = 0
    removals: list[list[int]] = field(default_factory=list)
    usable: bool = True
    inputs: dict[str, Any] | None = None
    state: State | None = None

    @property
    def chain(self) -> Chain:
        """The names of its prefixes."""
        return Chain(bytes.fromhex(self.model), self.tenant, self.layout, self.block).without(self.removals)

    def lists(self) -> Iterator[tuple[int, abi.KvKind, int, int]]:
        """The lists of rows of its layers: layer, kind, KV heads (or slices of X), numbers in a row."""
        for layer, shape in zip(self.indices, self.layers, strict=True):
            if self.inputs is not None:
                yield layer, abi.KvKind.KEYS, self.inputs["slices"], self.inputs["slice_dim"]
            else:
                for kind in abi.KvKind:
                    yield layer, kind, shape["kv_heads"], shape["head_dim"]

    @property
    def events(self) -> list[Removal]:
        """The removals as a batch knows them."""
        return [Removal(at, tokens) for at, tokens in self.removals]

    @property
    def removed(self) -> int:
        """Tokens that were removed from the middle."""
        return sum(tokens for _, tokens in self.removals)

    def split(self, ids: list[int]) -> tuple[list[int], list[int]]:
        """The tokens of which there are K and V, and the removed ones; `ids`: all tokens of the session."""
        if not self.removals:
            return ids, []
        first = tokens_per_group(format_of(self.append_options), self.layers[0]["head_dim"])
        return ids[:first] + ids[first + self.removed :], ids[first : first + self.removed]

    @property
    def bytes_per_token(self) -> int:
        """K and V (or X) of all layers, and the token's row in the chain of each part."""
        stored_as = format_of(self.append_options)
        rows = sum(heads * bytes_of_row(stored_as, numbers) for _, _, heads, numbers in self.lists())
        return rows + CHAIN_BYTES * self.parts

    @property
    def layout(self) -> str:
        """What else keys depend on: sessions with other layouts cannot be used in place of each other."""
        kind = "" if self.inputs is None else f"/X {self.inputs['arithmetic']}"
        return f"{self.append_options}/{self.parts}{kind}"

    def text(self) -> str:
        """As JSON."""
        return json.dumps(asdict(self), sort_keys=True)

    @classmethod
    def of(cls, text: str) -> Record:
        """The record in `text`. Raises ValueError, TypeError."""
        found = json.loads(text)
        if found.get("state") is not None:
            found["state"] = State(**found["state"])
        return cls(**found)
