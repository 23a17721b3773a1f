# SPDX-License-Identifier: Apache-2.0
"""Random C++ expressions over the variables of a function, each within the subset and within its ranges."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

COMPARISONS = ("<", "<=", "==", "!=", ">", ">=")
ROUNDINGS = ("AP_TRN", "AP_TRN_ZERO", "AP_RND", "AP_RND_ZERO", "AP_RND_INF", "AP_RND_MIN_INF", "AP_RND_CONV")
OVERFLOWS = ("AP_WRAP", "AP_SAT", "AP_SAT_ZERO", "AP_SAT_SYM")


@dataclass(frozen=True)
class Variable:
    """A number or, with `length`, an array of a power of two of numbers or of rows with `columns` numbers.

    `member` is what follows the index where the numbers are fields of structs, such as ".low".
    """

    name: str
    width: int
    is_signed: bool
    length: int = 0
    writable: bool = True
    columns: int = 0
    member: str = ""

    @property
    def type(self) -> str:
        return f"ap_{'' if self.is_signed else 'u'}int<{self.width}>"


@dataclass
class Expressions:
    """Writes expressions over the variables in `scope`, and the lines they stand in."""

    rng: random.Random
    lines: list[str] = field(default_factory=list)
    scope: list[Variable] = field(default_factory=list)
    count: int = 0

    def put(self, depth: int, line: str) -> None:
        self.lines.append("  " * depth + line)

    def pragma(self, text: str) -> None:
        self.lines.append(f"#pragma HLS {text}")

    def fresh(self, stem: str) -> str:
        self.count += 1
        return f"{stem}{self.count}"

    # ---- variables ----

    def scalars(self, writable: bool = False) -> list[Variable]:
        return [v for v in self.scope if not v.length and (v.writable or not writable)]

    def arrays(self) -> list[Variable]:
        return [v for v in self.scope if v.length]

    def index(self, length: int, depth: int) -> str:
        """An index below a power of two, often the plain counter of a loop."""
        bits = (length - 1).bit_length()
        counters = [v.name for v in self.scalars() if not v.writable]
        if counters and self.rng.random() < 0.5:
            offset = self.rng.choice(("", "", " + 1", " - 1", " + 3"))
            return f"ap_uint<{bits}>({self.rng.choice(counters)}{offset})"
        return f"ap_uint<{bits}>({self.expression(depth - 1)})"

    def element(self, array: Variable, depth: int) -> str:
        """An element of an array, wherever an index may lead."""
        column = f"[{self.index(array.columns, depth - 1)}]" if array.columns else ""
        return f"{array.name}[{self.index(array.length, depth)}]{column}{array.member}"

    # ---- numbers ----

    def cast(self, text: str) -> str:
        width = self.rng.choice((1, 3, 8, 13, 20, 32, 33, 47))
        return f"ap_{self.rng.choice(('', 'u'))}int<{width}>({text})"

    def leaf(self) -> str:
        names = [v.name for v in self.scalars()]
        if names and self.rng.random() < 0.8:
            return self.cast(self.rng.choice(names))
        return f"ap_int<20>({self.rng.choice((0, 1, -1, self.rng.randint(-(1 << 19), (1 << 19) - 1)))})"

    def expression(self, depth: int) -> str:
        """An ap_int or ap_uint of at most 47 bits."""
        rng = self.rng
        if depth <= 0 or rng.random() < 0.15:
            return self.leaf()
        a, b = self.expression(depth - 1), self.expression(depth - 1)
        kind = rng.randrange(14)
        if kind < 5:
            return self.cast(f"{a} {rng.choice('+-*&|^+-')} {b}")
        if kind == 5:
            return self.cast(f"{a} {rng.choice(('<<', '>>'))} ap_uint<{rng.choice((2, 3, 5))}>({b})")
        if kind == 6:
            return f"ap_uint<1>({self.compared(a, b)})"
        if kind == 7:
            return f"({self.condition(depth - 1)} ? ap_int<33>({a}) : ap_int<33>({b}))"
        if kind == 8 and self.arrays():
            return self.cast(self.element(rng.choice(self.arrays()), depth))
        if kind == 9 and rng.random() < 0.3:
            divisor = rng.choice((f"(ap_uint<9>({b}) | ap_uint<9>(1))", f"ap_int<9>({rng.choice((2, 3, -4, 7, 60))})"))
            return self.cast(f"ap_int<13>({a}) {rng.choice('/%')} {divisor}")
        if kind == 10:
            high = rng.randrange(24)
            return f"ap_uint<{high + 1}>(ap_uint<32>({a}).range({high}, 0))"
        if kind == 11:
            return self.cast(f"({self.part(a)}, {self.part(b)}, {self.part(self.leaf())})")
        if kind == 12 and rng.random() < 0.6:
            return self.rounded(a, b)
        return self.cast(f"{rng.choice('-~')}{a}")

    def part(self, text: str) -> str:
        """Part of a concatenation: a number, some of its bits, or one of them."""
        rng = self.rng
        width = rng.choice((1, 7, 13, 15))
        high = rng.randrange(width)
        low = rng.randint(0, high)
        number = f"ap_{rng.choice(('', 'u'))}int<{width}>({text})"
        return rng.choice((number, f"{number}.range({high}, {low})", f"{number}({high}, {low})"))

    def compared(self, a: str, b: str) -> str:
        """A comparison; sometimes of numbers of one width and of different signs, which have rules of their own."""
        symbol = self.rng.choice(COMPARISONS)
        if self.rng.random() < 0.2:
            width = self.rng.choice((31, 32, 33, 47, 63, 64))
            return f"ap_uint<{width}>({a}) {symbol} ap_int<{width}>({b})"
        return f"{a} {symbol} {b}"

    def rounded(self, a: str, b: str) -> str:
        """The bits of a fixed-point number that was computed, then rounded and kept in range."""
        rng = self.rng
        left = f"(ap_fixed<20, {rng.choice((9, 14))}>(ap_int<12>({a})) >> {rng.randint(0, 7)})"
        right = f"(ap_{rng.choice(('', 'u'))}fixed<16, 9>(ap_int<9>({b})) >> {rng.randint(0, 5)})"
        width = rng.choice((5, 9, 14, 30))
        kind = f"ap_{rng.choice(('', 'u'))}fixed<{width}, {rng.randint(2, 12)}, {rng.choice(ROUNDINGS)}, "
        number = f"{kind}{rng.choice(OVERFLOWS)}>({left} {rng.choice('+-*')} {right})"
        return f"ap_uint<{width}>({number}.range({width - 1}, 0))"

    def condition(self, depth: int) -> str:
        text = self.compared(self.expression(depth), self.expression(depth))
        if self.rng.random() < 0.15:
            text += f" {self.rng.choice(('&&', '||'))} {self.expression(0)} != {self.expression(0)}"
        return f"({text})"
