# SPDX-License-Identifier: Apache-2.0
"""Each row of the fault matrix in docs/design/drive.md names a test, and each fault that can be injected has a row."""

import ast
import re
from pathlib import Path

import pytest

from kvdrive._native import Drive

TESTS = Path(__file__).parents[1]


def matrix():
    """The cells of each row."""
    lines = (TESTS.parent / "docs/design/drive.md").read_text().splitlines()
    start = next(i for i, line in enumerate(lines) if line.startswith("| Fault |"))
    rows = []
    for line in lines[start + 2 :]:
        if not line.startswith("|"):
            return rows
        rows.append([cell.strip() for cell in line.strip("|").split("|")])
    return rows


def functions_of(path):
    return {node.name for node in ast.parse(path.read_text()).body if isinstance(node, ast.FunctionDef)}


def test_every_row_names_a_test():
    rows = matrix()
    assert len(rows) > 20
    for row in rows:
        assert len(row) == 5, row
        assert all(row), row
        path, test = row[4].strip("`").split("::")
        assert test.startswith("test_"), row
        assert test in functions_of(TESTS / path), row


def test_every_fault_that_can_be_injected_has_a_row(tmp_path):
    drive = Drive(tmp_path / "drive.kv", "fast", 1, 1 << 20)
    with pytest.raises(ValueError, match="choose one of") as refused:
        drive.inject("gremlins")
    kinds = set(re.findall(r"[a-z]+_[a-z_]+|full", str(refused.value).split("choose one of")[1]))
    assert len(kinds) == 10
    named = {kind for row in matrix() for kind in re.findall(r"`(\w+)`", row[1])}
    assert kinds <= named
