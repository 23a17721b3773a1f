# SPDX-License-Identifier: Apache-2.0
"""What is read of a module of LLVM IR: functions, constants, and the places of the C++ they come from."""

from __future__ import annotations

from dataclasses import dataclass, field

from openhls.frontend.types import Type
from openhls.ir import UNKNOWN, Channels, Field, Life, Location


@dataclass(frozen=True)
class Local:
    """A value of the function: an argument or the result of an instruction."""

    name: str


@dataclass(frozen=True)
class Number:
    """A constant; undefined values are 0."""

    width: int
    bits: int


@dataclass(frozen=True)
class Global:
    """The address of a constant table or of a function, plus bytes."""

    name: str
    offset: int = 0


@dataclass(frozen=True)
class Null:
    """A null pointer or an aggregate without a value."""


Operand = Local | Number | Global | Null


@dataclass
class Instruction:
    """One instruction. `flag` holds what its kind needs besides operands:

    icmp: the predicate; call: the callee; phi: names of the blocks the operands come from; br, switch: target blocks
    (switch: the default first); getelementptr: the source type; alloca: the type; load, store: "volatile" or "";
    extractvalue: the index; arithmetic and casts: nuw, nsw, nneg and the like, a frozenset.
    """

    opcode: str
    name: str
    type: Type
    operands: list[Operand]
    types: list[Type]
    flag: object = ""
    location: Location = UNKNOWN
    loop: int = -1  # node of the loop's metadata, on the branch that closes it


@dataclass
class Block:
    """A basic block."""

    name: str
    instructions: list[Instruction] = field(default_factory=list)


@dataclass
class Variable:
    """A C++ variable that lives at an address: its name and where it is declared."""

    name: str
    location: Location
    argument: int = 0
    number: tuple[int, bool] | None = None  # width and sign, if it is an integer


@dataclass
class Static:
    """A global or static variable that keeps what is stored to it: its first contents, type and place."""

    data: bytes
    type: Type
    variable: Variable


@dataclass
class Function:
    """A function with a body. `cpp_name` has neither scopes nor template arguments, `full_name` has both."""

    name: str
    cpp_name: str
    full_name: str
    location: Location
    result: Type
    parameters: list[tuple[str, Type]]
    blocks: dict[str, Block] = field(default_factory=dict)
    variables: dict[str, list[Variable]] = field(default_factory=dict)  # by the name of an address
    value_names: dict[str, str] = field(default_factory=dict)  # C++ variables by the names of values that they hold
    by_value: set[str] = field(default_factory=set)  # pointer parameters to a copy for this function
    returned: str = ""  # the parameter that points to the result
    declared_result: tuple[int, bool] | None = None  # width and sign of an integer result
    declared: dict[str, str] = field(default_factory=dict)  # C++ types of the parameters
    pointees: dict[str, Type] = field(default_factory=dict)  # what pointer and reference parameters lead to
    channels: dict[str, Channels] = field(default_factory=dict)  # of stream parameters with side channels
    layouts: dict[str, tuple[Field, ...]] = field(default_factory=dict)  # of the structs that parameters lead to
    indexed: bool = False  # pointers that move have become indices
    statics: set[str] = field(default_factory=set)  # linker names of those that it or a function it calls uses
    task: Life | None = None  # it runs beside the top for ever, or while its region runs (frontend/tasks.py)


@dataclass
class Module:
    """All functions with a body, constant tables as (bytes, type), variables that keep their values, and the start of
    each loop."""

    functions: dict[str, Function] = field(default_factory=dict)
    tables: dict[str, tuple[bytes, Type]] = field(default_factory=dict)
    statics: dict[str, Static] = field(default_factory=dict)
    loop_starts: dict[int, tuple[str, int, int]] = field(default_factory=dict)
    warnings: list[tuple[Location, str]] = field(default_factory=list)
    hidden: str = "/dev/null"  # code of files that begin so counts as that of the line that calls it
