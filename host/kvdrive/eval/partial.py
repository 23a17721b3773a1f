"""The answers of an evaluation that has not ended yet, on disk: `kvdrive eval --resume` goes on with them."""

from __future__ import annotations

import hashlib
import json
from collections import UserDict
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from transformers import PreTrainedModel

from kvdrive import private
from kvdrive.errors import InputError, Stopped
from kvdrive.eval.points import Answer, Question
from kvdrive.identity.model import of_model
from kvdrive.kvcache.shipped_scales import plain, scales_of
from kvdrive.nvme.wire import RowFormat

NAME = "partial.json"


class Partial(UserDict[str, Answer]):
    """Answers by their place in the evaluation. Each new one replaces the file `path`, whole or not at all."""

    def __init__(self, path: Path, options: dict[str, Any], resume: bool) -> None:
        """`options`: by name; all that an answer depends on. Raises InputError unless the file on disk fits them."""
        super().__init__()
        self.path = path
        self._options = json.loads(json.dumps(options))
        self._inputs = ""
        self._earlier = self._read(resume)

    def belongs_to(self, inputs: str) -> None:
        """`inputs`: the digest. Takes the earlier answers over. Raises InputError where it differs."""
        self._inputs = inputs
        if self._earlier is None:
            return
        if self._earlier["inputs"] != inputs:
            raise InputError(f"{self.path} was begun with another text or other weights: remove it to begin again")
        self.data = {place: Answer(**answer) for place, answer in self._earlier["answers"].items()}

    def __setitem__(self, place: str, answer: Answer) -> None:
        """Keep an answer."""
        super().__setitem__(place, answer)
        private.make_folder(self.path.parent)
        answers = {place: asdict(answer) for place, answer in self.data.items()}
        content = {"options": self._options, "inputs": self._inputs, "answers": answers}
        private.write_text(self.path, json.dumps(content))

    @contextmanager
    def kept_when_stopped(self, total: int) -> Iterator[None]:
        """Raises Stopped, which says how many of the `total` answers are kept, where ^C ends the work inside."""
        try:
            yield
        except KeyboardInterrupt as error:
            kept = f"{self.path} keeps {len(self)} of {total} answers; the same command with `resume` goes on with them"
            raise Stopped(
                f"stopped: {kept}" if self else "stopped before the first answer: nothing was kept"
            ) from error

    def remove(self) -> None:
        """The evaluation has ended and its result is written."""
        self.path.unlink(missing_ok=True)

    def _read(self, resume: bool) -> dict[str, Any] | None:
        if not self.path.exists():
            return None
        try:
            found: dict[str, Any] = json.loads(self.path.read_text())
            options, count = found["options"], len(found["answers"])
        except (ValueError, KeyError, TypeError) as error:
            raise InputError(f"{self.path} is damaged: remove it to begin again") from error
        if not resume:
            raise InputError(
                f"{self.path} keeps {count} answers of a run that was stopped: `resume` goes on with them, or remove "
                "the file to begin again"
            )
        for name, value in self._options.items():
            if options.get(name) != value:
                raise InputError(
                    f"{self.path} was begun with {name} {_shown(options.get(name))}, not {_shown(value)}: give the "
                    "same option, or remove the file to begin again"
                )
        return found


def digest(questions: Iterable[Question], model: PreTrainedModel) -> str:
    """Identifies the tokens of all questions, the weights of the model and the scales that it ships for fp8."""
    found = hashlib.sha256(of_model(model))
    with suppress(InputError):  # scales that cannot be used are refused where K and V are stored as fp8
        if scales := scales_of(model, RowFormat.FP8):
            found.update(f"{plain(scales)}".encode())
    for question in questions:
        found.update(f"{question.task} {len(question.context)} {len(question.target)}".encode())
        found.update(question.context.tobytes() + question.target.tobytes())
    return found.hexdigest()


def _shown(value: Any) -> str:
    return ",".join(map(str, value)) if isinstance(value, list) else str(value)
