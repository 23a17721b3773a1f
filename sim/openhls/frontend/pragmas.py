# SPDX-License-Identifier: Apache-2.0
"""HLS pragmas: what they say, kept by the place of their loop or the scope of their variable."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from openhls.errors import Unsupported
from openhls.ir import Location

BEGIN_DATAFLOW = "openhls.dataflow.begin"
END_DATAFLOW = "openhls.dataflow.end"
NEW_STREAM = "openhls.stream"  # where the life of a stream begins (shim/hls_stream.h)

# They ask for what is done anyway: everything is inlined, nests become one loop where that costs nothing.
DONE_ANYWAY = frozenset({"INLINE", "LOOP_FLATTEN"})
# They ask for other hardware with the same results. The hardware stays as it is, and a warning says so.
IGNORED = frozenset(
    {
        *(
            "AGGREGATE",
            "ALIAS",
            "ALLOCATION",
            "ARRAY_MAP",
            "ARRAY_STENCIL",
            "BIND_OP",
            "CACHE",
            "CLOCK",
            "DATA_PACK",
            "DISAGGREGATE",
        ),
        *(
            "EXPRESSION_BALANCE",
            "FUNCTION_INSTANTIATE",
            "LATENCY",
            "LOOP_MERGE",
            "OCCURRENCE",
            "PERFORMANCE",
            "PROTOCOL",
        ),
        *("RESET", "RESOURCE", "STABLE", "TOP"),
    }
)
NUMBERS = frozenset(
    {
        *("ii", "min", "max", "avg", "factor", "dim", "depth", "distance", "latency", "max_read_burst_length"),
        *("max_write_burst_length", "num_read_outstanding", "num_write_outstanding"),
    }
)
# The options and bare words that each kind may have.
_KNOWN = """
ARRAY_PARTITION: variable type complete block cyclic factor dim off
ARRAY_RESHAPE: variable type complete block cyclic factor dim object off
BIND_STORAGE: variable type impl latency
DATAFLOW: disable_start_propagation
DEPENDENCE: variable class pointer array type inter intra direction raw war waw distance dependent true false
INLINE: off on recursive region self
INTERFACE: mode port bundle name offset direct slave off depth latency clock register register_mode both forward reverse
INTERFACE: storage_type storage_impl interrupt channel autorestart max_read_burst_length max_write_burst_length
INTERFACE: num_read_outstanding num_write_outstanding max_widen_bitwidth axis s_axilite m_axi ap_none ap_stable ap_vld
INTERFACE: ap_ack ap_ovld ap_hs ap_fifo ap_memory bram ap_ctrl_none ap_ctrl_hs ap_ctrl_chain
LOOP_FLATTEN: off
PIPELINE: ii off rewind style enable_flush
STREAM: variable depth type fifo pipo shared unsync dim off
UNROLL: factor region skip_exit_check off
"""
KNOWN: dict[str, set[str]] = {}
for _line in _KNOWN.strip().splitlines():
    KNOWN.setdefault(_line.partition(":")[0], set()).update(_line.partition(":")[2].split())
WITH_EFFECT = frozenset({"INTERFACE", "STREAM"})  # without them the ports are others, or a stage waits for ever
OF_LOOPS = frozenset({"PIPELINE", "UNROLL", "LOOP_TRIPCOUNT", "DEPENDENCE"})
OF_VARIABLES = frozenset({"ARRAY_PARTITION", "ARRAY_RESHAPE", "BIND_STORAGE", "DEPENDENCE", "STREAM"})


@dataclass(frozen=True)
class Pragma:
    """One `#pragma HLS`: its kind in upper case, `key = value` options and bare words in lower case."""

    kind: str
    options: dict[str, str]
    words: frozenset[str]
    location: Location

    def number(self, key: str, default: int) -> int:
        """The option `key` as an integer."""
        text = self.options.get(key)
        if text is None:
            return default
        try:
            return int(text, 0)
        except ValueError:
            raise Unsupported(
                self.location, f"{self.kind} has {key} = {text}, which is not a number", "write the number itself"
            ) from None


@dataclass(frozen=True)
class LoopNote:
    """A loop of the source: place of its keyword, its label and the pragmas of its body."""

    location: Location
    column: int
    label: str
    pragmas: tuple[Pragma, ...]

    def of_kind(self, kind: str) -> list[Pragma]:
        """Its pragmas of one kind."""
        return [pragma for pragma in self.pragmas if pragma.kind == kind]


@dataclass(frozen=True)
class VariableNote:
    """A pragma about a variable, and the lines of the scope that declares it."""

    pragma: Pragma
    first_line: int
    last_line: int


@dataclass(frozen=True)
class FunctionNote:
    """INTERFACE or INLINE, and the lines from the head of its function to the brace of its body."""

    pragma: Pragma
    first_line: int
    last_line: int


@dataclass
class Notes:
    """All pragmas of a source; `stages` are the lines and columns where calls of stages begin."""

    loops: dict[tuple[str, int, int], LoopNote] = field(default_factory=dict)
    variables: list[VariableNote] = field(default_factory=list)
    interfaces: list[FunctionNote] = field(default_factory=list)
    inlined: list[FunctionNote] = field(default_factory=list)
    stages: set[tuple[int, int]] = field(default_factory=set)
    files: tuple[str, ...] = ()
    warnings: list[tuple[Location, str]] = field(default_factory=list)
    bounds: dict[str, int] = field(default_factory=dict)  # of the array parameters of the top
    dependences: dict[Location, bool] = field(default_factory=dict)  # places of DEPENDENCE: True if it is of an array

    def warn(self, location: Location, text: str) -> None:
        """Something of the source that is accepted and has no effect."""
        if (location, text) not in self.warnings:  # code that is inlined comes more than once
            self.warnings.append((location, text))


def parse_pragma(text: str, location: Location) -> Pragma:
    """`text` is what follows `#pragma HLS`."""
    kind, _, rest = text.strip().partition(" ")
    options = {key.lower(): value for key, value in re.findall(r"(\w+)\s*=\s*([^\s,]+)", rest)}
    words = re.sub(r"\w+\s*=\s*[^\s,]+", " ", rest).replace(",", " ").split()
    return Pragma(kind.upper(), options, frozenset(word.lower() for word in words), location)


def unknown_part(pragma: Pragma) -> str:
    """An option or a word that a pragma of this kind does not have, or ""."""
    known = KNOWN.get(pragma.kind)
    if known is None:
        return ""
    return next((part for part in [*pragma.options, *sorted(pragma.words)] if part not in known), "")
