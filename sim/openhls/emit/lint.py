# SPDX-License-Identifier: Apache-2.0
"""What `verilator -Wall` would say about correct modules, and why it may be said: each waiver stands at its net."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from itertools import groupby

from openhls.emit.netlist import Expression, Module, Net, Term, terms_of
from openhls.ir import Opcode

# Words of C++ compilers and of SystemC that Verilator calls reserved. Arguments and pins keep their names.
_WORDS = """bit_vector const_iterator const_reference far huge interrupt near pascal type_info sc_clock sc_in sc_inout
sc_out sc_signal sensitive sensitive_neg sensitive_pos"""
RESERVED = frozenset(_WORDS.split())
_REASONS = {
    "": "",
    "UNUSEDSIGNAL": "Nothing looks at some bits of these; synthesis removes them.",
    "SYMRSVDWORD": "The C++, or the vendor's kernels, have this name.",
}


def waived(module: Module, declared: Iterable[tuple[Net, str]]) -> list[str]:
    """Lines that declare nets, with waivers and their reasons where nets need them."""
    unused = unused_nets(module)

    def waiver(entry: tuple[Net, str]) -> str:
        return "SYMRSVDWORD" if entry[0].name in RESERVED else "UNUSEDSIGNAL" if entry[0] in unused else ""

    lines: list[str] = []
    for message, entries in groupby(declared, waiver):
        texts = [text for _, text in entries]
        head = [f"  // {_REASONS[message]}", f"  // verilator lint_off {message}"] if message else []
        lines += [*head, *texts, *([f"  // verilator lint_on {message}"] if message else [])]
    return lines


def unused_nets(module: Module) -> set[Net]:
    """Nets with a bit that nothing reads."""
    seen: Counter[Net] = Counter()  # bits as a mask
    for output in module.outputs:
        seen[output] = (1 << output.width) - 1
    for driver in module.drivers.values():
        _look(seen, terms_of(driver))
    for cell in module.instances:
        _look(seen, (term for _, term in cell.inputs))
    _look(seen, (check.holds for check in module.checks))
    return {net for net in module.drivers if seen[net] != (1 << net.width) - 1}


def _look(seen: Counter[Net], terms: Iterable[Term]) -> None:
    pending = list(terms)
    while pending:
        term = pending.pop()
        if isinstance(term, Net):
            seen[term] |= (1 << term.width) - 1
        elif isinstance(term, Expression) and term.opcode is Opcode.EXTRACT and isinstance(term.arguments[0], Net):
            seen[term.arguments[0]] |= ((1 << term.width) - 1) << term.low
        elif isinstance(term, Expression):
            pending += term.arguments
