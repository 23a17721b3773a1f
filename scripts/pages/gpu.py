"""The tables of docs/results/attention.md, from the results of `gpu.check` in results/gpu/*.json."""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from kvdrive.tree import ROOT
from pages.blocks import filled

PAGE, RESULTS = ROOT / "docs/results/attention.md", ROOT / "results/gpu"
NONE = "No figures exist yet: the check has not run on a machine with a GPU."


def texts() -> dict[Path, str]:
    """The page with all results."""
    return {PAGE: filled(PAGE, {"gpu": measured(sorted(RESULTS.glob("*.json")))})}


def measured(files: list[Path]) -> str:
    """Tables for each file; without files, that there are none."""
    return "\n\n".join("\n".join(_tables(file.stem, json.loads(file.read_text()))) for file in files) or NONE


def _tables(name: str, found: dict[str, Any]) -> Iterator[str]:
    machine = found["machine"]
    gpu = machine.get("gpu", {"name": "no GPU, a dry run"})
    packages = machine["packages"]
    yield f"### {gpu['name']}, {machine['cores']} cores"
    yield ""
    yield f"File `{name}.json`; torch {packages['torch']}, transformers {packages['transformers']}."
    yield from _tokens(found.get("tokens", {}))
    yield from _first_token(found.get("first_token", {}))
    yield from _decode(found.get("decode", {}))
    yield from _errors(found, "")


def _tokens(found: dict[str, Any]) -> Iterator[str]:
    yield from _head(
        "model",
        "precision",
        "tokens equal",
        "exact ties",
        "first choice of sdpa / ties within eager's distance / others",
        "logits: ours from sdpa",
        "eager from sdpa",
        "smallest lead",
    )
    for model, by_precision in found.items():
        for precision, one in by_precision.items():
            if "error" not in one:
                choices = " / ".join(map(str, one["choices"].values())) if "choices" in one else ""
                apart = [f"{one['logits'][key]:.2g}" for key in ("ours_from_sdpa", "eager_from_sdpa", "smallest_lead")]
                yield _row(model, precision, f"{one['identical']}/{one['total']}", one["ties"], choices, *apart)


def _first_token(found: dict[str, Any]) -> Iterator[str]:
    if "contenders" not in found:
        return
    yield from _head(
        f"first token behind {found['tokens']}", "s", "/ sdpa", "s until written", "GB out", "hidden", "GB in", "hidden"
    )
    for name, one in found["contenders"].items():
        if one.get("first_token_s"):
            written = f"{statistics.median(one['written_s']):.3f}" if one["written_s"] else ""
            first = f"{statistics.median(one['first_token_s']):.3f}"
            yield _row(name, first, one["of_sdpa"], written, *_moved(one["copies"], 1e9))


def _decode(found: dict[str, Any]) -> Iterator[str]:
    if "error" in found or not found:
        return
    yield from _head("decode step behind", "contender", "ms", "/ sdpa", "MB out", "hidden", "MB in", "hidden")
    for context, row in found.items():
        for name, one in row.items():
            if "ms" in one:
                ratio = f"{one['ms'] / row['sdpa']['ms']:.2f}" if "ms" in row["sdpa"] else ""
                yield _row(context, name, f"{one['ms']:.2f}", ratio, *_moved(one["copies"], 1e6))


def _moved(copies: dict[str, Any], unit: float) -> Iterator[str]:
    for direction in ("DtoH", "HtoD"):
        one = copies[direction]
        yield f"{one['bytes'] / unit:.3g}"
        yield f"{one['hidden_bytes'] / one['bytes']:.0%}" if one["bytes"] else ""


def _errors(found: Any, name: str) -> Iterator[str]:
    """A paragraph for each part that failed."""
    if isinstance(found, dict):
        if "error" in found:
            yield ""
            yield f"`{name}` failed: {found['error']}"
        for key, value in found.items():
            yield from _errors(value, f"{name}/{key}".strip("/"))


def _head(*columns: str) -> Iterator[str]:
    yield ""
    yield _row(*columns)
    yield _row(*("---" for _ in columns))


def _row(*cells: object) -> str:
    return f"| {' | '.join(map(str, cells))} |"
