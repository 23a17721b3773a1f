# SPDX-License-Identifier: Apache-2.0
"""Makes a failing program small: removes lines, blocks and braces as long as it goes on failing."""

from __future__ import annotations

from collections.abc import Callable

Fails = Callable[[str], bool]
Lines = list[str]


def block_end(lines: Lines, first: int) -> int:
    """The line after the statement that begins on line `first`: where its braces are closed again."""
    depth = 0
    for at in range(first, len(lines)):
        depth += lines[at].count("{") - lines[at].count("}")
        if depth <= 0:
            return at + 1
    return len(lines)


def cuts(lines: Lines) -> list[tuple[range, ...]]:
    """The lines that a smaller program may lack: a block, the braces around one, a line; large pieces first."""
    blocks = [range(at, block_end(lines, at)) for at, line in enumerate(lines) if line.rstrip().endswith("{")]
    braces = [(range(block.start, block.start + 1), range(block.stop - 1, block.stop)) for block in blocks]
    single = [range(at, at + 1) for at, line in enumerate(lines) if "{" not in line and "}" not in line]
    return [*((block,) for block in sorted(blocks, key=len, reverse=True)), *braces, *((line,) for line in single)]


def shrink(text: str, fails: Fails, attempts: int = 400) -> str:
    """The smallest program found. `fails` must hold for `text`, and is false for a text that is no program."""
    lines = text.splitlines()
    shrunk = True
    while shrunk and attempts > 0:
        shrunk, at = False, 0
        while at < len(cuts(lines)) and attempts > 0:
            gone = {line for piece in cuts(lines)[at] for line in piece}
            candidate = [line for number, line in enumerate(lines) if number not in gone]
            attempts -= 1
            if fails("\n".join([*candidate, ""])):
                lines, shrunk = candidate, True
            else:
                at += 1
    return "\n".join([*lines, ""])
