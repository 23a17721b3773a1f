# SPDX-License-Identifier: Apache-2.0
"""SystemVerilog text of netlists."""

from __future__ import annotations

from openhls.emit.lint import waived
from openhls.emit.netlist import (
    ONE,
    Assign,
    Driver,
    Expression,
    Instance,
    Literal,
    Module,
    Net,
    NetlistError,
    Register,
    Table,
    Term,
    combinational_order,
)
from openhls.ir import Opcode

GROUP = 32  # registers of an always_ff: Yosys takes time quadratic in it

INFIX = {
    Opcode.ADD: "+",
    Opcode.SUB: "-",
    Opcode.AND: "&",
    Opcode.OR: "|",
    Opcode.XOR: "^",
    Opcode.SHL: "<<",
    Opcode.LSHR: ">>",
    Opcode.EQ: "==",
    Opcode.NE: "!=",
    Opcode.ULT: "<",
    Opcode.ULE: "<=",
}


def module_text(module: Module) -> str:
    """The text of a checked module."""
    module.check()
    lines = [f"// {line}".rstrip() for line in module.comment.splitlines()]
    lines += [f"module {module.name} (", *port_lines(module), ");"]
    ports = {*module.inputs, *module.outputs}
    nets = [net for net in module.drivers if net not in ports]
    lines += waived(module, [(net, f"  {declaration(net)};{note(module, net)}") for net in nets])
    if (module.clock, module.reset) != ("clk", "rst"):
        lines += ["  logic clk, rst;", f"  assign clk = {module.clock};", f"  assign rst = !{module.reset};"]
    lines.append("")
    for net in combinational_order(module):
        lines += logic_lines(net, module.drivers[net])
    for cell in module.instances:
        lines += ["", *instance_lines(cell)]
    lines += register_lines(module) + check_lines(module)
    return "\n".join([*lines, "endmodule", ""])


def port_lines(module: Module) -> list[str]:
    ports = [(net, f"  input {declaration(net)},") for net in module.inputs]
    ports += [(net, f"  output {declaration(net)},") for net in module.outputs]
    if ports:
        ports[-1] = ports[-1][0], ports[-1][1].removesuffix(",")
    last = "," if ports else ""
    return [f"  input logic {module.clock},", f"  input logic {module.reset}{last}", *waived(module, ports)]


def declaration(net: Net) -> str:
    return f"logic [{net.width - 1}:0] {net.name}" if net.width > 1 else f"logic {net.name}"


def note(module: Module, net: Net) -> str:
    return f"  // {module.notes[net]}" if net in module.notes else ""


def logic_lines(net: Net, driver: Driver) -> list[str]:
    """A net that follows others without a register."""
    if isinstance(driver, Assign):
        return [f"  assign {net.name} = {text(driver.value)};"]
    if isinstance(driver, Table):
        return table_lines(net, driver)
    return []


def table_lines(net: Net, table: Table) -> list[str]:
    lines = ["  always_comb", f"    case ({table.index.name})"]
    for number, value in enumerate(table.values):
        lines.append(f"      {table.index.width}'d{number}: {net.name} = {literal_text(net.width, value)};")
    return [*lines, f"      default: {net.name} = '0;", "    endcase"]


def instance_lines(cell: Instance) -> list[str]:
    """A library cell or a process; clk and rst go everywhere by name."""
    lines = [f"  // {cell.comment}"] if cell.comment else []
    parameters = ", ".join(f".{name}({quoted(value)})" for name, value in cell.parameters)
    lines.append(f"  {cell.module} {f'#({parameters}) ' if parameters else ''}{cell.name} (")
    named = {name for name, _ in cell.inputs}
    ports = [f"    .{name}" for name in ("clk", "rst") if name not in named and takes(cell, name)]
    ports += [f"    .{name}({text(term)})" for name, term in cell.inputs]
    ports += [f"    .{name}({net.name})" for name, net in cell.outputs]
    return [*lines, ",\n".join(ports), "  );"]


def takes(cell: Instance, port: str) -> bool:
    """Memories have no reset; everything else has both."""
    return port == "clk" or not cell.module.startswith("openhls_ram")


