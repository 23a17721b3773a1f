# SPDX-License-Identifier: Apache-2.0
"""The pure instructions of LLVM, as operations."""

from __future__ import annotations

from collections.abc import Callable

from openhls.errors import Unsupported
from openhls.frontend.llvm.module import Instruction
from openhls.frontend.simplifier import Simplifier
from openhls.frontend.types import Int
from openhls.ir import TRUE, Const, Opcode, Operand
from openhls.names import cpp_name

_BINARY = {
    **{name: Opcode(name) for name in ("add", "sub", "mul", "udiv", "urem", "sdiv", "srem", "and", "or", "xor")},
    **{name: Opcode(name) for name in ("shl", "lshr", "ashr")},
}
_COMPARISONS: dict[str, tuple[Opcode, bool]] = {  # swapped?
    "eq": (Opcode.EQ, False),
    "ne": (Opcode.NE, False),
    "ult": (Opcode.ULT, False),
    "ule": (Opcode.ULE, False),
    "ugt": (Opcode.ULT, True),
    "uge": (Opcode.ULE, True),
    "slt": (Opcode.SLT, False),
    "sle": (Opcode.SLE, False),
    "sgt": (Opcode.SLT, True),
    "sge": (Opcode.SLE, True),
}
_INTRINSICS: dict[str, Callable[[Simplifier, list[Operand]], Operand]] = {}


def lower_value(builder: Simplifier, it: Instruction, operands: list[Operand]) -> Operand:
    """The result of an instruction without an effect."""
    if not isinstance(it.type, Int):
        raise Unsupported(
            it.location, "a value that is not an integer", "use integers (ap_int, ap_uint) instead of floats"
        )
    width, hint = it.type.width, it.name
    if it.opcode in _BINARY:
        return builder.make(_BINARY[it.opcode], width, *operands, hint=hint)
    match it.opcode:
        case "icmp":
            opcode, swapped = _COMPARISONS[str(it.flag)]
            return builder.make(opcode, 1, *(reversed(operands) if swapped else operands), hint=hint)
        case "select":
            return builder.make(Opcode.SELECT, width, *operands, hint=hint)
        case "zext":
            return builder.make(Opcode.ZEXT, width, operands[0], hint=hint)
        case "sext":
            return builder.make(Opcode.SEXT, width, operands[0], hint=hint)
        case "trunc":
            return builder.make(Opcode.EXTRACT, width, operands[0], hint=hint)
        case "freeze" | "bitcast":
            return operands[0]
        case "call":
            return _intrinsic(builder, it, operands)
    raise Unsupported(it.location, f"it needs the instruction {it.opcode}", "keep to integers, arrays and streams")


def _intrinsic(builder: Simplifier, it: Instruction, operands: list[Operand]) -> Operand:
    name = str(it.flag).removeprefix("llvm.").rsplit(".i", 1)[0]
    if not str(it.flag).startswith("llvm.") or name not in _INTRINSICS:
        raise Unsupported(
            it.location,
            f"a call of {cpp_name(str(it.flag))}, which has no body here",
            "give its file, too, or use operators",
        )
    return _INTRINSICS[name](builder, operands)


def _intrinsics(*names: str) -> Callable[[Callable[..., Operand]], Callable[..., Operand]]:
    def register(function: Callable[..., Operand]) -> Callable[..., Operand]:
        for name in names:
            _INTRINSICS[name] = lambda builder, operands, name=name: function(builder, name, *operands)  # type: ignore[misc]
        return function

    return register


@_intrinsics("smin", "smax", "umin", "umax")
def _extreme(builder: Simplifier, name: str, a: Operand, b: Operand) -> Operand:
    less = builder.make(Opcode.SLT if name[0] == "s" else Opcode.ULT, 1, a, b)
    return builder.make(Opcode.SELECT, a.width, less, *((a, b) if name.endswith("min") else (b, a)))


@_intrinsics("abs")
def _absolute(builder: Simplifier, name: str, a: Operand, poison: Operand) -> Operand:
    negative = builder.make(Opcode.SLT, 1, a, Const(a.width, 0))
    return builder.make(Opcode.SELECT, a.width, negative, builder.make(Opcode.SUB, a.width, Const(a.width, 0), a), a)


@_intrinsics("ctlz", "cttz", "ctpop")
def _count(builder: Simplifier, name: str, a: Operand, poison: Operand = TRUE) -> Operand:
    opcode = {"ctlz": Opcode.CLZ, "cttz": Opcode.CTZ, "ctpop": Opcode.POPCOUNT}[name]
    return builder.make(opcode, a.width, a)


@_intrinsics("usub.sat", "uadd.sat")
def _saturate(builder: Simplifier, name: str, a: Operand, b: Operand) -> Operand:
    if name == "usub.sat":
        less = builder.make(Opcode.ULT, 1, a, b)
        return builder.make(Opcode.SELECT, a.width, less, Const(a.width, 0), builder.make(Opcode.SUB, a.width, a, b))
    total = builder.make(Opcode.ADD, a.width, a, b)
    wrapped = builder.make(Opcode.ULT, 1, total, a)
    return builder.make(Opcode.SELECT, a.width, wrapped, Const(a.width, (1 << a.width) - 1), total)


@_intrinsics("ssub.sat", "sadd.sat")
def _saturate_signed(builder: Simplifier, name: str, a: Operand, b: Operand) -> Operand:
    width = a.width
    wide = [builder.make(Opcode.SEXT, width + 1, each) for each in (a, b)]
    total = builder.make(Opcode.ADD if name == "sadd.sat" else Opcode.SUB, width + 1, *wide)
    signs = [builder.make(Opcode.EXTRACT, 1, total, low=low) for low in (width, width - 1)]
    most = Const(width, (1 << (width - 1)) - 1)
    least = Const(width, 1 << (width - 1))
    limit = builder.make(Opcode.SELECT, width, signs[0], least, most)
    overflow = builder.make(Opcode.XOR, 1, *signs)
    return builder.make(Opcode.SELECT, width, overflow, limit, builder.make(Opcode.EXTRACT, width, total))


@_intrinsics("fshl", "fshr")
def _funnel(builder: Simplifier, name: str, a: Operand, b: Operand, amount: Operand) -> Operand:
    width = a.width
    both = builder.make(Opcode.CONCAT, 2 * width, a, b)
    least = builder.make(Opcode.UREM, width, amount, Const(width, width)) if width & (width - 1) else amount
    if width & (width - 1) == 0:
        least = builder.make(Opcode.AND, width, amount, Const(width, width - 1))
    wide = builder.make(Opcode.ZEXT, 2 * width, least)
    if name == "fshl":
        return builder.make(Opcode.EXTRACT, width, builder.make(Opcode.SHL, 2 * width, both, wide), low=width)
    return builder.make(Opcode.EXTRACT, width, builder.make(Opcode.LSHR, 2 * width, both, wide))


@_intrinsics("bswap", "bitreverse")
def _reorder(builder: Simplifier, name: str, a: Operand) -> Operand:
    step = 8 if name == "bswap" else 1
    parts = [builder.make(Opcode.EXTRACT, step, a, low=low) for low in range(0, a.width, step)]
    return builder.make(Opcode.CONCAT, a.width, *parts)
