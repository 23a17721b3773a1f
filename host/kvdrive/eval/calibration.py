"""`kvdrive calibrate` without its options: the model, its text and a drive for `eval.head_ratios`."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from contextlib import closing, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console

from kvdrive.config.run import RunConfig
from kvdrive.eval import library, perplexity
from kvdrive.eval.compared import label_of
from kvdrive.eval.evaluation import documents
from kvdrive.eval.head_ratios import RATIOS, Limits, Rater, calibrate
from kvdrive.eval.partial import Partial, digest
from kvdrive.eval.ready import drives_for, loaded
from kvdrive.eval.sweep import questions
from kvdrive.generation.checkpoints import Checkpoint
from kvdrive.generation.progress import bar
from kvdrive.policies.choice import Choice, keep_choices, place_of
from kvdrive.policies.groups import DEFAULT_UNIT, Groups
from kvdrive.targets.opening import open_drive


@dataclass(frozen=True)
class Settings:
    """What to calibrate. Empty `texts`: modules of the standard library that `kvdrive eval` does not rate by default.

    `limits`: of the KL divergence, as text. `seconds`: for the measurements of single heads; 0: no bound.
    """

    config: RunConfig
    limits: Sequence[str]
    context: int
    windows: int
    targets: int
    texts: Sequence[Path]
    seconds: float

    @property
    def unit(self) -> int:
        """Tokens that are read or left out together."""
        return self.config.policy.unit or DEFAULT_UNIT

    @property
    def kv_format(self) -> str:
        """How K and V are stored."""
        return self.config.placement.kv_format

    def options(self) -> dict[str, Any]:
        """The options of the command line on which a measurement depends, by name."""
        return {
            "--context": self.context,
            "--windows": self.windows,
            "--targets": self.targets,
            "--text": [str(path) for path in self.texts],
            "--unit": self.unit,
            "--kv-format": self.kv_format,
            "--device": self.config.model.device,
        }


def run(settings: Settings, console: Console | None) -> tuple[Path, dict[str, Choice]]:
    """Calibrate, with progress on `console`, and store the choices. Returns their file. Raises KvdriveError."""
    Groups(RATIOS[0], settings.unit)  # raises InputError for a unit that there is not, before the model is loaded
    with closing(loaded(settings.config, console)) as checkpoint:
        label = label_of(checkpoint.model, settings.kv_format)
        found = _run(checkpoint, settings, label, console)
    return keep_choices(label, found), found


def _run(checkpoint: Checkpoint, settings: Settings, label: bytes, console: Console | None) -> dict[str, Choice]:
    checkpoint.check_length(settings.context, settings.targets)
    texts = documents(checkpoint, settings.texts, library.calibration_modules)
    windows = perplexity.windows(texts, settings.context, settings.targets, settings.windows)
    asked = questions(windows, settings.targets, [])
    text = digest(asked, checkpoint.model)
    known = Partial(_measurements(label, settings), settings.options(), resume=True)
    known.belongs_to(text)
    tokens = settings.windows * (settings.context + settings.targets + 1024)
    drives = drives_for(checkpoint, settings.config.target, tokens)
    heads = checkpoint.shape.drive_layers * checkpoint.shape.kv_heads
    steps = len(asked) * (1 + heads * len(RATIOS))  # and some more, of the search
    with (
        open_drive(drives) as target,
        bar(console, "heads, alone and together", steps) if console else nullcontext() as shown,
    ):

        def on_answer() -> None:
            if shown is not None:
                bars, task = shown
                bars.advance(task)

        rater = Rater(checkpoint.model, asked, settings.unit, settings.kv_format, known, on_answer)
        with rater.on_drive(target):
            return calibrate(rater, Limits(settings.limits, settings.seconds), text)


def _measurements(label: bytes, settings: Settings) -> Path:
    """The file that keeps measurements of a model with these options."""
    options = hashlib.sha256(json.dumps(settings.options()).encode()).hexdigest()
    place = place_of(label)
    return place.with_name(f"{place.stem}-{options[:8]}.measured.json")
