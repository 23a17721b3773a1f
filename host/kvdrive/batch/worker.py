"""What answers prompts: a model with its K and V in drives."""

from __future__ import annotations

import os
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Any

import torch

from kvdrive.config.run import RunConfig
from kvdrive.errors import InputError
from kvdrive.generation import batches
from kvdrive.generation.assistant import load_assistant
from kvdrive.targets.opening import open_drives
from kvdrive.weights.opening import load_from


@dataclass(frozen=True)
class Work:
    """How each prompt is answered: greedily, `new_tokens` at most."""

    config: RunConfig
    new_tokens: int


class Worker:
    """A loaded model and its open drives. Raises InputError, TargetError."""

    def __init__(self, work: Work, longest: int) -> None:
        """`longest`: characters of the longest prompt, which bound its tokens."""
        target = work.config.target
        threads = target.threads or os.cpu_count() or 1
        torch.set_num_threads(threads)
        self._work, self._opened = work, ExitStack()
        self._checkpoint = load_from(work.config)
        self._opened.callback(self._checkpoint.close)
        self._assistant = None
        if work.config.model.assistant:
            self._assistant = load_assistant(work.config.model, self._checkpoint)
        tokens = min(4 * longest + 8, self._checkpoint.context) + work.new_tokens
        capacity = max(target.capacity_bytes, 4 * tokens * self._checkpoint.shape.bytes_per_token)
        options = replace(target, threads=threads, capacity_bytes=capacity, group=self._checkpoint.shape.group)
        self._drives = self._opened.enter_context(open_drives(options))

    def answer(self, name: str, text: str) -> dict[str, Any]:
        """The answer as its line has it. A prompt that is too long gets an "error" instead of a "text"."""
        ids = self._checkpoint.encode(text)
        try:
            self._checkpoint.check_length(len(ids), self._work.new_tokens)
        except InputError as error:
            return {"id": name, "error": str(error)}
        batch = batches.batch([ids], self._work.new_tokens, stop_ids=self._checkpoint.stop_ids)
        done = batches.generate(
            self._checkpoint, batch, self._drives, self._work.config, assistant=self._assistant
        ).tokens[0]
        text = self._checkpoint.tokenizer.decode(done, skip_special_tokens=True)
        return {"id": name, "text": text, "prompt_tokens": len(ids), "new_tokens": len(done)}

    def close(self) -> None:
        """Release the drives and the weights."""
        self._opened.close()
