# SPDX-License-Identifier: Apache-2.0
"""INTERFACE pragmas of the top: pointers that are AXI4 masters, and arguments that live in registers."""

from __future__ import annotations

import re
from collections.abc import Mapping

from openhls.errors import Unsupported
from openhls.frontend.llvm.module import Function
from openhls.frontend.pragmas import Notes, Pragma
from openhls.frontend.types import Array
from openhls.ir import Location, MemoryPort, Process

MODES = ("m_axi", "s_axilite", "axis", "ap_memory", "ap_none", "ap_ctrl_hs")
# Other handshakes around the same values, and the mode that takes the place of each here.
SIMILAR = {
    **dict.fromkeys(("ap_vld", "ap_ovld", "ap_ack", "ap_hs", "ap_stable"), "ap_none"),
    **dict.fromkeys(("ap_ctrl_chain", "ap_ctrl_none"), "ap_ctrl_hs"),
    "ap_fifo": "axis",
    "bram": "ap_memory",
}
FLOWS = ("vivado", "vitis")
# What does not change the hardware here: where the address comes from is a matter of s_axilite, the rest are hints.
HINTS = frozenset({"offset", "depth", "latency", "name"})
# Options that ask for other hardware of the same ports; a warning says that they have no effect.
IGNORED = frozenset(
    {"channel", "clock", "max_widen_bitwidth", "register", "register_mode", "storage_impl", "storage_type"}
)
BURST = re.compile(r"(?:struct |class )?(?:hls::)?burst_maxi<")
STREAM = re.compile(r"stream<(.*)>([*&]*)")
NUMBERS = frozenset(
    {"max_read_burst_length", "max_write_burst_length", "num_read_outstanding", "num_write_outstanding"}
)


