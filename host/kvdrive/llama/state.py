"""The state of a sequence as llama_state_seq_set_data reads it, with the metadata of its cells and without its rows.

llama.cpp takes rows from addresses behind each layer's header. The plugin does not read them after `Plugin.take`, so
that they are addresses without memory. The form is that of `structures.RELEASES`; llama.cpp refuses a state whose
number of layers, types or sizes are others than the model's.
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Sequence
from dataclasses import dataclass

from kvdrive import abi
from kvdrive.llama.structures import BINARY16

_MAGIC = 0xAF143CD8
_BEGIN = struct.Struct("<Iiii")  # magic, sequence, streams, cells of the first one with any
_NO_CELLS = 4  # bytes of a stream without any
_CELL = struct.Struct("<iIi")  # position, number of sequences, sequence
_LAYERS = struct.Struct("<II")  # V by columns, layers
_HEADER = struct.Struct("<iQ")  # type, bytes of a row
_NUMBER_BYTES = 2  # of BINARY16
_NO_RESERVE = 0x4000  # MAP_NORESERVE of Linux, which Python 3.11 does not name


@dataclass(frozen=True)
class Rows:
    """K or V of a layer: `heads` KV heads of `dim` numbers."""

    layer: int
    kind: abi.KvKind
    heads: int
    dim: int

    @property
    def bytes(self) -> int:
        """Of a token, as llama.cpp has them."""
        return self.heads * self.dim * _NUMBER_BYTES


def state_of(rows: Sequence[Rows], tokens: int, streams: int) -> mmap.mmap:
    """The state of `tokens` tokens at positions 0 and on, in addresses of which only the metadata take memory.

    `streams`: of the cache; llama.cpp fills that of the sequence to which the state is given.
    """
    kinds = [sorted((one for one in rows if one.kind == kind), key=lambda one: one.layer) for kind in abi.KvKind]
    tables = _BEGIN.size + tokens * _CELL.size + _LAYERS.size
    size = tables + sum(_HEADER.size + tokens * one.bytes for one in rows) + (streams - 1) * _NO_CELLS
    state = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _NO_RESERVE)
    _BEGIN.pack_into(state, 0, _MAGIC, 0, streams, tokens)
    for token in range(tokens):
        _CELL.pack_into(state, _BEGIN.size + token * _CELL.size, token, 1, 0)
    _LAYERS.pack_into(state, tables - _LAYERS.size, 0, len(kinds[0]))
    at = tables
    for kind in kinds:  # K of all layers, then V
        for one in kind:
            _HEADER.pack_into(state, at, BINARY16, one.bytes)
            at += _HEADER.size + tokens * one.bytes
    assert at + (streams - 1) * _NO_CELLS == size
    return state
