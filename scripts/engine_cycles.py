# SPDX-License-Identifier: Apache-2.0
"""Write sim/drive/engine/cycles.hpp: cycle formulas of attention, group_choice, attention_codes and ffn as C++.

    python scripts/engine_cycles.py [--check]

The drive's engine time is modelled with it. `--check` reports drift and writes nothing.
"""

from __future__ import annotations

import argparse
import ast
import json
import sys
import textwrap
import tomllib
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
MANIFESTS = ROOT / "bitstreams"
HEADER = ROOT / "sim/drive/engine/cycles.hpp"
VARIABLES = ("mode", "g", "d", "tokens", "inline_tokens", "r", "k_top", "digits")  # of attention


class Kernel(NamedTuple):
    """A kernel that states its cycles in its kernel.toml, with the names of its variables and its function in C++."""

    name: str
    variables: tuple[str, ...]
    struct: str
    function: str
    counts: str  # what it counts, as the comment says


KERNELS = (
    Kernel(
        "group_choice",
        ("g", "d", "tokens", "inline_tokens", "units"),
        "ChoiceVariables",
        "choice_cycles",
        "a choice of groups",
    ),
    Kernel(
        "attention_codes",
        ("mode", "bits", "g", "d", "tokens", "inline_tokens"),
        "CodeVariables",
        "code_cycles",
        "an attention job over codes",
    ),
    Kernel("ffn", ("hidden", "matrices", "neurons"), "FfnVariables", "ffn_cycles", "a call of ffn"),
)
OPERATORS: dict[type[ast.AST], str] = {
    ast.Add: "+",
    ast.Sub: "-",
    ast.Mult: "*",
    ast.Eq: "==",
    ast.Lt: "<",
    ast.LtE: "<=",
    ast.Gt: ">",
    ast.GtE: ">=",
    ast.And: "&&",
    ast.Or: "||",
}
TEMPLATE = """\
// SPDX-License-Identifier: Apache-2.0
// Generated from bitstreams/attention_g*.json and the kernel.toml of group_choice, attention_codes and ffn by
// scripts/engine_cycles.py.
#pragma once

#include <cstdint>

namespace kvdrive {{

// Variables of the formula, as hls/attention/kernel.toml explains them.
struct CycleVariables {{
  std::int64_t {variables};
}};

constexpr std::int64_t divide_up(std::int64_t a, std::int64_t b) {{ return (a + b - 1) / b; }}

// Cycles of an attention job: the iterations of its loops{fill}.
constexpr std::int64_t attention_cycles(const CycleVariables& job) {{
  const auto& [{variables}] = job;
{body}
}}

{kernels}
}}  // namespace kvdrive
"""
KERNEL = """\
// Variables of the formula, as hls/{name}/kernel.toml explains them.
struct {struct} {{
  std::int64_t {variables};
}};

// Cycles of {counts}.
constexpr std::int64_t {function}(const {struct}& job) {{
  const auto& [{variables}] = job;
{body}
}}
"""


def cpp(node: ast.expr) -> str:
    """An expression of counts >= 0 as C++. Raises ValueError for operations that formulas do not need."""
    match node:
        case ast.Constant(value=int() as value):
            return str(value)
        case ast.Name(id=name) if name in VARIABLES or any(name in kernel.variables for kernel in KERNELS):
            return name
        case ast.UnaryOp(
            op=ast.USub(),
            operand=ast.BinOp(left=ast.UnaryOp(op=ast.USub(), operand=dividend), op=ast.FloorDiv(), right=divisor),
        ):
            return f"divide_up({cpp(dividend)}, {cpp(divisor)})"
        case ast.BinOp(left=left, op=ast.FloorDiv(), right=right):
            return f"({cpp(left)} / {cpp(right)})"
        case ast.BinOp(left=left, op=op, right=right) if type(op) in OPERATORS:
            return f"({cpp(left)} {OPERATORS[type(op)]} {cpp(right)})"
        case ast.IfExp(test=test, body=body, orelse=orelse):
            return f"({cpp(test)} ? {cpp(body)} : {cpp(orelse)})"
        case ast.BoolOp(op=op, values=values):
            return "(" + f" {OPERATORS[type(op)]} ".join(map(cpp, values)) + ")"
        case ast.Compare(left=left, ops=[ast.In()], comparators=[ast.Tuple(elts=values)]):
            return "(" + " || ".join(f"{cpp(left)} == {cpp(value)}" for value in values) + ")"
        case ast.Compare(left=left, ops=[op], comparators=[right]) if type(op) in OPERATORS:
            return f"{cpp(left)} {OPERATORS[type(op)]} {cpp(right)}"
    raise ValueError(f"the cycle formula has something that C++ does not get: {ast.unparse(node)}")


def stated() -> tuple[str, int]:
    """Formula and fill. Raises ValueError unless the manifests of all groups agree."""
    manifests = [json.loads(path.read_text())["cycles"] for path in sorted(MANIFESTS.glob("attention_g*.json"))]
    found = {(cycles["formula"], cycles.get("fill", 0)) for cycles in manifests}
    if len(found) != 1:
        raise ValueError("the manifests of attention state different cycles: run `make rtl KERNEL=attention`")
    return found.pop()


def render() -> str:
    """The header's text."""
    formula, fill = stated()
    return TEMPLATE.format(
        variables=", ".join(VARIABLES),
        fill=f" and {fill} of filling" if fill else "",
        body=returned(formula, fill),
        kernels="\n".join(map(of_kernel, KERNELS)),
    )


def of_kernel(kernel: Kernel) -> str:
    """The variables and the function of a kernel."""
    cycles = tomllib.loads((ROOT / f"hls/{kernel.name}/kernel.toml").read_text())["cycles"]
    return KERNEL.format(
        **kernel._asdict() | {"variables": ", ".join(kernel.variables)},
        body=returned(cycles["formula"], cycles.get("fill", 0)),
    )


def returned(formula: str, fill: int = 0) -> str:
    """The statement that returns the formula's value and `fill`."""
    expression = cpp(ast.parse(" ".join(formula.split()), mode="eval").body)
    text = f"return {expression}" + (f" + {fill};" if fill else ";")
    return textwrap.fill(text, 116, initial_indent="  ", subsequent_indent="      ", break_on_hyphens=False)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="compare, write nothing")
    check = parser.parse_args().check
    try:
        text = render()
    except ValueError as error:
        print(error, file=sys.stderr)
        return 1
    if check and HEADER.read_text() != text:
        print(f"{HEADER.relative_to(ROOT)} differs: run `python scripts/engine_cycles.py`", file=sys.stderr)
        return 1
    if not check:
        HEADER.write_text(text)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
