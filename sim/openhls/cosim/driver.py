# SPDX-License-Identifier: Apache-2.0
"""The program that drives a verilated design through cosim/harness.hpp."""

from __future__ import annotations

import shutil
from pathlib import Path

from openhls import store
from openhls.analysis.storage import Kind, storage_of
from openhls.cosim import simulate
from openhls.emit.axi import bus_widths
from openhls.emit.design import Design
from openhls.emit.outside import bank_name, read_port
from openhls.emit.registers import PORT, Register, RegisterMap
from openhls.ir import Direction


def build_simulation(design: Design, main: str = "") -> Path:
    """A program that drives a design through the harness, or through a main function of its own. It is built once for
    the same texts."""
    text = main or main_text(design)

    def make(folder: Path) -> None:
        build = folder / "build"
        build.mkdir()
        simulate.verilate(list(design.files), design.top, "Vtop", build)
        (build / "main.cpp").write_text(text)
        simulate.compile_models(build, folder / "simulation")
        shutil.rmtree(build)

    parts = [text, *simulate.WAIVED, *simulate.shared_key(), *store.texts(simulate.LIBRARY)]
    parts += [design.top, *store.texts(design.files)]
    return store.kept("simulation", parts, make) / "simulation"


def connections(design: Design) -> list[str]:
    """C++ that tells a `harness` (cosim/harness.hpp) which port of the model `top` is which argument."""
    process, registers = design.process, design.registers
    streams = {stream.name: stream for stream in process.streams}
    scalars = {scalar.name: scalar for scalar in process.scalars}
    outputs = dict(process.outputs)
    pointers = {port.name: port for port in design.memories}
    lines: list[str] = []

    def port(name: str, net: str, width: int, register: Register | None) -> str:
        if register is not None:
            return f'bus.port("{name}", {width}, {register.offset})'
        return f'openhls::port("{name}", {width}, top.{net})'

    held = registers or RegisterMap(False)
    if registers is not None:
        lines.append(f"auto& bus = harness.bus(OPENHLS_AXI_LITE_PINS(top, {PORT}, {registers.address_bits}));")
    if held.controlled:
        lines.append("harness.registers(top.__SYM__interrupt);")
    else:
        lines.append("harness.pins(top.ap_start, top.ap_done);")
    for bundle, width in bus_widths(design.memories).items():
        lines.append(f"harness.memory(OPENHLS_AXI_PINS(top, {bundle}, {width // 8}));")
    if design.states or design.keeps_words:
        lines.append("harness.keeps_state();")
    if design.of_tasks:
        lines.append("harness.runs_on();")
    in_memory = {each.argument for each in design.ports}
    for name in (name for key in design.arguments for name in (key, f"{key}_in") if name in (*scalars, *in_memory)):
        if name in in_memory:
            lines += memory_ports(design, name)
            continue
        place = port(name, name, scalars[name].width, held.scalars.get(name))
        if name in pointers:
            lines.append(f"harness.pointer({place}, {pointers[name].width // 8});")
        else:
            lines.append(f"harness.scalar({place});")
    arrays = design.stream_arrays
    names = (name for argument in design.arguments for name in arrays.get(argument, (argument,)) if name in streams)
    for stream in (streams[name] for name in names):
        pins = [
            port(stream.name, f"{stream.name}_t{channel}", width, None)
            for channel, width in design.channels.get(stream.name, (("data", stream.width),))
        ]
        data = pins[0] if len(pins) == 1 else f'openhls::joined("{stream.name}", {{{", ".join(pins)}}})'
        end = "input" if stream.direction is Direction.READ else "output"
        of_task = ", true" if end == "input" and stream.name in design.of_tasks else ""
        lines.append(f"harness.{end}({{{data}, &top.{stream.name}_tvalid, &top.{stream.name}_tready}}{of_task});")
    for name in ("result", *design.arguments):
        if name in outputs:
            net, shown = ("ap_return", "return") if name == "result" else (name, name)
            lines.append(f"harness.result({port(shown, net, outputs[name].width, held.outputs.get(name))});")
    return lines


def memory_ports(design: Design, argument: str) -> list[str]:
    """The same for an array argument: its buffer, and the pins of each of its banks or registers."""
    lines = [f'harness.array("{argument}");']
    arrays = {array.name: array for array in design.process.arrays}
    for port in (port for port in design.ports if port.argument == argument):
        storage, uses = storage_of(arrays[port.array]), design.uses[port.array]
        levels = ", ".join(f"{{{length}, {stride}}}" for length, stride in port.levels)
        size, width, name = storage.array.width // 8, storage.array.width, port.array
        layout = f"{port.offset}, {{{levels}}}, {size}"
        if storage.kind is Kind.REGISTERS:
            for number in range(storage.array.length):
                place = f"{{{port.place(number)}, {{}}, {size}}}, 1, 0, 1"
                read = f'openhls::port("{name}", {width}, top.{name}_{number}_i)' if uses.reads else "{}"
                pins = f"&top.{name}_{number}_o_ap_vld" if uses.writes else "nullptr"
                data = f'openhls::port("{name}", {width}, top.{name}_{number}_o)' if uses.writes else "{}"
                lines.append(f"harness.bank({{{place}, nullptr, {{}}, {read}, {pins}, {{}}, {data}}});")
            continue
        for bank in range(storage.factor):
            pins, bits = bank_name(storage, bank), storage.address_bits
            number, reading = int(uses.reads), read_port(storage)
            step, first = (storage.factor, bank) if storage.cyclic else (1, bank * storage.bank_length)
            parts = [f"{{{layout}}}, {storage.array.length}, {first}, {step}"]
            parts.append(f"&top.{pins}_ce{reading}" if uses.reads else "nullptr")
            parts.append(f'openhls::port("{name}", {bits}, top.{pins}_address{reading})' if uses.reads else "{}")
            parts.append(f'openhls::port("{name}", {width}, top.{pins}_q{reading})' if uses.reads else "{}")
            parts.append(f"&top.{pins}_we{number}" if uses.writes else "nullptr")
            parts.append(f'openhls::port("{name}", {bits}, top.{pins}_address{number})' if uses.writes else "{}")
            parts.append(f'openhls::port("{name}", {width}, top.{pins}_d{number})' if uses.writes else "{}")
            lines.append(f"harness.bank({{{', '.join(parts)}}});")
    return lines


def main_text(design: Design, model: str = "Vtop", entry: str = "main") -> str:
    """The function `entry` that runs the class `model` on recorded cases. Arguments +name=value are the design's."""
    body = "\n  ".join(connections(design))
    return f"""#include "harness.hpp"
#include "{model}.h"

int {entry}(int argc, char** argv) {{
  Verilated::commandArgs(argc, argv);
  while (argc > 0 && argv[argc - 1][0] == '+') --argc;
  Verilated::randReset(2);  // what has no reset starts with random bits
  {model} top;
  openhls::Harness harness(top);
  harness.state(top.rootp->vlSymsp, sizeof *top.rootp->vlSymsp);
  {body}
  return harness.run(argc, argv);
}}
"""
