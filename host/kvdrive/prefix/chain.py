"""Names for prefixes: a hash chain over blocks of tokens. Equal keys mean equal tokens, model and tenant.

A block is a whole number of groups of the drive. The key of a block hashes its tokens and the key of the block before
it, so that it names everything up to its end. Keys are the same in every process and on every machine.
"""

from __future__ import annotations

import copy
import hashlib
import json
from collections.abc import Iterator, Sequence

import numpy as np

from kvdrive.nvme.rows import tokens_per_group
from kvdrive.nvme.wire import RowFormat

_LAYOUT = "kvdrive chain 1"  # change this text when keys are computed in another way
_LEAST_TOKENS = 64
_KEY_BYTES = 8


def block_tokens(head_dim: int, stored_as: RowFormat = RowFormat.BINARY16) -> int:
    """Tokens of a block: as many whole groups of a head with rows of `head_dim` values as 64 tokens need."""
    group = tokens_per_group(stored_as, head_dim)
    return -(-_LEAST_TOKENS // group) * group


class Chain:
    """The chain of one sequence, up to its last whole block.

    `fingerprint`: that of the model. `tenant`: whose tokens these are; tenants share nothing. `layout`: how K and V lie
    on the drives, where that differs for the same model.
    """

    def __init__(self, fingerprint: bytes, tenant: str, layout: str, block: int) -> None:
        self.block = block
        parts = (_LAYOUT.encode(), fingerprint, tenant.encode(), layout.encode(), str(block).encode())
        self._root = hashlib.sha256(b"".join(len(part).to_bytes(4, "little") + part for part in parts)).digest()

    def without(self, removals: list[list[int]]) -> Chain:
        """The chain of sequences that lost tokens from their middle: [at, tokens] each (`kvcache.overflow.Removal`).

        It has no key in common with this one: their K and V depend on tokens that are gone.
        """
        if not removals:
            return self
        other = copy.copy(self)
        other._root = hashlib.sha256(self._root + json.dumps(removals).encode()).digest()
        return other

    @property
    def root(self) -> int:
        """The key of the empty prefix."""
        return _key(self._root)

    def keys(self, ids: Sequence[int]) -> Iterator[int]:
        """The key of each whole block of `ids`, computed one by one as they are asked for."""
        yield from map(_key, self.digests(self._root, ids))

    def digests(self, digest: bytes, ids: Sequence[int]) -> Iterator[bytes]:
        """The digest of each whole block of `ids`, which follow a prefix with this digest."""
        tokens = np.asarray(ids, "<u4")
        for first in range(0, len(tokens) - self.block + 1, self.block):
            digest = hashlib.sha256(digest + tokens[first : first + self.block].tobytes()).digest()
            yield digest


class GrowingChain:
    """The keys of a sequence that grows: each block is hashed once."""

    def __init__(self, chain: Chain) -> None:
        self._chain = chain
        self._digest = chain._root
        self.root = chain.root
        self.keys: list[int] = []

    def extend(self, ids: Sequence[int]) -> list[int]:
        """Keys of the whole blocks of `ids` behind those that are known already. `ids`: the sequence from token 0
        on.
        """
        digests = list(self._chain.digests(self._digest, ids[self.tokens :]))
        self._digest = digests[-1] if digests else self._digest
        fresh = [_key(digest) for digest in digests]
        self.keys += fresh
        return fresh

    @property
    def tokens(self) -> int:
        """How many tokens the known keys cover."""
        return len(self.keys) * self._chain.block

    @property
    def last(self) -> int:
        """The key of the last whole block, or of the empty prefix."""
        return self.keys[-1] if self.keys else self.root


def common_length(a: Sequence[int] | str, b: Sequence[int] | str) -> int:
    """Length of the common prefix."""
    return next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))


def _key(digest: bytes) -> int:
    """A positive integer of 63 bits, which SQLite stores as such."""
    return int.from_bytes(digest[:_KEY_BYTES], "little") >> 1
