"""Files of the figures: a picture each, JSON for each paper, one page."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from kvdrive.study.attention_store import figures as attention_store
from kvdrive.study.attention_store import inputs as attention_store_inputs
from kvdrive.study.figure import Paper, record, rounded
from kvdrive.study.hilos import figures as hilos
from kvdrive.study.hilos import inputs as hilos_inputs
from kvdrive.study.inputs import Input
from kvdrive.study.instinfer import figures as instinfer
from kvdrive.study.instinfer import inputs as instinfer_inputs
from kvdrive.study.llm_in_a_flash import figures as flash
from kvdrive.study.llm_in_a_flash import inputs as flash_inputs
from kvdrive.study.paged_attention import figures as paged
from kvdrive.study.predictions import Prediction

PREDICTIONS = "predictions.json"


PAPERS: dict[str, Callable[[], Paper]] = {
    "instinfer": instinfer.paper,
    "hilos": hilos.paper,
    "cachedattention": attention_store.paper,
    "llm-in-a-flash": flash.paper,
    "ssd-paged": paged.paper,
}
INPUTS: dict[str, Input] = {
    name: value
    for paper in (instinfer_inputs, hilos_inputs, attention_store_inputs, flash_inputs)
    for name, value in vars(paper).items()
    if isinstance(value, Input)
}

_HEAD = """\
# The papers' figures, from our models

Written by `kvdrive figures`. One performance model (`host/kvdrive/study/model/`) is behind all of them: discrete events
over GPU, host, links and drives. Times of drives that attend are device times of the drive library, which executes the
commands; kernels' cycles are those of their manifests. Nothing here is measured on the papers' hardware: every picture
says beside its axes where its values are from. Stars and dashed lines are values that a paper states in its text. We
have no more of its figures: axes and settings that the text does not state are ours. The numbers are in
`papers/*.json`; [claims](claims.md) says of each whether our value agrees with it, is computed from it, or differs. The
model is also compared [with this machine's own targets](attention.md#the-performance-model-beside-this-machine).

## Inputs that are results of the papers

A value that is near a claim from which it was computed says nothing about the model: the ledger calls it an input.
Besides, turns and lengths of the generated conversations are fitted to AS-01, AS-02 and AS-03. Nothing else is fitted.

| input | value | from claims | how |
|---|---|---|---|
"""
_PREDICTIONS_HEAD = """
## Predictions

Settings that none of the claims at hand states. Each range has two ends that are named, no fitted spread.

| system | setting | what | from | to | unit | the range |
|---|---|---|---|---|---|---|
"""


def write_json(folder: Path, name: str, content: Any) -> None:
    """A file of the numbers."""
    (folder / name).write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n")


def write_paper(folder: Path, paper: Paper) -> dict[str, Any]:
    """JSON and pictures of a paper; returns the record. Raises InputError without matplotlib."""
    from kvdrive.study.draw import draw

    found = record(paper)
    write_json(folder, f"{paper.key}.json", found)
    for figure in found["figures"]:
        draw(figure, folder / f"{figure['key']}.png")
    return found


def predicted(found: Sequence[Prediction]) -> list[dict[str, Any]]:
    """For JSON."""
    return [rounded(asdict(prediction)) for prediction in found]


def page(records: Sequence[dict[str, Any]], predictions: Sequence[dict[str, Any]], folder: str = "papers") -> str:
    """The page as Markdown, from the records in the JSON files."""
    lines = [_HEAD.rstrip("\n")]
    for name, one in INPUTS.items():
        lines.append(f"| `{name}` | {one.value:.4g} {one.unit} | {', '.join(one.claims)} | {one.says} |")
    for paper in records:
        lines += ["", f"## {paper['paper']}"]
        for figure in paper["figures"]:
            number = figure["number"] if figure["number"].startswith("table") else f"figure {figure['number']}"
            lines += [
                "",
                f"### {number[0].upper()}{number[1:]}: {figure['title']}",
                "",
                f"![{figure['title']}]({folder}/{figure['key']}.png)",
                "",
                f"{figure['compared']} {figure['assumes']}".strip(),
            ]
        if paper["left_out"]:
            lines += ["", "Not drawn: " + "; ".join(f"{number} ({why})" for number, why in paper["left_out"]) + "."]
    lines.append(_PREDICTIONS_HEAD.rstrip("\n"))
    for row in predictions:
        cells = (
            row["system"],
            row["setting"],
            row["says"],
            f"{row['low']:g}",
            f"{row['high']:g}",
            row["unit"],
            row["how"],
        )
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"
