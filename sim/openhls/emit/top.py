# SPDX-License-Identifier: Apache-2.0
"""The top: the names and the handshake that Vitis gives a kernel, around the module of its process.

ap_ctrl_hs: hold `ap_start` until `ap_ready`; `ap_done` is high for one cycle; outputs stay until the next start. With
registers (registers.py) these are bits behind AXI4-Lite. Streams are AXI4-Stream, bundles of pointers AXI4 masters
(axi.py), arrays ports of memory (outside.py). Arguments are taken over at the start.
"""

from __future__ import annotations

from openhls.emit.axi import Masters, stream_names
from openhls.emit.dataflow import module_name
from openhls.emit.netlist import Module, Net, Term, all_of, any_of, literal, negate, operate
from openhls.emit.outside import Outside
from openhls.emit.registers import RegisterMap, build_registers, register_map
from openhls.errors import Unsupported
from openhls.ir import Channels, Direction, Field, Opcode, Process, Program, Stream
from openhls.names import KEYWORDS

PINS = {"ap_clk", "ap_rst_n", "ap_start", "ap_done", "ap_ready", "ap_idle", "ap_return", "bus_error", "interrupt"}


def module_of(top: str) -> str:
    """The name of the module of a function: its own, unless SystemVerilog has a use for that."""
    return f"{top}_top" if top in KEYWORDS else top


def check_names(process: Process) -> None:
    """Arguments keep their C++ names, so these must be names in SystemVerilog, too, and not those of other pins."""
    arrays = (array.name for array in process.arrays if array.external)
    for name in (*(scalar.name for scalar in process.scalars), *(output for output, _ in process.outputs), *arrays):
        if name in KEYWORDS:
            raise Unsupported(process.location, f"argument {name}: a keyword of SystemVerilog", "give it another name")
        if name in PINS:
            raise Unsupported(process.location, f"argument {name}: a pin of every kernel", "give it another name")


def build_top(program: Program, name: str) -> list[Module]:
    """The module `name`, with ap_clk and ap_rst_n in place of clk and rst, last; before it the one of its registers."""
    process = program.processes[program.top]
    states = {state.name: state for state in program.states if not state.is_array}
    hidden = {state.scalar for state in states.values()}
    check_names(process)
    registers = register_map(program)
    held = registers or RegisterMap(False)
    module = Module(name, f"Top: {process.location}", clock="ap_clk", reset="ap_rst_n")
    start = module.net("ap_start", 1) if held.controlled else module.input("ap_start", 1)
    inputs: dict[str, Term] = {}
    outputs: dict[str, Net] = {}
    file_inputs: dict[str, Term] = {}
    file_outputs: dict[str, Net] = {}
    given: dict[str, Net] = {}
    for scalar in (scalar for scalar in process.scalars if scalar.name not in hidden):
        make = module.net if scalar.name in held.scalars else module.input
        given[scalar.name] = make(scalar.name, scalar.width)
        if scalar.name in held.scalars:
            file_outputs[f"arg_{scalar.name}"] = given[scalar.name]
    for output, operand in process.outputs:
        if output in states:
            outputs[f"out_{output}"] = module.net(f"{output}_following", operand.width)
            continue
        make = module.net if output in held.outputs else module.output
        net = make("ap_return" if output == "result" else output, operand.width)
        outputs[f"out_{output}"] = file_inputs[f"out_{output}"] = net
    lent = stream_names(program.memories)
    for stream in process.streams:
        if stream.name not in lent:
            channels = program.channels.get(stream.name, (("data", stream.width),))
            fields = () if stream.name in program.sequences else program.layouts.get(stream.name, ())
            add_stream(module, stream, channels, fields, inputs, outputs)
    done = module.net("ended", 1)
    running = module.net("running", 1)
    outside = Outside(module, program, inputs, outputs)
    outside.build()
    begin = module.wire("begin_job", all_of([start, negate(running), outside.ready]))
    begun = module.register(module.net("begun", 1), begin, reset=0)
    module.register(running, any_of([begin, all_of([running, negate(done)])]), reset=0)
    for argument, net in given.items():
        inputs[f"arg_{argument}"] = module.register(module.net(f"{argument}_taken", net.width), net, begin)
    for state in (state for state in states.values() if state.scalar):
        inputs[f"arg_{state.scalar}"] = outside.number(state, outputs.get(f"out_{state.name}"), done)
    masters = Masters(module, begin)
    masters.build(program.memories)
    if program.memories:
        errors = [masters.errors[port.name] for port in reversed(program.memories)]
        failed = operate(Opcode.CONCAT, *errors) if len(errors) > 1 else errors[0]
        file_inputs["bus_error"] = module.assign(module.output("bus_error", len(errors)), failed)
    inputs |= {"start": begun, **masters.inputs}
    outputs |= {"done": done, **masters.outputs}
    module.instance(module_name(process), "process", inputs, outputs)
    if held.controlled:
        file_outputs |= {"start": start, "interrupt": module.output("interrupt", 1)}
    else:
        for pin, bit in (("done", done), ("ready", done), ("idle", negate(running))):
            module.assign(module.output(f"ap_{pin}", 1), bit)
    if registers is None:
        return [module]
    file = build_registers(registers, f"{name}_registers")
    add_registers(module, file, {"done": done, "idle": negate(running), **file_inputs}, file_outputs)
    return [file, module]


