"""results/SUITE/MACHINE.json: the tables and figures of a machine, each with the day on which it was measured."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import date
from pathlib import Path
from typing import Any

from bench.machine import Machine
from bench.setup import Setup
from bench.table import Block, of_dict
from kvdrive.tree import ROOT

FOLDER = ROOT / "results"


@dataclass(frozen=True)
class Result:
    """A block of a suite on a machine. `committed`: `date` is that of the commit; the day of the run is unknown."""

    machine: Machine
    date: str
    block: Block
    threads: int = 0
    torch: str = ""
    committed: bool = False

    def text(self) -> str:
        """What a page shows, with machine and date."""
        parts = [str(self.machine)]
        parts += [f"{self.threads} threads"] if self.threads else []
        parts += [f"torch {self.torch}"] if self.torch else []
        where = f"Machine: {', '.join(parts)}. Date: {self.date}{' (of the commit)' if self.committed else ''}."
        shown = "\n\n".join(table.text() for table in self.block.tables)
        of_its_own = shown.splitlines()[-1].startswith(("|", "!["))  # behind a table or a picture
        return f"{shown}\n\n{where}" if of_its_own else f"{shown} {where}"


def save(suite: str, blocks: Sequence[Block], setup: Setup, folder: Path = FOLDER) -> Path:
    """Keep blocks that were measured here and now; other blocks of the file stay."""
    import torch

    machine = Machine.here()
    path = folder / suite / f"{machine.name}.json"
    kept = json.loads(path.read_text())["blocks"] if path.exists() else {}
    said = {"date": date.today().isoformat(), "threads": setup.threads, "torch": torch.__version__}
    for block in blocks:
        kept[block.name] = said | {"tables": [one.as_dict() for one in block.tables], "figures": block.figures}
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(as_text({"machine": asdict(machine), "blocks": kept}))
    return path


def as_text(found: dict[str, Any]) -> str:
    """As JSON, with a line for each row of a table."""
    text = json.dumps(found, indent=1, ensure_ascii=False)
    return re.sub(r"\[\n\s+[^][{}]*?\n\s+\]", lambda row: re.sub(r"\n\s*", " ", row[0]), text) + "\n"


def load(folder: Path = FOLDER) -> Iterator[tuple[str, Result]]:
    """All results, by SUITE/BLOCK. Files of other kinds are left out."""
    for path in sorted(folder.glob("*/*.json")):
        found = json.loads(path.read_text())
        for name, one in found.get("blocks", {}).items():
            yield f"{path.parent.name}/{name}", _result(Machine(**found["machine"]), name, one)


def _result(machine: Machine, name: str, kept: dict[str, Any]) -> Result:
    block = Block(name, [of_dict(table) for table in kept["tables"]], kept.get("figures"))
    said = {field: kept[field] for field in ("threads", "torch", "committed") if field in kept}
    return Result(machine, kept["date"], block, **said)


def latest(name: str, machine: str = "", folder: Path = FOLDER) -> Result:
    """The last result of SUITE/BLOCK, on any machine or the named one. Raises KeyError without one."""
    found = [one for key, one in load(folder) if key == name and machine in ("", one.machine.name)]
    if not found:
        raise KeyError(f"results/ has no {name} {machine}".rstrip())
    return max(found, key=lambda one: one.date)
