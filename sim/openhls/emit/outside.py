# SPDX-License-Identifier: Apache-2.0
"""Arrays and numbers of the top that outlive a job: ports of memory (ap_memory), and global variables.

A port of memory has one address for what is read and one for what is written: `A_address0`, `A_ce0`, `A_q0` (a cycle
after `A_ce0`, kept until the next), and `A_address1`, `A_ce1`, `A_we1`, `A_d1`; an array that is only written has its
port 0, and one that is only read may have a second port to read, `A_address1`, `A_ce1`, `A_q1`. Banks are `A_0`, `A_1`
and so on. An array of registers has a pin for each element, and two to write it.

Global variables have their initial contents after every reset. Those in memory are put back element by element; jobs
wait for that.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from openhls.analysis.storage import Kind, Storage, storage_of
from openhls.emit.arrays import Access, ArrayEnd
from openhls.emit.netlist import Module, Net, Table, Term, add, all_of, any_of, choose, equals, literal, negate
from openhls.ir import Array, Opcode, Process, Program, State, calls_of, operations_of


@dataclass(frozen=True)
class Uses:
    """How a process and those it calls use an external array."""

    reads: bool
    writes: bool


def uses_of(program: Program, process: Process, array: str) -> Uses:
    found = {operation.opcode for operation in operations_of(process.body) if operation.target == array}
    reads, writes = Opcode.LOAD in found, Opcode.STORE in found
    for call in calls_of(process.body):
        for inner, outer in call.arrays:
            if outer == array:
                callee = uses_of(program, program.processes[call.process], inner)
                reads, writes = reads or callee.reads, writes or callee.writes
    return Uses(reads, writes)


def bank_name(storage: Storage, bank: int) -> str:
    """The prefix of the pins of a bank."""
    name = storage.array.first or storage.array.name
    return name if storage.factor == 1 else f"{name}_{bank}"


def read_port(storage: Storage) -> int:
    """The number of the port that an array is read through."""
    return int(storage.array.first != "")


@dataclass
class Outside:
    """Adds pins and memories to the module of a top; `inputs` and `outputs` are for the instance of its process.

    `ready` is 1 when all global variables have their initial contents.
    """

    module: Module
    program: Program
    inputs: dict[str, Term] = field(default_factory=dict)
    outputs: dict[str, Net] = field(default_factory=dict)
    waits: list[Net] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.process = self.program.processes[self.program.top]
        self.arrays = {array.name: array for array in self.process.arrays if array.external}
        self.widths = {scalar.name: scalar.width for scalar in self.process.scalars}

    @property
    def ready(self) -> Term:
        return all_of([negate(wait) for wait in self.waits])

    def build(self) -> None:
        """All arrays; numbers() is for the others."""
        kept = {state.name: state for state in self.program.states if state.is_array}
        for name, array in self.arrays.items():
            storage = storage_of(array)
            if name in kept:
                self.keep(storage, kept[name])
            elif storage.kind is Kind.REGISTERS:
                self.register_pins(storage)
            else:
                for bank in range(storage.factor):
                    self.memory_pins(storage, bank)

    # ---- ports of memory ----

    def memory_pins(self, storage: Storage, bank: int) -> None:
        array, uses = storage.array, uses_of(self.program, self.process, storage.array.name)
        pins, port = bank_name(storage, bank), f"{storage.array.name}_bank{bank}"
        widths = {"read": 1, "read_address": storage.address_bits, "write": 1, "write_data": array.width}
        widths["write_address"] = storage.address_bits
        shown: dict[str, str] = {}
        if uses.reads:
            number = read_port(storage)
            shown |= {"read": f"{pins}_ce{number}", "read_address": f"{pins}_address{number}"}
            self.inputs[f"{port}_read_data"] = self.module.input(f"{pins}_q{number}", array.width)
        else:
            self.inputs[f"{port}_read_data"] = literal(array.width, 0)
        if uses.writes:
            number = int(uses.reads)
            shown |= {"write": f"{pins}_we{number}", "write_address": f"{pins}_address{number}"}
            shown["write_data"] = f"{pins}_d{number}"
        for part, width in widths.items():
            make = self.module.output if part in shown else self.module.net
            net = self.outputs[f"{port}_{part}"] = make(shown.get(part, f"{port}_{part}_unused"), width)
            if part == "write" and uses.writes:
                self.module.assign(self.module.output(f"{pins}_ce{int(uses.reads)}", 1), net)

    def register_pins(self, storage: Storage) -> None:
        name, width = storage.array.name, storage.array.width
        uses = uses_of(self.program, self.process, name)
        for number in range(storage.array.length):
            element = f"{name}_{number}"
            self.inputs[element] = self.module.input(f"{element}_i", width) if uses.reads else literal(width, 0)
            make = self.module.output if uses.writes else self.module.net
            self.outputs[f"{element}_write"] = make(f"{element}_o_ap_vld", 1)
            self.outputs[f"{element}_write_data"] = make(f"{element}_o", width)

    # ---- global variables ----

    def keep(self, storage: Storage, state: State) -> None:
        """The memory of an array, or its registers."""
        inner = Storage(own(storage.array), storage.kind, storage.factor, storage.bank_length, storage.cyclic)
        end = ArrayEnd(inner, self.module)
        end.lend(storage, "process", self.inputs, self.outputs)
        if storage.kind is Kind.REGISTERS:
            for number, net in enumerate(end.elements):
                (access,) = end.writes[number]
                assert access.data is not None
                self.module.register(net, access.data, access.enable, reset=state.initial[number])
            return
        self.put_back(end, state)
        end.finish()

    def put_back(self, end: ArrayEnd, state: State) -> None:
        """After a reset, a counter goes through the addresses of all banks at once."""
        module, storage, name = self.module, end.storage, state.name
        busy, address = module.net(f"{name}_resets", 1), module.net(f"{name}_reset_address", storage.address_bits)
        last = module.wire(f"{name}_reset_ends", equals(address, literal(address.width, storage.bank_length - 1)))
        module.register(busy, all_of([busy, negate(last)]), reset=1)
        module.register(address, add(address, literal(address.width, 1)), busy, reset=0)
        self.waits.append(busy)
        for bank in range(storage.factor):
            (access,) = end.writes[bank]
            assert access.data is not None
            contents = bank_contents(storage, bank, state.initial)
            data: Term = literal(storage.array.width, 0)
            if any(contents):
                table = module.net(f"{name}_initial_{bank}", storage.array.width)
                module.drive(table, Table(address, contents))
                data = table
            end.writes[bank] = [
                Access(
                    any_of([busy, access.enable]),
                    choose(busy, address, access.address),
                    choose(busy, data, access.data),
                )
            ]

    def number(self, state: State, following: Net | None, ends: Term) -> Term:
        """The register of a number, which takes `following` when a job ends. Without one it is a constant."""
        width = self.widths[state.scalar]
        initial = state.initial[0] & ((1 << width) - 1)
        if following is None:
            return literal(width, initial)
        return self.module.register(self.module.net(f"{state.name}_kept", width), following, ends, reset=initial)


def own(array: Array) -> Array:
    """The array as the top has it."""
    return Array(
        array.name, array.width, array.length, array.partition, array.factor, array.storage, location=array.location
    )


def bank_contents(storage: Storage, bank: int, initial: tuple[int, ...]) -> tuple[int, ...]:
    """What a bank holds; elements beyond the array are 0."""
    places = (
        address * storage.factor + bank if storage.cyclic else bank * storage.bank_length + address
        for address in range(storage.bank_length)
    )
    return tuple(initial[place] if place < len(initial) else 0 for place in places)