def add_stream(
    module: Module,
    stream: Stream,
    channels: Channels,
    fields: tuple[Field, ...],
    inputs: dict[str, Term],
    outputs: dict[str, Net],
) -> None:
    """AXI4-Stream ports of an argument. `fields`: the numbers of a struct, of which no other bits leave."""
    names = {part: f"{stream.name}_t{part}" for part in ("valid", "ready")}
    if stream.direction is Direction.READ:
        words = [module.input(f"{stream.name}_t{channel}", width) for channel, width in channels]
        inputs[f"{stream.name}_data"] = operate(Opcode.CONCAT, *reversed(words)) if len(words) > 1 else words[0]
        inputs[f"{stream.name}_valid"] = module.input(names["valid"], 1)
        outputs[f"{stream.name}_ready"] = module.output(names["ready"], 1)
    else:
        (channel, width), *others = channels
        make = module.net if others or fields else module.output
        word = outputs[f"{stream.name}_data"] = make(
            f"{stream.name}_{'word' if others or fields else 't' + channel}", stream.width
        )
        if fields:
            module.assign(module.output(f"{stream.name}_t{channel}", width), tidied(module, word, fields))
        low = 0
        for channel, width in channels if others else ():
            part = operate(Opcode.EXTRACT, word, width=width, low=low)
            module.assign(module.output(f"{stream.name}_t{channel}", width), part)
            low += width
        outputs[f"{stream.name}_valid"] = module.output(names["valid"], 1)
        inputs[f"{stream.name}_ready"] = module.input(names["ready"], 1)


def tidied(module: Module, word: Net, fields: tuple[Field, ...]) -> Term:
    """A struct with zeros in its padding, and each number below copies of its sign or zeros, as memory has it."""
    parts: list[Term] = []
    end = 0
    for field in sorted(fields, key=lambda each: each.offset):
        width = max(8, 1 << (field.bits - 1).bit_length())
        if 8 * field.offset > end:
            parts.append(literal(8 * field.offset - end, 0))
        part = operate(Opcode.EXTRACT, word, width=field.bits, low=8 * field.offset)
        if width > field.bits:
            number = module.wire(f"{word.name}_{field.offset}", part)
            part = operate(Opcode.SEXT if field.is_signed else Opcode.ZEXT, number, width=width)
        parts.append(part)
        end = 8 * field.offset + width
    if end < word.width:
        parts.append(literal(word.width - end, 0))
    return operate(Opcode.CONCAT, *reversed(parts)) if len(parts) > 1 else parts[0]


def add_registers(module: Module, file: Module, inputs: dict[str, Term], outputs: dict[str, Net]) -> None:
    """The register file, its bus on pins of the same names."""
    ports = {net.name for net in file.inputs}
    inputs = {name: term for name, term in inputs.items() if name in ports}
    inputs |= {net.name: module.input(net.name, net.width) for net in file.inputs if net.name not in inputs}
    outputs |= {net.name: module.output(net.name, net.width) for net in file.outputs if net.name not in outputs}
    module.instance(file.name, "registers", inputs, outputs)