class Interfaces:
    """The interface pragmas of one function. `flow`: what arguments are without one.

    vivado: pins, and ports of memory for arrays; vitis: pointers and arrays are m_axi, the rest lives in registers.
    """

    def __init__(self, notes: Notes, function: Function, flow: str = FLOWS[0]) -> None:
        place = function.location
        self._pragmas = [
            note.pragma
            for note in notes.interfaces
            if note.pragma.location.file == place.file and note.first_line <= place.line <= note.last_line
        ]
        self._bounds = notes.bounds
        self._arrays = {name for name in function.pointees if name in notes.bounds}
        self._arrays |= {name for name, of in function.pointees.items() if isinstance(of, Array)}
        self._pointed = {
            name for name, kind in function.declared.items() if kind.endswith("*") and "stream<" not in kind
        }
        self._notes = notes
        known = {name.removesuffix(".coerce") for name, _ in function.parameters} | {*function.declared, "return"}
        for pragma in list(self._pragmas):
            self._check(pragma, known)
        if flow == "vitis":
            self._add_defaults(function)
        for name, kind in function.declared.items():
            self._check_type(name, kind, place, name in function.channels or name in function.layouts)

    def _add_defaults(self, function: Function) -> None:
        # A kernel is controlled by registers, whatever INTERFACE says of its handshake.
        chosen = {pragma.options["port"] for pragma in self._pragmas if self.mode(pragma) != "ap_ctrl_hs"}
        for name, kind in (*function.declared.items(), ("return", "")):
            if name not in chosen and not STREAM.match(kind):
                memory = kind.endswith("*") or name in self._arrays or BURST.match(kind) is not None
                options = {"mode": "m_axi", "offset": "slave"} if memory else {"mode": "s_axilite"}
                options["port"] = name
                self._pragmas.append(Pragma("INTERFACE", options, frozenset(), function.location))

    def mode(self, pragma: Pragma) -> str:
        named = self._named_mode(pragma)
        return SIMILAR.get(named, named)

    @staticmethod
    def _named_mode(pragma: Pragma) -> str:
        return pragma.options.get("mode", next((word for word in (*MODES, *SIMILAR) if word in pragma.words), ""))

    def _check_type(self, name: str, kind: str, place: Location, is_known: bool) -> None:
        """Refuses arguments of the top that nothing could drive: what a pin or a word of a stream is not. `is_known`:
        a struct whose numbers have known places."""
        stream = STREAM.fullmatch(kind)
        word, levels = stream.groups() if stream is not None else (kind.rstrip("*&"), "")
        if "*" in levels and name not in self._bounds:
            raise Unsupported(
                place, f"argument {name}: an array of streams", "give it a length, or make each an argument"
            )
        if word in ("float", "double", "_Float16"):
            raise Unsupported(place, f"argument {name} ({kind}): floating point", "use integers (ap_int, ap_uint)")
        if stream is not None and word.startswith("struct ") and not is_known:
            advice = "pack it into one ap_uint, or make it the data of an hls::axis (ap_axi_sdata.h)"
            raise Unsupported(place, f"argument {name}: a stream of {word} at the top", advice)
        if BURST.match(kind) and name not in self.pointers():
            advice = f"add #pragma HLS INTERFACE mode = m_axi port = {name}"
            raise Unsupported(place, f"argument {name}: an hls::burst_maxi without INTERFACE m_axi", advice)
        if (
            stream is None
            and word.startswith("struct ")
            and name not in (self.pointers() | self._arrays | self._pointed)
        ):
            raise Unsupported(
                place, f"argument {name}: a {word} at the top", "pass its fields, or pack it into an ap_uint"
            )

    def _check(self, pragma: Pragma, known: set[str]) -> None:
        mode, port = self.mode(pragma), pragma.options.get("port", "")
        if (named := self._named_mode(pragma)) in SIMILAR:
            self._notes.warn(pragma.location, f"INTERFACE mode {named} is taken as {mode}")
        if not mode and "register" in pragma.words:
            self._notes.warn(pragma.location, "INTERFACE register has no effect")
            self._pragmas.remove(pragma)
            return
        if mode not in MODES:
            raise Unsupported(pragma.location, f"INTERFACE mode {mode or '(none)'}", f"use {', '.join(MODES)}")
        if mode == "s_axilite" and port in self._arrays and port not in self.pointers():
            raise Unsupported(pragma.location, f"INTERFACE s_axilite of the array {port}", "use ap_memory or m_axi")
        if port not in known:
            raise Unsupported(pragma.location, f"INTERFACE of {port or 'no port'}, which is no argument", "name one")
        allowed = {"mode", "port", "bundle", *HINTS, *(NUMBERS if mode == "m_axi" else ())}
        for key in pragma.options:
            if key not in allowed | IGNORED | NUMBERS:
                raise Unsupported(pragma.location, f"INTERFACE option {key}, which is not known", "correct its name")
            if key not in allowed:
                self._notes.warn(pragma.location, f"INTERFACE option {key} has no effect")

    def pointers(self) -> frozenset[str]:
        """Arguments that point into memory."""
        return frozenset(pragma.options.get("port", "") for pragma in self._pragmas if self.mode(pragma) == "m_axi")

    def sequences(self) -> frozenset[str]:
        """Arrays and pointers that are streams."""
        axis = {pragma.options.get("port", "") for pragma in self._pragmas if self.mode(pragma) == "axis"}
        return frozenset(axis & (self._arrays | self._pointed))

    def registers(self, process: Process, names: Mapping[str, str]) -> tuple[str, ...]:
        """Arguments behind AXI4-Lite, by their `names` in hardware: pointers whose address software sets, too."""
        chosen = [
            pragma.options["port"]
            for pragma in self._pragmas
            if self.mode(pragma) == "s_axilite" or pragma.options.get("offset") == "slave"
        ]
        scalars = {scalar.name for scalar in process.scalars}
        unused = {port for port in self.pointers() if names.get(port) not in scalars}
        return tuple(dict.fromkeys(names.get(port, port) for port in chosen if port not in unused))

    def memories(self, process: Process, names: Mapping[str, str]) -> tuple[MemoryPort, ...]:
        """The memory ports that the process uses; `names` are those of the arguments in hardware."""
        ports = []
        for pragma in self._pragmas:
            if self.mode(pragma) != "m_axi":
                continue
            name = names.get(pragma.options["port"], pragma.options["port"])
            streams = {stream.name: stream for stream in process.streams}
            data = [streams[each] for each in (f"{name}_r", f"{name}_w") if each in streams]
            if not data:
                continue
            if len({stream.width for stream in data}) > 1:
                raise Unsupported(pragma.location, f"{name} has elements of two sizes", "access it as one type")
            ports.append(
                MemoryPort(
                    name,
                    data[0].width,
                    pragma.options.get("bundle", "gmem"),
                    f"{name}_r" in streams,
                    f"{name}_w" in streams,
                    self._number(pragma, "max_read_burst_length", 64, 256),
                    self._number(pragma, "max_write_burst_length", 64, 256),
                    self._number(pragma, "num_read_outstanding", 32, 256),
                    self._number(pragma, "num_write_outstanding", 32, 256),
                    pragma.location,
                )
            )
        return tuple(ports)

    @staticmethod
    def _number(pragma: Pragma, key: str, default: int, most: int) -> int:
        value = pragma.number(key, default)
        if not 1 <= value <= most:
            raise Unsupported(pragma.location, f"{key} = {value}", f"use 1 to {most}")
        return value
