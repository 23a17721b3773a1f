# SPDX-License-Identifier: Apache-2.0
"""Numbers that a pragma names: constants and enumerators of the source, and macros, which clang leaves as they are."""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable

_OPERATORS: dict[type, Callable[[int, int], int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.floordiv,
    ast.LShift: operator.lshift,
    ast.RShift: operator.rshift,
}
_RELATIONS: dict[type, Callable[[int, int], bool]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}
_DEEP = 16  # names behind a name
_MOST_SHIFT = 64


class Constants:
    """`text` is preprocessed; `macros` gives the `#define` lines, and is asked only for a name that `text` lacks."""

    def __init__(self, text: str, macros: Callable[[], str]) -> None:
        self._text = text
        self._macros = macros
        self._defined: dict[str, str] | None = None

    def value(self, expression: str, deep: int = _DEEP) -> int | None:
        """The value of an expression of integers and names, None if it is something else."""
        try:
            text = re.sub(r"(?<=\d)[uUlL]+\b", "", expression)
            text = re.sub(r"!(?!=)", " not ", text.replace("&&", " and ").replace("||", " or "))
            tree = ast.parse(text.strip(), mode="eval")
        except (SyntaxError, ValueError):
            return None
        return self._of(tree.body, deep)

    def _of(self, node: ast.expr, deep: int) -> int | None:
        if isinstance(node, ast.Constant):
            return node.value if type(node.value) is int else None
        if isinstance(node, ast.Name):
            definition = self._definition(node.id) if deep else None
            return None if definition is None else self.value(definition, deep - 1)
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            inner = self._of(node.operand, deep)
            return None if inner is None else -inner
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            inner = self._of(node.operand, deep)
            return None if inner is None else int(not inner)
        if isinstance(node, ast.BoolOp):
            parts = [self._of(each, deep) for each in node.values]
            if any(each is None for each in parts):
                return None
            return int(all(parts) if isinstance(node.op, ast.And) else any(parts))
        if isinstance(node, ast.Compare) and len(node.ops) == 1 and type(node.ops[0]) in _RELATIONS:
            first, second = self._of(node.left, deep), self._of(node.comparators[0], deep)
            known = first is not None and second is not None
            return int(_RELATIONS[type(node.ops[0])](first, second)) if known else None  # type: ignore[arg-type]
        if not isinstance(node, ast.BinOp) or type(node.op) not in _OPERATORS:
            return None
        a, b = self._of(node.left, deep), self._of(node.right, deep)
        if a is None or b is None or (isinstance(node.op, ast.Div) and b == 0):
            return None
        if isinstance(node.op, ast.LShift | ast.RShift) and not 0 <= b <= _MOST_SHIFT:
            return None
        return _OPERATORS[type(node.op)](a, b)

    def _definition(self, name: str) -> str | None:
        found = re.search(rf"\b(?:const|constexpr)\b[^;={{}}()]*\b{name}\s*=\s*([^;,{{}}]+)[;,]", self._text)
        found = found or re.search(rf"\benum\b[^;{{}}]*\{{[^{{}}]*\b{name}\s*=\s*([^;,{{}}]+)", self._text)
        if found:
            return found.group(1)
        if self._defined is None:
            self._defined = dict(re.findall(r"^#define (\w+) (.+)$", self._macros(), re.MULTILINE))
        return self._defined.get(name)
