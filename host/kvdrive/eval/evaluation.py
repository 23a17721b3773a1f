"""`kvdrive eval` without its options: text, questions and policies at each length of the context."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing, nullcontext
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console

from kvdrive.config.run import RunConfig
from kvdrive.errors import InputError
from kvdrive.eval import library, perplexity, tasks
from kvdrive.eval.compared import chosen_policies, fitted, ways
from kvdrive.eval.library import Module
from kvdrive.eval.partial import Partial, digest
from kvdrive.eval.points import Point, Way
from kvdrive.eval.ready import drives_for, loaded
from kvdrive.eval.sweep import questions, sweep
from kvdrive.eval.tasks import Tokens
from kvdrive.eval.wording import style_of
from kvdrive.generation.checkpoints import Checkpoint
from kvdrive.generation.progress import bar
from kvdrive.targets.opening import open_drive

DEPTHS = (0.1, 0.3, 0.5, 0.7, 0.9)


@dataclass(frozen=True)
class Settings:
    """What to evaluate. Empty `texts`: the held-out modules of the standard library. `cases`: per task and length."""

    config: RunConfig
    policies: str
    ratios: Sequence[Fraction]
    contexts: Sequence[int]
    windows: int
    targets: int
    tasks: Sequence[str]
    cases: int
    texts: Sequence[Path]
    seed: int
    kv_formats: Sequence[str] = ("f16",)
    unread: Sequence[float] = ()
    units: Sequence[int] = ()

    def options(self) -> dict[str, Any]:
        """The options of the command line on which an answer depends, by name."""
        model, drives = self.config.model, self.config.target
        return {
            "--model": model.model,
            "--dtype": model.dtype,
            "--device": model.device,
            "--policies": self.policies,
            "--ratios": [str(ratio) for ratio in self.ratios],
            "--contexts": list(self.contexts),
            "--windows": self.windows,
            "--targets": self.targets,
            "--tasks": list(self.tasks),
            "--cases": self.cases,
            "--text": [str(path) for path in self.texts],
            "--seed": self.seed,
            "--target": drives.target,
            "--engine": drives.engine,
            "--preset": drives.preset,
            "--index": drives.index,
            "--hot": drives.hot_bytes,
            "--kv-formats": list(self.kv_formats),
            **({"--unread-limits": list(self.unread)} if self.unread else {}),
            **({"--units": list(self.units)} if self.units else {}),
        }


def evaluate(settings: Settings, console: Console | None, partial: Partial) -> dict[str, Any]:
    """Points of all policies at each length, and the settings used. Progress on `console`.

    Answers in `partial` are not computed again; new ones are kept there. Raises KvdriveError, Stopped after ^C.
    """
    compared = ways(
        chosen_policies(settings.policies, settings.ratios, settings.unread, settings.units), settings.kv_formats
    )
    with closing(loaded(settings.config, console)) as checkpoint:
        return _evaluate(checkpoint, settings, compared, console, partial)


def _evaluate(
    checkpoint: Checkpoint, settings: Settings, compared: Sequence[Way], console: Console | None, partial: Partial
) -> dict[str, Any]:
    """`evaluate` with a loaded model."""
    compared = fitted(compared, checkpoint.model)
    longest = max(settings.contexts)
    checkpoint.check_length(longest, settings.targets)
    texts = documents(checkpoint, settings.texts)
    windows = perplexity.windows(texts, longest, settings.targets, settings.windows) if settings.windows else []
    asked = {length: _questions(checkpoint, settings, texts, windows, length) for length in settings.contexts}
    steps = sum(map(len, asked.values())) * len(compared)
    if not steps:
        raise InputError("nothing to ask: allow `windows` or `cases`")
    drives = drives_for(checkpoint, settings.config.target, longest + settings.targets + 1024)
    partial.belongs_to(digest(chain.from_iterable(asked.values()), checkpoint.model))
    points: list[Point] = []
    with (
        partial.kept_when_stopped(steps),
        open_drive(drives) as target,
        bar(console, "answers", steps, len(partial)) if console else nullcontext() as shown,
    ):
        for length in settings.contexts:
            found = sweep(checkpoint.model, target, compared, asked[length], _advance(shown), partial)
            points += [replace(point, context=length) for point in found]
    return {
        "model": settings.config.model.model,
        "dtype": settings.config.model.dtype,
        "engine": drives.engine,
        "targets": settings.targets,
        "windows": len(windows),
        "cases": settings.cases,
        "seed": settings.seed,
        "text": [str(path) for path in settings.texts] or "held-out modules of the Python standard library",
        "points": [point.as_dict() for point in points],
    }


def documents(
    checkpoint: Checkpoint, paths: Sequence[Path], otherwise: Callable[[], list[Module]] = library.held_out_modules
) -> list[Tokens]:
    """The tokens of texts; without any, those of modules of the standard library. Raises InputError."""
    if not paths:
        texts = [module.text for module in otherwise()]
    else:
        try:
            texts = [path.read_text(encoding="utf-8") for path in paths]
        except OSError as error:
            raise InputError(f"cannot read the text {error.filename}: {error.strerror}") from error
        except UnicodeDecodeError as error:
            raise InputError("a text is not UTF-8: convert it first") from error
    return [_encode(checkpoint, text) for text in texts]


def _encode(checkpoint: Checkpoint, text: str) -> Tokens:
    return np.array(checkpoint.tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"], np.int64)


def _questions(
    checkpoint: Checkpoint, settings: Settings, documents: list[Tokens], windows: list[Tokens], length: int
) -> list[Any]:
    cut = [window[-(length + settings.targets) :] for window in windows]
    depths = [DEPTHS[i % len(DEPTHS)] for i in range(settings.cases)]
    cases = tasks.cases(
        settings.tasks, lambda text: _encode(checkpoint, text).tolist(), np.concatenate(documents), length, depths, 1,
        settings.seed, style_of(checkpoint.tokenizer),
    )  # fmt: skip
    return questions(cut, settings.targets, cases)


def _advance(shown: Any) -> Callable[[], None] | None:
    if shown is None:
        return None
    bars, task = shown
    return lambda: bars.advance(task)
