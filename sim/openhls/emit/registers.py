# SPDX-License-Identifier: Apache-2.0
"""The AXI4-Lite register file of a top, at the addresses that Vitis gives it.

0x00 to 0x0c control and interrupts (rtl/openhls_control.sv), 0x10 the returned number, then the arguments in order,
each with its words and one word more, which for an output says that it is new (bit 0, cleared by reading). After
them, where the top has memory ports, `bus_error`: a bit per port, in the order of the C++, from the first error of a
job until the next start. Other addresses read as 0.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from openhls.emit.netlist import (
    Module,
    Net,
    Term,
    all_of,
    any_of,
    balanced,
    choose,
    equals,
    extend,
    literal,
    negate,
    operate,
)
from openhls.ir import Opcode, Program

PORT = "s_axi_control"
CONTROL_WORDS = ("ap_ctrl", "gie", "ier", "isr")
FIRST_ARGUMENT = 0x10


@dataclass(frozen=True)
class Register:
    """`width` bits at byte `offset`, low word first. `access`: "rw", "r", or "rc" for one that reading clears.

    `scalar` is the scalar of the top's process that it gives, `output` the output that it holds.
    """

    name: str
    offset: int
    width: int
    access: str
    scalar: str = ""
    output: str = ""

    @property
    def words(self) -> int:
        return (self.width + 31) // 32


@dataclass
class RegisterMap:
    """The registers of a top by address. `controlled`: start and done live there, too, and are no pins."""

    controlled: bool
    registers: list[Register] = field(default_factory=list)
    end: int = FIRST_ARGUMENT

    def add(self, name: str, width: int, access: str, scalar: str = "", output: str = "", gap: int = 0) -> None:
        """A register after the others, and `gap` words that nothing uses."""
        self.registers.append(Register(name, self.end, width, access, scalar, output))
        self.end += 4 * (self.registers[-1].words + gap)

    @property
    def address_bits(self) -> int:
        return (self.end - 1).bit_length()

    @property
    def scalars(self) -> dict[str, Register]:
        return {one.scalar: one for one in self.registers if one.scalar}

    @property
    def outputs(self) -> dict[str, Register]:
        return {one.output: one for one in self.registers if one.output}

    def as_json(self) -> dict[str, object]:
        """For drivers; see the head of this module."""
        words = [(name, 4 * i, 32, "rw") for i, name in enumerate(CONTROL_WORDS)] if self.controlled else []
        words += [(one.name, one.offset, one.width, one.access) for one in self.registers]
        keys = ("name", "offset", "width", "access")
        entries = [dict(zip(keys, word, strict=True)) for word in words]
        return {"port": PORT, "address_bits": self.address_bits, "registers": entries}


def register_map(program: Program) -> RegisterMap | None:
    """Where the arguments of INTERFACE s_axilite live; None without any. What the hardware lacks has none."""
    process = program.processes[program.top]
    scalars = {scalar.name: scalar.width for scalar in process.scalars}
    hidden = {state.name for state in program.states}
    outputs = {name: operand.width for name, operand in process.outputs if name not in hidden}
    found = RegisterMap("return" in program.registers)
    if found.controlled and "result" in outputs:
        found.add("ap_return", outputs["result"], "r", output="result", gap=1)
    for name in program.arguments:
        if name not in program.registers:
            continue
        both = f"{name}_in" in scalars and name in outputs
        taken, given = (f"{name}_i", f"{name}_o") if both else (name, name)
        scalar = f"{name}_in" if both else name
        if scalar in scalars:
            found.add(taken, scalars[scalar], "rw", scalar=scalar, gap=1)
        if name in outputs:
            found.add(given, outputs[name], "r", output=name)
            found.add(f"{given}_ctrl", 1, "rc")
    if program.memories and (found.controlled or found.registers):
        found.add("bus_error", len(program.memories), "r")
    return found if found.controlled or found.registers else None


# ---- hardware ----


@dataclass
class RegisterFile:
    """Builds the registers in a module: the bus on one side, `values` and what is `held` on the other."""

    module: Module
    map: RegisterMap
    done: Term
    write: Net = field(init=False)
    read: Net = field(init=False)
    addresses: dict[str, Net] = field(init=False, default_factory=dict)
    data: Net = field(init=False)
    strobe: Net = field(init=False)
    answers: list[Term] = field(init=False, default_factory=list)  # each 0 unless its word is read

    def __post_init__(self) -> None:
        module, bits = self.module, self.map.address_bits
        self.write, self.read = module.net("write", 1), module.net("read", 1)
        self.addresses = {side: module.net(f"{side}_address", bits) for side in ("write", "read")}
        self.data, self.strobe = module.net("write_data", 32), module.net("write_strobe", 4)

    def at(self, side: str, offset: int) -> Term:
        """True if the bus reads or writes the word at `offset`."""
        address = self.addresses[side]
        word = operate(Opcode.EXTRACT, address, width=address.width - 2, low=2)
        return equals(word, literal(address.width - 2, offset // 4))

    def answer(self, offset: int, value: Term) -> None:
        """The word at `offset` reads as `value`, of up to 32 bits."""
        self.answers.append(choose(self.at("read", offset), extend(value, 32), literal(32, 0)))

    def answer_words(self, register: Register, value: Net) -> None:
        for number in range(register.words):
            width = min(32, register.width - 32 * number)
            part = operate(Opcode.EXTRACT, value, width=width, low=32 * number)
            self.answer(register.offset + 4 * number, part)

    def given(self, register: Register) -> Net:
        """What the bus has written, byte by byte."""
        parts: list[Term] = []
        for low in range(0, register.width, 8):
            width, lane = min(8, register.width - low), low // 8 % 4
            enable = all_of(
                [
                    self.write,
                    self.at("write", register.offset + low // 32 * 4),
                    operate(Opcode.EXTRACT, self.strobe, width=1, low=lane),
                ]
            )
            byte = self.module.net(f"{register.name}_byte{low // 8}", width)
            taken = operate(Opcode.EXTRACT, self.data, width=width, low=8 * lane)
            parts.append(self.module.register(byte, taken, enable, reset=0))
        value = operate(Opcode.CONCAT, *reversed(parts)) if len(parts) > 1 else parts[0]
        net = self.module.wire(f"{register.name}_value", value)
        self.answer_words(register, net)
        return net

    def held(self, register: Register, output: Term) -> None:
        """An output, kept from the end of a job to the end of the next."""
        net = self.module.net(f"{register.name}_held", register.width)
        self.answer_words(register, self.module.register(net, output, self.done, reset=0))

    def news(self, register: Register) -> None:
        """A bit from the end of a job until it is read."""
        net = self.module.net(f"{register.name}_bit", 1)
        seen = all_of([self.read, self.at("read", register.offset)])
        self.module.register(net, any_of([self.done, all_of([net, negate(seen)])]), reset=0)
        self.answer(register.offset, net)

    def bus(self) -> dict[str, Net]:
        """The AXI4-Lite ports and what is behind them; returns the nets that openhls_control shares."""
        module, bits = self.module, self.map.address_bits
        inputs: dict[str, Term] = {}
        for name, width in (("AWADDR", bits), ("AWVALID", 1), ("WDATA", 32), ("WSTRB", 4), ("WVALID", 1)):
            inputs[name.lower()] = module.input(f"{PORT}_{name}", width)
        for name, width in (("BREADY", 1), ("ARADDR", bits), ("ARVALID", 1), ("RREADY", 1)):
            inputs[name.lower()] = module.input(f"{PORT}_{name}", width)
        outputs = {
            name.lower(): module.output(f"{PORT}_{name}", 32 if name == "RDATA" else 1)
            for name in ("AWREADY", "WREADY", "BVALID", "ARREADY", "RVALID", "RDATA")
        }
        for name in ("BRESP", "RRESP"):
            module.assign(module.output(f"{PORT}_{name}", 2), literal(2, 0))
        shared = {
            "write": self.write,
            "write_address": self.addresses["write"],
            "write_data": self.data,
            "write_strobe": self.strobe,
            "read": self.read,
            "read_address": self.addresses["read"],
        }
        inputs["read_data"] = module.wire("read_data", balanced(Opcode.OR, self.answers))
        module.instance("openhls_axi_lite", "bus", inputs, outputs | shared, ADDRESS=bits)
        return shared


def build_registers(map_: RegisterMap, name: str) -> Module:
    """The module `name`: AXI4-Lite; for each register `arg_SCALAR` or `out_OUTPUT`; and the control, if it is here."""
    module = Module(name, f"The registers behind {PORT}.")
    done = module.input("done", 1)
    given = {name: module.output(f"arg_{name}", register.width) for name, register in map_.scalars.items()}
    taken = {name: module.input(f"out_{name}", register.width) for name, register in map_.outputs.items()}
    file = RegisterFile(module, map_, done)
    for register in map_.registers:
        if register.scalar:
            module.assign(given[register.scalar], file.given(register))
        elif register.output:
            file.held(register, taken[register.output])
        elif register.access == "rc":
            file.news(register)
        else:
            file.answer_words(register, module.input(register.name, register.width))
    if not map_.controlled:
        file.bus()
        return module
    control = module.net("control_data", 32)
    file.answers.append(control)
    start, interrupt = module.output("start", 1), module.output("interrupt", 1)
    idle = module.input("idle", 1)
    module.instance(
        "openhls_control",
        "control",
        {**file.bus(), "done": done, "ready": done, "idle": idle},
        {"read_data": control, "start": start, "interrupt": interrupt},
        ADDRESS=map_.address_bits,
    )
    return module