def quoted(value: int | str) -> str:
    return f'"{value}"' if isinstance(value, str) else str(value)


def register_lines(module: Module) -> list[str]:
    """Registers of one enable share an always_ff, those with a reset first."""
    with_reset: dict[Term, list[tuple[Net, Register]]] = {}
    without: dict[Term, list[tuple[Net, Register]]] = {}
    for net, driver in module.drivers.items():
        if isinstance(driver, Register):
            (without if driver.reset is None else with_reset).setdefault(driver.enable, []).append((net, driver))
    lines: list[str] = []
    for enable, group in with_reset.items():
        resets = [f"      {net.name} <= {literal_text(net.width, register.reset or 0)};" for net, register in group]
        guard = "else begin" if enable == ONE else f"else if ({text(enable)}) begin"
        lines += ["", "  always_ff @(posedge clk)", "    if (rst) begin", *resets, f"    end {guard}"]
        lines += [f"      {net.name} <= {text(register.next)};" for net, register in group] + ["    end"]
    for enable, group in without.items():
        guard = "" if enable == ONE else f"if ({text(enable)}) "
        for first in range(0, len(group), GROUP):
            lines += ["", f"  always_ff @(posedge clk) {guard}begin"]
            lines += [f"    {net.name} <= {text(register.next)};" for net, register in group[first : first + GROUP]]
            lines.append("  end")
    return lines


def check_lines(module: Module) -> list[str]:
    """Checks count from the end of the reset on; synthesis does not see them."""
    if not module.checks:
        return []
    lines = ["", "`ifndef SYNTHESIS", "  always_ff @(posedge clk) begin"]
    lines += [f"    if (!rst && !{text(check.holds)}) $fatal(1, {quoted(check.message)});" for check in module.checks]
    return [*lines, "  end", "`endif"]


def literal_text(width: int, bits: int) -> str:
    return f"{width}'d{bits}" if bits < 10 else f"{width}'h{bits:x}"


def text(term: Term) -> str:
    """An expression, in parentheses unless it is a name, a constant or a concatenation."""
    match term:
        case Net(name, _):
            return name
        case Literal(width, bits):
            return literal_text(width, bits)
        case Expression():
            return operation_text(term)


def operation_text(term: Expression) -> str:
    """Every operand has the width of its place, so no rule of the language changes a width."""
    operands = [text(argument) for argument in term.arguments]
    match term.opcode:
        case Opcode.XOR if term.arguments[1] == ONE:
            return f"!{operands[0]}"
        case opcode if opcode in INFIX:
            return f"({operands[0]} {INFIX[opcode]} {operands[1]})"
        case Opcode.MUL:  # signed, as a multiplier in a DSP is: then synthesis sees what only extends an operand
            return f"($signed({operands[0]}) * $signed({operands[1]}))"
        case Opcode.SLT | Opcode.SLE:
            sign = "<" if term.opcode is Opcode.SLT else "<="
            return f"($signed({operands[0]}) {sign} $signed({operands[1]}))"
        case Opcode.ASHR:
            return f"$unsigned($signed({operands[0]}) >>> {operands[1]})"
        case Opcode.SELECT:
            return f"({operands[0]} ? {operands[1]} : {operands[2]})"
        case Opcode.ZEXT:
            return f"{{{literal_text(term.width - term.arguments[0].width, 0)}, {operands[0]}}}"
        case Opcode.SEXT:
            return sign_extension(term)
        case Opcode.EXTRACT:
            return part(term.arguments[0], term.low, term.width)
        case Opcode.CONCAT:
            return f"{{{', '.join(operands)}}}"
    raise NetlistError(f"{term.opcode.value} has no text")


def sign_extension(term: Expression) -> str:
    source = term.arguments[0]
    if not isinstance(source, Net):
        raise NetlistError("sext of an expression")
    sign = part(source, source.width - 1, 1)
    return f"{{{{{term.width - source.width}{{{sign}}}}}, {source.name}}}"


def part(source: Term, low: int, width: int) -> str:
    if not isinstance(source, Net):
        raise NetlistError("extract of an expression")
    if width == source.width:
        return source.name
    return f"{source.name}[{low}]" if width == 1 else f"{source.name}[{low + width - 1}:{low}]"
