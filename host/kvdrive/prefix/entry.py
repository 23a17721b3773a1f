"""A stored session as the index describes it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from kvdrive.prefix.chain import GrowingChain
from kvdrive.prefix.record import Record, State


@dataclass(frozen=True)
class Entry:
    """`id`: its number in the index, in the order of storing. `root`: the chain's key of the empty prefix.

    `tokens`: how many are stored; `tail`: the token numbers behind the last whole block; `last`: that block's key.
    `slices`: where it is: [drive, session number on it, first KV head, last KV head + 1] each. `record`: what is
    needed to continue it (`record.Record`), as text. `bytes_per_token`: K and V of all layers. `created`,
    `used`: seconds since 1970; `tick`: when it was used, as a count of all uses. `owner`: the process that may still
    append to it, or "".
    """

    id: int
    root: int
    name: str
    tenant: str
    model: str
    tokens: int
    tail: list[int]
    last: int
    slices: list[list[int]]
    record: str
    bytes_per_token: int
    block: int
    created: float
    used: float
    tick: int
    uses: int
    pinned: bool = False
    owner: str = ""

    @property
    def bytes(self) -> int:
        """Bytes of its K and V, shared ones included, and of its state."""
        return self.tokens * self.bytes_per_token + self.state_bytes

    @property
    def state_bytes(self) -> int:
        """Bytes of its state of layers in memory, which it shares with no other session."""
        return state_bytes(self.record)


@dataclass
class NewEntry:
    """What the store knows of a session that it saves for the first time; the index adds the rest."""

    root: int
    tenant: str
    model: str
    slices: list[list[int]]
    record: str
    bytes_per_token: int
    block: int
    name: str = ""
    owner: str = ""
    tokens: int = 0
    tail: list[int] = field(default_factory=list)
    last: int = 0


def state_of(record: str) -> State | None:
    """The state that a record names."""
    return Record.of(record).state if '"state": {' in record else None


def state_bytes(record: str) -> int:
    """Bytes of that state."""
    state = state_of(record)
    return 0 if state is None else state.bytes


def describe(
    record: Record, slices: list[list[int]], held: list[int], keys: GrowingChain, *, owner: str = ""
) -> NewEntry:
    """A session with K and V of the tokens `held`, whose blocks have `keys`, in `slices` (see Entry)."""
    text = replace(record, part=0, first=0, last=0).text()
    return NewEntry(
        keys.root, record.tenant, record.model, slices, text, record.bytes_per_token, record.block, record.name, owner,
        len(held), held[keys.tokens :], keys.last,
    )  # fmt: skip
