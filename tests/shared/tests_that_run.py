"""Whether `make test` runs a test that a page names."""

import ast
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def is_run(test: str) -> bool:
    """True if there is this test, `path::name`, and neither it nor its file is marked to be left out."""
    path, _, name = test.partition("::")
    file = ast.parse((ROOT / path).read_text())
    found = [one for one in file.body if isinstance(one, ast.FunctionDef) and one.name == name]
    marks = [one for one in file.body if isinstance(one, ast.Assign) and "pytestmark" in ast.unparse(one.targets[0])]
    said = " ".join(
        ast.unparse(one)
        for one in (*(mark.value for mark in marks), *(on for one in found for on in one.decorator_list))
    )
    return bool(found) and not any(f"mark.{word}" in said for word in ("slow", "skip", "xfail"))
