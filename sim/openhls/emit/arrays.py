# SPDX-License-Identifier: Apache-2.0
"""The hardware of arrays: banks of memory, registers, or tables, and the paths of all accesses to them."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from openhls.analysis.storage import Kind, Storage
from openhls.emit.netlist import (
    ONE,
    Literal,
    Module,
    Net,
    Table,
    Term,
    all_of,
    any_of,
    choose,
    choose_first,
    equals,
    extend,
    literal,
    operate,
)
from openhls.errors import Unsupported
from openhls.ir import Opcode


@dataclass(frozen=True)
class Access:
    """An access to a bank: `enable` when its step completes (and for a store its predicate holds)."""

    enable: Term
    address: Term
    data: Term | None = None

    def only(self, when: Term) -> Access:
        """The access, made only while `when` is 1."""
        return replace(self, enable=all_of([self.enable, when]))


@dataclass
class ArrayEnd:
    """An array of a process. The accesses and outputs of the second of two ports are behind those of the first."""

    storage: Storage
    module: Module
    reads: dict[int, list[Access]] = field(default_factory=dict)
    writes: dict[int, list[Access]] = field(default_factory=dict)
    elements: list[Net] = field(default_factory=list)
    outputs: list[Net] = field(default_factory=list)  # of the banks

    def __post_init__(self) -> None:
        """What the process sees of the array: nets of its own, or ports if the array belongs to a caller."""
        storage, module = self.storage, self.module
        name, width = storage.array.name, storage.array.width
        make = module.input if storage.array.external else module.net
        if storage.kind is Kind.REGISTERS:
            self.elements = [make(f"{name}_{i}", width) for i in range(storage.array.length)]
        elif storage.kind is Kind.RAM:
            suffixes = ("_0", "_1") if storage.array.two_ports else ("",)
            names = [f"{name}_bank{bank}_read_data{suffix}" for suffix in suffixes for bank in range(storage.factor)]
            self.outputs = [make(each, width) for each in names]

    # ---- accesses ----

    def load(self, index: Term, enable: Term, bank: int | None, name: str, port: int = 0) -> Term:
        """The element; of a memory, in the cycle after `enable`. A table's or register's is combinational."""
        index = self.fitted(index)
        if self.storage.kind is Kind.TABLE:
            values = self.storage.array.initial
            assert values is not None
            net = self.module.net(name, self.storage.array.width)
            self.module.drive(net, Table(self.named(index, f"{name}_index"), values))
            return net
        if self.storage.kind is Kind.REGISTERS:
            return self.selected(index, list(self.elements), f"{name}_index")
        address, number = self.split(index, name)
        banks = range(self.storage.factor) if bank is None else (bank,)
        first = port * self.storage.factor
        for chosen in banks:
            self.reads.setdefault(first + chosen, []).append(Access(enable, address))
        if bank is not None:
            return self.outputs[first + bank]
        held = self.module.net(f"{name}_bank", self.storage.bank_bits)
        self.module.register(held, number, enable)
        return self.selected(held, list(self.outputs[first : first + self.storage.factor]), f"{name}_bank")

    def store(self, index: Term, data: Term, enable: Term, bank: int | None, name: str, port: int = 0) -> None:
        index = self.fitted(index)
        if self.storage.kind is Kind.REGISTERS:
            for element in range(len(self.elements)):
                here = all_of([enable, self.is_number(index, element)])
                self.writes.setdefault(element, []).append(Access(here, index, data))
            return
        address, number = self.split(index, name)
        for chosen in range(self.storage.factor) if bank is None else (bank,):
            here = enable if bank is not None else all_of([enable, self.is_number(number, chosen)])
            self.writes.setdefault(port * self.storage.factor + chosen, []).append(Access(here, address, data))

    # ---- indices ----

    def named(self, term: Term, name: str) -> Net:
        return term if isinstance(term, Net) else self.module.wire(name, term)

    def fitted(self, index: Term) -> Term:
        bits = self.storage.index_bits
        if index.width <= bits:
            return extend(index, bits)
        if isinstance(index, Literal):
            return literal(bits, index.bits)
        return operate(Opcode.EXTRACT, index, width=bits)

    def is_number(self, index: Term, number: int) -> Term:
        if isinstance(index, Literal):
            return literal(1, int(index.bits == number))
        return equals(index, literal(index.width, number))

    def split(self, index: Term, name: str) -> tuple[Term, Term]:
        """Address in the bank, and number of the bank."""
        storage = self.storage
        if storage.factor == 1:
            return index, literal(1, 0)
        if isinstance(index, Literal):
            address, bank = divmod(index.bits, storage.factor)
            if not storage.cyclic:
                bank, address = divmod(index.bits, storage.bank_length)
            return literal(storage.address_bits, address), literal(storage.bank_bits, bank)
        net = self.named(index, f"{name}_index")
        low_bits = storage.bank_bits if storage.cyclic else (storage.bank_length - 1).bit_length()
        high = self.slice(net, low_bits, net.width - low_bits)
        low = self.slice(net, 0, low_bits)
        within, which = (high, low) if storage.cyclic else (low, high)
        return self.resized(within, storage.address_bits), self.resized(which, storage.bank_bits)

    def slice(self, net: Net, low: int, width: int) -> Term:
        return operate(Opcode.EXTRACT, net, low=low, width=width) if width > 0 else literal(1, 0)

    def resized(self, term: Term, width: int) -> Term:
        if term.width < width:
            return extend(term, width)
        return term if term.width == width else operate(Opcode.EXTRACT, self.named(term, "bank"), width=width)

    def selected(self, index: Term, values: list[Term], name: str) -> Term:
        """values[index], as a tree over the bits of the index."""
        if isinstance(index, Literal):
            return values[index.bits]
        net = self.named(index, name)
        for bit in range(net.width):
            if len(values) == 1:
                break
            chosen = operate(Opcode.EXTRACT, net, low=bit, width=1)
            pairs = [choose(chosen, high, low) for low, high in zip(values[::2], values[1::2], strict=False)]
            values = pairs + values[len(values) & ~1 :]
        return values[0]

    # ---- an array of a caller ----

    def lend(self, port: Storage, child: str, inputs: dict[str, Term], outputs: dict[str, Net]) -> None:
        """Connect the array to a called process, which knows it as `port.array`."""
        self.lend_one_of([(ONE, self)], port, child, inputs, outputs)

    def lend_one_of(
        self,
        buffers: list[tuple[Term, ArrayEnd]],
        port: Storage,
        child: str,
        inputs: dict[str, Term],
        outputs: dict[str, Net],
    ) -> None:
        """Connect the first of several arrays like this one whose condition holds. The last condition is not looked at
        by what reads."""
        mine, name = self.storage, port.array.name
        if (port.kind, port.factor, port.bank_length) != (mine.kind, mine.factor, mine.bank_length):
            raise Unsupported(
                port.array.location,
                f"array {mine.array.name} is partitioned in one way in the caller and in another way here",
                "repeat the caller's ARRAY_PARTITION",
            )
        if port.kind is Kind.REGISTERS:
            for number in range(len(self.elements)):
                inputs[f"{name}_{number}"] = choose_first([(when, end.elements[number]) for when, end in buffers])
                access = self.borrowed(child, f"{name}_{number}", "write", 0, outputs)
                for when, end in buffers:
                    end.writes.setdefault(number, []).append(access.only(when))
        elif port.kind is Kind.RAM:
            for bank in range(len(self.outputs)):
                read_data = choose_first([(when, end.outputs[bank]) for when, end in buffers])
                inputs[f"{name}_bank{bank}_read_data"] = read_data
                read = self.borrowed(child, f"{name}_bank{bank}", "read", port.address_bits, outputs)
                write = self.borrowed(child, f"{name}_bank{bank}", "write", port.address_bits, outputs)
                for when, end in buffers:
                    end.reads.setdefault(bank, []).append(read.only(when))
                    end.writes.setdefault(bank, []).append(write.only(when))

    def borrowed(self, child: str, port: str, kind: str, address_bits: int, outputs: dict[str, Net]) -> Access:
        """An access that a called process makes through its ports."""
        nets = {"": self.module.net(f"{child}_{port}_{kind}", 1)}
        if address_bits:
            nets["_address"] = self.module.net(f"{child}_{port}_{kind}_address", address_bits)
        if kind == "write":
            nets["_data"] = self.module.net(f"{child}_{port}_{kind}_data", self.storage.array.width)
        outputs |= {f"{port}_{kind}{part}": net for part, net in nets.items()}
        return Access(nets[""], nets.get("_address", nets[""]), nets.get("_data"))

    # ---- hardware ----

    def finish(self) -> None:
        external = self.storage.array.external
        if self.storage.kind is Kind.REGISTERS:
            for number, net in enumerate(self.elements):
                self.register(net, self.writes.get(number, []), external)
        elif self.storage.array.two_ports:
            for bank in range(self.storage.factor):
                self.memory_with_two_ports(bank)
        elif self.storage.kind is Kind.RAM:
            for bank, net in enumerate(self.outputs):
                self.memory(bank, net, external)

    def register(self, net: Net, writes: list[Access], external: bool) -> None:
        cases = [(access.enable, access.data) for access in reversed(writes) if access.data is not None]
        data = choose_first(cases) if cases else literal(net.width, 0)
        enable = any_of([enable for enable, _ in cases])
        if external:
            self.module.assign(self.module.output(f"{net.name}_write", 1), enable)
            self.module.assign(self.module.output(f"{net.name}_write_data", net.width), data)
        elif cases:
            self.module.register(net, data, enable)
        else:
            self.module.assign(net, data)

    def memory(self, bank: int, net: Net, external: bool) -> None:
        storage, array = self.storage, self.storage.array
        reads, writes = self.reads.get(bank, []), self.writes.get(bank, [])
        nothing = literal(storage.address_bits, 0)
        stored = [(access.enable, access.data) for access in writes if access.data is not None]
        paths: dict[str, Term] = {
            "write": any_of([access.enable for access in writes]),
            "write_address": choose_first([(a.enable, a.address) for a in writes]) if writes else nothing,
            "write_data": choose_first(stored) if stored else literal(array.width, 0),
            "read": any_of([access.enable for access in reads]),
            "read_address": choose_first([(a.enable, a.address) for a in reads]) if reads else nothing,
        }
        if external:
            for name, term in paths.items():
                self.module.assign(self.module.output(f"{array.name}_bank{bank}_{name}", term.width), term)
            return
        self.instance("openhls_ram", bank, paths, {"read_data": net})

    def memory_with_two_ports(self, bank: int) -> None:
        storage = self.storage
        paths: dict[str, Term] = {}
        for port in (0, 1):
            place = bank + port * storage.factor
            reads, writes = self.reads.get(place, []), self.writes.get(place, [])
            addresses = [(access.enable, access.address) for access in (*writes, *reads)]
            stored = [(access.enable, access.data) for access in writes if access.data is not None]
            paths |= {
                f"write_{port}": any_of([access.enable for access in writes]),
                f"read_{port}": any_of([access.enable for access in reads]),
                f"address_{port}": choose_first(addresses) if addresses else literal(storage.address_bits, 0),
                f"write_data_{port}": choose_first(stored) if stored else literal(storage.array.width, 0),
            }
        outputs = {f"read_data_{port}": self.outputs[bank + port * storage.factor] for port in (0, 1)}
        self.instance("openhls_ram_two_ports", bank, paths, outputs)

    def instance(self, kind: str, bank: int, inputs: dict[str, Term], outputs: dict[str, Net]) -> None:
        storage, array = self.storage, self.storage.array
        self.module.instance(
            kind,
            f"{array.name}_bank{bank}",
            inputs,
            outputs,
            f"{array.name}: {array.location}",
            WIDTH=array.width,
            LENGTH=storage.words,
            ADDRESS=storage.address_bits,
            RAM_STYLE=storage.ram_style,
        )
