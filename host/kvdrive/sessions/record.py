"""What a drive session carries beside K and V, so that it explains itself: the token of each row, and a record.

Both are rows like those of a layer, in layers that no model has. Forking and trimming the session, and the drive's
journal and checksums, apply to them without further work. A row of CHAIN_LAYER is a token number in digits of 11 bits,
which binary16 holds exactly; a row of a record layer is up to 256 bytes, one in each value.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from kvdrive import abi
from kvdrive.errors import KvdriveError
from kvdrive.kvcache.formats import format_of
from kvdrive.kvcache.session import OWN_LAYERS, Session
from kvdrive.nvme.commands import Halves
from kvdrive.nvme.errors import CommandError
from kvdrive.nvme.rows import bytes_of_row, tokens_per_group
from kvdrive.sessions.chain import Chain

CHAIN_LAYER = 0xFFFE
_FIRST_RECORD = 0xFFFD  # the layer of the first record; each later record takes the layer below
_RECORDS = 16_000  # of a session; the last one can only say that the session is not usable
assert _FIRST_RECORD - _RECORDS >= OWN_LAYERS
_DIGIT_BITS, _CHAIN_VALUES = 11, 8
_ROW_BYTES, _ROWS = 256, 255
CHAIN_BYTES = 2 * _CHAIN_VALUES  # of a token


class RecordsFullError(KvdriveError):
    """A session has as many records as it may have, or needs a larger one than there may be."""


@dataclass(frozen=True)
class Record:
    """What is needed to go on with a session, besides its tokens.

    `model`: the fingerprint, in hexadecimal digits. `block`: see `chain`. `indices`: the layers that are on the drives;
    `layers`: KV heads, head dimension and the scales of K and V of each layer on the drives (see
    `DriveCache.describe_layers`). `part`: this drive's number among the `parts` that share the
    KV heads, which are `first` to `last` - 1 here. `removals`: [at, tokens] each (see `kvcache.overflow.Removal`); the
    chain names the removed tokens as well. `usable` False: tokens are being removed, so K and V do not fit the chain.
    `inputs`: of a session that holds layer inputs instead of K and V; the heads of its parts are then slices of X.
    `slices` and `slice_dim`: how many, and numbers in a row; `arithmetic`: what a projection's bits depend on beside
    the model; `layers`: see `InputSequence.describe_layers`.
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
        return cls(**json.loads(text))


def token_rows(ids: list[int]) -> Halves:
    """Token numbers as rows [1, tokens, 8]."""
    numbers = np.asarray(ids, np.uint32)
    rows = np.zeros((1, len(ids), _CHAIN_VALUES), np.float16)
    for digit in range(3):
        rows[0, :, digit] = numbers >> (digit * _DIGIT_BITS) & ((1 << _DIGIT_BITS) - 1)
    return rows


def tokens_of(rows: Halves) -> list[int]:
    """The token numbers of rows [1, tokens, 8]."""
    digits = rows[0, :, :3].astype(np.int64)
    found: list[int] = (digits @ (1 << _DIGIT_BITS * np.arange(3))).tolist()
    return found


def put_tokens(session: Session, first: int, ids: list[int]) -> None:
    """Append the token numbers from token `first` on. Raises CommandError."""
    session.append(CHAIN_LAYER, abi.KvKind.KEYS, first, token_rows(ids))


def read_tokens(session: Session, count: int) -> list[int]:
    """The first `count` token numbers. Raises CommandError."""
    return tokens_of(session.read(CHAIN_LAYER, abi.KvKind.KEYS, 0, (1, count, _CHAIN_VALUES))) if count else []


def put_record(session: Session, record: Record) -> None:
    """Add a record; the last one counts. Raises CommandError, RecordsFullError."""
    number = _records(session)
    if number >= _RECORDS - record.usable:
        raise RecordsFullError(f"a session was changed {number} times, no more changes can be noted: begin a new one")
    body = zlib.compress(record.text().encode())
    content = len(body).to_bytes(4, "little") + zlib.crc32(body).to_bytes(4, "little") + body
    rows = -(-len(content) // _ROW_BYTES)
    if rows > _ROWS:
        raise RecordsFullError(
            f"what must be noted of a session takes {len(body):,} bytes, more than {_ROWS * _ROW_BYTES - 8:,}: keep it "
            "without X-cache"
        )
    values = np.frombuffer(content.ljust(rows * _ROW_BYTES, b"\0"), np.uint8).astype(np.float16)
    session.append(_FIRST_RECORD - number, abi.KvKind.KEYS, 0, values.reshape(rows, 1, _ROW_BYTES))


def read_record(session: Session) -> Record | None:
    """The last record; None if there is none that can be read. Raises CommandError when the drive lost its contents."""
    number = _records(session)
    if number == 0:
        return None
    layer = _FIRST_RECORD - number + 1
    head = _bytes(session, layer, 1)
    size = int.from_bytes(head[:4], "little")
    rows = -(-(size + 8) // _ROW_BYTES)
    if rows > _ROWS:
        return None
    body = _bytes(session, layer, rows)[8 : 8 + size]
    if zlib.crc32(body) != int.from_bytes(head[4:8], "little"):
        return None
    try:
        return Record.of(zlib.decompress(body).decode())
    except (ValueError, TypeError, zlib.error):
        return None


def stored_tokens(session: Session, layer: int, kind: abi.KvKind, head_dim: int) -> int:
    """Tokens of the first head of a layer, found by reading single rows. Raises CommandError for lost contents."""
    low, high = 0, abi.MAX_TOKENS
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if holds(session, layer, kind, middle - 1, head_dim) else (low, middle - 1)
    return low


def chain_tokens(session: Session) -> int:
    """Tokens that the session's chain names. Raises CommandError for lost contents."""
    return stored_tokens(session, CHAIN_LAYER, abi.KvKind.KEYS, _CHAIN_VALUES)


def _records(session: Session) -> int:
    """How many records a session has; few reads find the last one."""

    def has(count: int) -> bool:
        return holds(session, _FIRST_RECORD - count + 1, abi.KvKind.KEYS, 0, _ROW_BYTES)

    high = 1
    while high <= _RECORDS and has(high):
        high *= 2
    low, high = high // 2, min(high, _RECORDS + 1)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if has(middle) else (low, middle)
    return low


def _bytes(session: Session, layer: int, rows: int) -> bytes:
    values = session.read(layer, abi.KvKind.KEYS, 0, (rows, 1, _ROW_BYTES))
    return values.astype(np.uint8).tobytes()


def holds(session: Session, layer: int, kind: abi.KvKind, token: int, head_dim: int) -> bool:
    """True if the first head of a layer has this token. Raises CommandError for lost contents."""
    try:
        session.read(layer, kind, token, (1, 1, head_dim))
    except CommandError as error:
        if error.status == abi.NvmeStatus.TOKENS_MISSING:
            return False
        raise
    return True
