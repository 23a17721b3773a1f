# SPDX-License-Identifier: Apache-2.0
"""Hardware as data: modules of nets, each with exactly one driver of exactly its width.

A net is driven by an expression, a register, an instance or an input port. A second driver, a width that does not fit,
a net without a driver and a combinational loop are errors here, before any other tool reads the text.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from openhls.ir import BINARY, COMPARISONS, UNKNOWN, Location, Opcode
from openhls.names import KEYWORDS


class NetlistError(Exception):
    """A netlist that is no hardware: a fault of the compiler, never of its input."""


@dataclass(frozen=True)
class Net:
    """A named wire or register output of `width` bits."""

    name: str
    width: int


@dataclass(frozen=True)
class Literal:
    """A constant pattern."""

    width: int
    bits: int


@dataclass(frozen=True)
class Expression:
    """`opcode` of openhls.ir on expressions; EXTRACT takes a net only."""

    opcode: Opcode
    arguments: tuple[Term, ...]
    width: int
    low: int = 0


Term = Net | Literal | Expression
RESET = Net("rst", 1)
ONE = Literal(1, 1)
ZERO = Literal(1, 0)


@dataclass(frozen=True)
class Assign:
    """A net that follows an expression."""

    value: Term


@dataclass(frozen=True)
class Register:
    """A net that takes `next` at a clock edge with `enable`; with `reset`, it starts as that pattern."""

    next: Term
    enable: Term = ONE
    reset: int | None = None


@dataclass(frozen=True)
class Table:
    """A net that is the element `index` of constants; beyond them, any value."""

    index: Net
    values: tuple[int, ...]


@dataclass(frozen=True)
class Instance:
    """A module in a module: parameters, and its ports with what they are connected to."""

    module: str
    name: str
    parameters: tuple[tuple[str, int | str], ...]
    inputs: tuple[tuple[str, Term], ...]
    outputs: tuple[tuple[str, Net], ...]
    comment: str = ""


@dataclass(frozen=True)
class Check:
    """What has to hold at every clock edge, for simulation only."""

    holds: Term
    message: str


Driver = Assign | Register | Table | Instance | None  # None: an input port


@dataclass
class Module:
    """A module under construction. Net names are made unique and legal here."""

    name: str
    comment: str = ""
    clock: str = "clk"
    reset: str = "rst"  # active low if it ends in _n; inside it is `rst`, active high
    inputs: list[Net] = field(default_factory=list)
    outputs: list[Net] = field(default_factory=list)
    drivers: dict[Net, Driver] = field(default_factory=dict)
    instances: list[Instance] = field(default_factory=list)
    checks: list[Check] = field(default_factory=list)
    notes: dict[Net, str] = field(default_factory=dict)
    names: set[str] = field(default_factory=lambda: {"clk", "rst", "ap_clk", "ap_rst_n"})

    def net(self, name: str, width: int, location: Location = UNKNOWN) -> Net:
        """A new net, not driven yet, with a name as close to `name` as possible."""
        if width < 1:
            raise NetlistError(f"{self.name}: net {name} of {width} bits")
        net = Net(self.unique(name), width)
        if location != UNKNOWN:
            self.notes[net] = str(location)
        return net

    def unique(self, name: str) -> str:
        """A legal identifier that nothing in this module has yet."""
        legal = "".join(c if c.isascii() and (c.isalnum() or c == "_") else "_" for c in name)
        if not legal or legal[0].isdigit() or legal in KEYWORDS:
            legal = f"n_{legal}"
        chosen, number = legal, 1
        while chosen in self.names:
            number += 1
            chosen = f"{legal}_{number}"
        self.names.add(chosen)
        return chosen

    def input(self, name: str, width: int) -> Net:
        net = self.net(name, width)
        if net.name != name:
            raise NetlistError(f"{self.name}: port {name} cannot keep its name")
        self.inputs.append(net)
        self.drive(net, None)
        return net

    def output(self, name: str, width: int) -> Net:
        """An output port; it is driven as any other net."""
        net = self.net(name, width)
        if net.name != name:
            raise NetlistError(f"{self.name}: port {name} cannot keep its name")
        self.outputs.append(net)
        return net

    def drive(self, net: Net, driver: Driver) -> None:
        if net in self.drivers:
            raise NetlistError(f"{self.name}: {net.name} has two drivers")
        self.drivers[net] = driver

    def assign(self, net: Net, value: Term) -> Net:
        same_width(self.name, net, value)
        self.drive(net, Assign(value))
        return net

    def wire(self, name: str, value: Term, location: Location = UNKNOWN) -> Net:
        """A new net that follows `value`."""
        return self.assign(self.net(name, value.width, location), value)

    def register(self, net: Net, following: Term, enable: Term = ONE, reset: int | None = None) -> Net:
        same_width(self.name, net, following)
        if enable.width != 1:
            raise NetlistError(f"{self.name}: enable of {net.name} has {enable.width} bits")
        self.drive(net, Register(following, enable, reset))
        return net

    def instance(
        self,
        module: str,
        name: str,
        inputs: dict[str, Term],
        outputs: dict[str, Net],
        comment: str = "",
        **parameters: int | str,
    ) -> None:
        cell = Instance(
            module,
            self.unique(name),
            tuple(parameters.items()),
            tuple(inputs.items()),
            tuple(outputs.items()),
            comment,
        )
        self.instances.append(cell)
        for net in outputs.values():
            self.drive(net, cell)

    def check(self) -> None:
        """Raise NetlistError for a net without a driver or a combinational loop."""
        for net in [*self.outputs, *self.used()]:
            if net not in self.drivers and net != RESET:
                raise NetlistError(f"{self.name}: {net.name} has no driver")
        combinational_order(self)

    def used(self) -> Iterator[Net]:
        """All nets that something reads."""
        for driver in self.drivers.values():
            for term in terms_of(driver):
                yield from nets_of(term)
        for cell in self.instances:
            for _, term in cell.inputs:
                yield from nets_of(term)
        for check in self.checks:
            yield from nets_of(check.holds)


def same_width(module: str, net: Net, value: Term) -> None:
    if net.width != value.width:
        raise NetlistError(f"{module}: {net.name} has {net.width} bits, its value {value.width}")


def terms_of(driver: Driver) -> tuple[Term, ...]:
    """What a driver of one net reads."""
    match driver:
        case Assign(value):
            return (value,)
        case Register(following, enable, _):
            return (following, enable)
        case Table(index, _):
            return (index,)
        case _:
            return ()


def nets_of(term: Term) -> Iterator[Net]:
    """The nets in an expression."""
    if isinstance(term, Net):
        yield term
    elif isinstance(term, Expression):
        for argument in term.arguments:
            yield from nets_of(argument)


def combinational_order(module: Module) -> list[Net]:
    """Assigned nets, each after those it reads. Raises NetlistError for a loop, naming the nets on it."""
    order: list[Net] = []
    state: dict[Net, int] = {}  # 1: being visited, 2: done
    for root in module.drivers:
        path = [(root, iter(fan_in(module, root)))]
        if state.get(root) == 2:
            continue
        state[root] = 1
        while path:
            net, rest = path[-1]
            for source in rest:
                if state.get(source) == 1:
                    loop = [n.name for n, _ in path]
                    raise NetlistError(f"{module.name}: combinational loop {' <- '.join([*loop, source.name])}")
                if state.get(source) is None:
                    state[source] = 1
                    path.append((source, iter(fan_in(module, source))))
                    break
            else:
                state[net] = 2
                order.append(net)
                path.pop()
    return order


def fan_in(module: Module, net: Net) -> list[Net]:
    driver = module.drivers.get(net)
    if isinstance(driver, Table):
        return [driver.index]
    return list(nets_of(driver.value)) if isinstance(driver, Assign) else []


# ---- expressions; they fold constants, so that the text shows what is there ----


def operate(opcode: Opcode, *arguments: Term, width: int = 0, low: int = 0) -> Expression:
    """An expression of an operation of openhls.ir, its widths checked. `width` is for ZEXT, SEXT and EXTRACT."""
    widths = [argument.width for argument in arguments]
    if opcode in BINARY or opcode in COMPARISONS:
        ok = widths[0] == widths[1]
        width = 1 if opcode in COMPARISONS else widths[0]
    elif opcode is Opcode.SELECT:
        ok = widths[0] == 1 and widths[1] == widths[2]
        width = widths[1]
    elif opcode in (Opcode.ZEXT, Opcode.SEXT):
        ok = width > widths[0]
    elif opcode is Opcode.EXTRACT:
        ok = isinstance(arguments[0], Net) and width >= 1 and low + width <= widths[0]
    elif opcode is Opcode.CONCAT:
        ok, width = True, sum(widths)
    else:
        ok = False
    if not ok:
        raise NetlistError(f"{opcode.value} of widths {widths} to {width}")
    return Expression(opcode, tuple(arguments), width, low)


def literal(width: int, bits: int) -> Literal:
    return Literal(width, bits & ((1 << width) - 1))


def all_of(terms: Iterable[Term]) -> Term:
    """The conjunction of bits; of none, 1."""
    kept = list(dict.fromkeys(term for term in terms if term != ONE))
    if ZERO in kept:
        return ZERO
    return balanced(Opcode.AND, kept) if kept else ONE


def any_of(terms: Iterable[Term]) -> Term:
    """The disjunction of bits; of none, 0."""
    kept = list(dict.fromkeys(term for term in terms if term != ZERO))
    if ONE in kept:
        return ONE
    return balanced(Opcode.OR, kept) if kept else ZERO


def balanced(opcode: Opcode, terms: list[Term]) -> Term:
    """`opcode` over one or more terms, as a tree of the least depth."""
    if len(terms) == 1:
        return terms[0]
    half = len(terms) // 2
    return operate(opcode, balanced(opcode, terms[:half]), balanced(opcode, terms[half:]))


def negate(term: Term) -> Term:
    if isinstance(term, Literal):
        return literal(1, 1 - term.bits)
    if isinstance(term, Expression) and term.opcode is Opcode.XOR and term.arguments[1] == ONE:
        return term.arguments[0]
    return operate(Opcode.XOR, term, ONE)


def choose(condition: Term, then: Term, otherwise: Term) -> Term:
    if isinstance(condition, Literal):
        return then if condition.bits else otherwise
    return then if then == otherwise else operate(Opcode.SELECT, condition, then, otherwise)


def choose_first(cases: list[tuple[Term, Term]]) -> Term:
    """The value of the first case whose condition is 1; where none is, the last one's."""
    value = cases[-1][1]
    for condition, candidate in reversed(cases[:-1]):
        value = choose(condition, candidate, value)
    return value


def extend(term: Term, width: int) -> Term:
    """Zero-extended to `width`, which is not smaller."""
    if isinstance(term, Literal):
        return literal(width, term.bits)
    return term if term.width == width else operate(Opcode.ZEXT, term, width=width)


def equals(a: Term, b: Term) -> Term:
    return operate(Opcode.EQ, a, b)


def add(a: Term, b: Term) -> Term:
    return operate(Opcode.ADD, a, b)
