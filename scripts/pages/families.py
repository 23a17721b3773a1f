"""Which families docs/guide/first-run.md says are served, with the shapes of transformers' default configurations.

The families are those of the tests, so that no row lacks a test.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from kvdrive.tree import ROOT

PAGE = ROOT / "docs/guide/first-run.md"
sys.path.insert(0, str(ROOT / "tests/host"))

from family_models import REFUSED, SERVED  # noqa: E402
from small_models import CONFIGS  # noqa: E402

from kvdrive.doctor.model import row_of  # noqa: E402
from pages.blocks import filled  # noqa: E402

HYBRID = "sessions go on with the same bits"  # tests/host/prefix/test_hybrids.py takes these of the table
ALSO = {
    "llama": "models/mini (`make run`), SmolLM2 (`make test-full`); the shape of Falcon 3",
    "mistral": "an all-sliding one too",
    "qwen2": "also with half of its layers sliding",
}


def texts() -> dict[Path, str]:
    """The page with the families of the tests."""
    return {PAGE: filled(PAGE, {"families": table()})}


def table() -> str:
    """All families, the served ones first."""
    lines = [
        "| family | heads per KV head | head dimension | layers on the drive | layers in memory | tested how |",
        "| --- | ---: | ---: | ---: | ---: | --- |",
    ]
    served = {name: config for name, config in CONFIGS.items() if name != "llama-mha"}  # a second shape of a class
    served |= {name: config for name, (config, _) in SERVED.items() if name != "falcon3"}
    for name, config in sorted(served.items()):
        tested = "random weights: tokens equal transformers"
        hybrid = HYBRID if name in SERVED and SERVED[name][1] == 1 else ""
        refused = row_of(name, _default(config), 1 << 40).refused
        default = f"the default shape is refused: {refused}" if refused else ""
        lines.append(_line(name, config, "; ".join(filter(None, [tested, hybrid, ALSO.get(name), default]))))
    lines += ["", "| refused | heads per KV head | head dimension | why |", "| --- | ---: | ---: | --- |"]
    for name, (config, reason) in sorted(REFUSED.items()):
        _, group, head_dim, *_ = _cells(name, config)
        lines.append(f"| {name} | {group} | {head_dim} | {_why(reason, config)} |")
    return "\n".join(lines)


def _line(name: str, small: Any, tested: str) -> str:
    return f"| {' | '.join([*_cells(name, small), tested])} |"


def _cells(name: str, small: Any) -> list[str]:
    row = row_of(name, _default(small), 1 << 40)
    group, head_dim = str(row.group or "-"), str(row.head_dim or "-")
    return [name, group, head_dim, str(row.layers_on_drive), str(row.layers_in_memory)]


def _why(reason: str, small: Any) -> str:
    """The whole refusal if the configuration alone causes it, else the part that the test expects."""
    found = row_of("", small, 1 << 40).refused
    return found if found and reason in found else f"it {reason}" if reason.startswith("does") else reason


def _default(small: Any) -> Any:
    """The family's default configuration in transformers."""
    return type(small)().get_text_config(decoder=True)
