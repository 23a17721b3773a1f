# SPDX-License-Identifier: Apache-2.0
"""The instructions that our passes leave; any other one is an error with the C++ line."""

from __future__ import annotations

import re

from openhls.errors import Unsupported
from openhls.frontend.llvm.module import Instruction
from openhls.frontend.llvm.tokens import Cursor, clean
from openhls.frontend.types import Int, Other, Pointer, Struct, Type, Void

_BINARY = frozenset(["add", "sub", "mul", "udiv", "sdiv", "urem", "srem", "shl", "lshr", "ashr", "and", "or", "xor"])
_CASTS = frozenset(["zext", "sext", "trunc", "bitcast", "ptrtoint", "inttoptr"])
_FLAGS = frozenset(
    ["nuw", "nsw", "exact", "disjoint", "nneg", "samesign", "inbounds", "nusw", "tail", "musttail", "notail"]
)


class FloatingPoint(Unsupported):
    """Arithmetic of floating point. What constants alone give may be computed at compile time."""


def read_instruction(it: Instruction, cursor: Cursor) -> None:
    """Fills in all but name and place. Raises Unsupported for an instruction outside the subset."""
    while cursor.accept("tail", "musttail", "notail"):
        pass
    it.opcode = cursor.next()
    if it.opcode == "icmp":
        cursor.accept("samesign")
        it.flag = cursor.next()
    elif it.opcode in ("load", "store"):
        it.flag = "volatile" if cursor.accept("volatile") else ""
    elif it.opcode != "call":
        flags = set()
        while cursor.peek() in _FLAGS:
            flags.add(cursor.next())
        it.flag = frozenset(flags)
    if it.opcode in _READERS:
        _READERS[it.opcode](it, cursor)
    elif it.opcode in _BINARY or it.opcode == "icmp":
        _operands(it, cursor, cursor.type())
        it.type = Int(1) if it.opcode == "icmp" else it.types[0]
    elif it.opcode in _CASTS:
        _typed(it, cursor)
        cursor.expect("to")
        it.type = cursor.type()
    elif re.match(r"f(add|sub|mul|div|rem|neg|cmp|p)|[us]itofp", it.opcode):
        raise FloatingPoint(it.location, "floating point arithmetic", "use integers (ap_int, ap_uint) instead")
    elif it.opcode != "unreachable":
        raise Unsupported(it.location, f"it needs the instruction {it.opcode}", "keep to integers and streams")


def _operands(it: Instruction, cursor: Cursor, of: Type) -> None:
    """Values of one type, separated by commas."""
    while True:
        it.operands.append(cursor.value(of))
        it.types.append(of)
        if not cursor.accept(","):
            return


def _typed(it: Instruction, cursor: Cursor) -> None:
    """One `type value`."""
    it.types.append(cursor.type())
    it.operands.append(cursor.value(it.types[-1]))


def _read_select(it: Instruction, cursor: Cursor) -> None:
    for _ in range(3):
        _typed(it, cursor)
        cursor.accept(",")
    it.type = it.types[1]


def _read_freeze(it: Instruction, cursor: Cursor) -> None:
    _typed(it, cursor)
    it.type = it.types[0]


def _read_phi(it: Instruction, cursor: Cursor) -> None:
    it.type = cursor.type()
    blocks = []
    while cursor.accept("["):
        it.operands.append(cursor.value(it.type))
        it.types.append(it.type)
        cursor.expect(",")
        blocks.append(clean(cursor.next()))
        cursor.expect("]")
        cursor.accept(",")
    it.flag = blocks


def _read_br(it: Instruction, cursor: Cursor) -> None:
    if cursor.accept("i1"):
        it.operands.append(cursor.value(Int(1)))
        it.types.append(Int(1))
        cursor.expect(",")
    targets = []
    while cursor.accept("label"):
        targets.append(clean(cursor.next()))
        cursor.accept(",")
    it.flag = targets


def _read_switch(it: Instruction, cursor: Cursor) -> None:
    _typed(it, cursor)
    cursor.expect(",")
    cursor.expect("label")
    targets = [clean(cursor.next())]
    cursor.expect("[")
    while not cursor.accept("]"):
        _typed(it, cursor)
        cursor.expect(",")
        cursor.expect("label")
        targets.append(clean(cursor.next()))
    it.flag = targets


def _read_ret(it: Instruction, cursor: Cursor) -> None:
    of = cursor.type()
    if not isinstance(of, Void):
        it.types.append(of)
        it.operands.append(cursor.value(of))


def _read_alloca(it: Instruction, cursor: Cursor) -> None:
    it.flag = cursor.type()
    it.type = Pointer()


def _read_load(it: Instruction, cursor: Cursor) -> None:
    it.type = cursor.type()
    cursor.expect(",")
    _typed(it, cursor)


def _read_store(it: Instruction, cursor: Cursor) -> None:
    _typed(it, cursor)
    cursor.expect(",")
    _typed(it, cursor)


def _read_getelementptr(it: Instruction, cursor: Cursor) -> None:
    it.flag = cursor.type()
    it.type = Pointer()
    while cursor.accept(","):
        _typed(it, cursor)


def _read_extractvalue(it: Instruction, cursor: Cursor) -> None:
    _typed(it, cursor)
    cursor.expect(",")
    it.flag = int(cursor.next())
    of = it.types[0]
    it.type = of.fields[it.flag] if isinstance(of, Struct) else Other("aggregate")


def _read_call(it: Instruction, cursor: Cursor) -> None:
    while cursor.accept("noundef", "zeroext", "signext", "nonnull", "noalias", "range", "dereferenceable"):
        cursor.skip_parentheses()
    it.type = cursor.type()
    cursor.skip_parentheses()
    if cursor.accept("asm"):
        while not cursor.peek().startswith('"'):
            cursor.next()
        it.flag = "asm:" + cursor.next().strip('"')
        cursor.expect(",")
        cursor.next()  # constraints
    else:
        callee = cursor.next()
        it.flag = clean(callee)
        if not callee.startswith("@"):
            raise Unsupported(it.location, "a call through a pointer", "call the function by its name")
    cursor.expect("(")
    while not cursor.accept(")"):
        it.types.append(cursor.type())
        cursor.attributes()
        it.operands.append(cursor.value(it.types[-1]))
        cursor.accept(",")


_READERS = {
    "select": _read_select,
    "freeze": _read_freeze,
    "phi": _read_phi,
    "br": _read_br,
    "switch": _read_switch,
    "ret": _read_ret,
    "alloca": _read_alloca,
    "load": _read_load,
    "store": _read_store,
    "getelementptr": _read_getelementptr,
    "extractvalue": _read_extractvalue,
    "call": _read_call,
}
