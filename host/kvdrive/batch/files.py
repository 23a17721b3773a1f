"""The two files of a batch: prompts to read, and answers that are written once, as they come."""

from __future__ import annotations

import fcntl
import json
import os
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

from kvdrive import private
from kvdrive.errors import InputError


@dataclass(frozen=True)
class Prompt:
    """A line of the file of prompts. `id`: its "id", or the number of the line from 1 on."""

    id: str
    text: str


def read_prompts(path: Path) -> list[Prompt]:
    """The prompts of a JSONL file: objects with "prompt", and "id" where they have names. Raises InputError."""
    found: dict[str, Prompt] = {}
    with path.open(encoding="utf-8") as file:
        for number, line in enumerate(file, 1):
            if not line.strip():
                continue
            try:
                entry = json.loads(line)
            except json.JSONDecodeError as error:
                raise InputError(f"{path}, line {number} is no JSON: {error.msg}") from error
            text = entry.get("prompt") if isinstance(entry, dict) else None
            if not isinstance(text, str) or not text:
                raise InputError(f'{path}, line {number} has no prompt: write {{"prompt": "..."}}')
            name = str(entry.get("id", number))
            if name in found:
                raise InputError(f"{path}, line {number} has the id {name} of an earlier line: ids must differ")
            found[name] = Prompt(name, text)
    if not found:
        raise InputError(f"{path} holds no prompt")
    return list(found.values())


class Answers:
    """The file of answers, open for one process. `done`: ids that it has already, so that a batch can go on.

    Each answer is a line that is on disk when `write` returns, and an id is written once. A last line that was cut off
    by a kill is removed. Raises InputError.
    """

    def __init__(self, path: Path) -> None:
        self._file = private.open_file(path, "a+", encoding="utf-8")
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self.done = self._read(path)
        except BlockingIOError as error:
            self._file.close()
            raise InputError(f"another batch writes to {path}: wait for it, or choose another `out`") from error
        except BaseException:
            self._file.close()
            raise

    def write(self, answer: dict[str, Any]) -> bool:
        """Append an answer; False if its id was answered before."""
        if answer["id"] in self.done:
            return False
        self._file.write(json.dumps(answer, ensure_ascii=False) + "\n")
        self._file.flush()
        os.fsync(self._file.fileno())
        self.done.add(answer["id"])
        return True

    def __enter__(self) -> Answers:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()

    def _read(self, path: Path) -> set[str]:
        self._file.seek(0)
        text = self._file.read()
        whole = text[: text.rfind("\n") + 1]
        try:
            done = {str(json.loads(line)["id"]) for line in whole.splitlines()}
        except (json.JSONDecodeError, KeyError, TypeError) as error:
            raise InputError(f"{path} holds something else than answers: choose another `out`") from error
        self._file.truncate(len(whole.encode()))
        return done
