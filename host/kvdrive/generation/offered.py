"""The models that a server offers: what clients call them, and where they and their drives are."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from kvdrive.errors import InputError
from kvdrive.generation import gemma
from kvdrive.generation.places import SHIPPED, SMOLLM2

_KNOWN = (*SHIPPED, SMOLLM2, gemma.NAME)
_LATER_PART = re.compile(r"-(?!0*1-of-)\d+-of-\d+\.gguf$")  # of a model in several files


@dataclass(frozen=True)
class Offered:
    """`name`: the model's for clients. `model`: as a run's options name it."""

    name: str
    model: str


def offered(given: Sequence[str]) -> list[Offered]:
    """The models that were given, each a model as a run's options name it, or a folder that holds several of them.

    Raises InputError for two of the same name, and where one of several is not there.
    """
    found = [one for model in given for one in _models_in(model)]
    for one in found if len(found) > 1 else []:
        if one.model not in _KNOWN and not Path(one.model).expanduser().exists():
            raise InputError(f"there is no model {one.model}: give folders of checkpoints and .gguf files")
    for place, one in enumerate(found):
        if any(one.name == other.name for other in found[:place]):
            raise InputError(f"two models are called '{one.name}': rename a folder or file, or leave one of them out")
    return found


def _models_in(model: str) -> Iterator[Offered]:
    path = Path(model).expanduser()
    if model in _KNOWN:
        yield Offered(model, model)
    elif path.is_dir() and not (path / "config.json").is_file() and (inside := _inside(path)):
        yield from (Offered(one.name, str(one)) for one in inside)
    else:
        yield Offered(path.name or path.resolve().name, model)


def _inside(folder: Path) -> list[Path]:
    """Checkpoints and GGUF files in a folder, sorted by name."""
    return [
        one
        for one in sorted(folder.iterdir())
        if (one / "config.json").is_file()
        or (one.suffix == ".gguf" and one.is_file() and not _LATER_PART.search(one.name))
    ]


def home_of(folder: Path | None, name: str) -> Path | None:
    """Where a server of one model has its drives: in `folder`, or where a server of several models had them there."""
    if folder is not None and (folder / name / "drive.kv").is_file():
        return folder / name
    return folder
