"""The lm-eval harness on a model whose KV cache lives in a drive.

    kvdrive lm-eval --model kvdrive --model_args pretrained=models/mini,engine=hls --tasks ...

Importing this module adds the model to the harness's list. The context of a request is prefilled on the host; every
token of its continuation is a decode step in the drive.
"""

from __future__ import annotations

import os
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from kvdrive.config.run import GROUPS
from kvdrive.config.text import configured, flag_of, named
from kvdrive.errors import InputError
from kvdrive.eval.perplexity import release
from kvdrive.eval.scoring import rate
from kvdrive.plugins.transformers import attach
from kvdrive.targets.opening import open_drives
from kvdrive.weights.opening import load_from

try:
    from lm_eval.api.registry import register_model
    from lm_eval.models.huggingface import HFLM
    from tqdm import tqdm
except ImportError as missing:
    raise InputError("lm-eval is not installed: pip install 'kvdrive[eval]'") from missing


ALONE = (
    "model",
    "device",
    "assistant",
    "lookup",
    "accepted",
    "mini_batches",
)  # said otherwise, or not for single sequences
OPTIONS = [name for name in named(*GROUPS) if name not in ALONE]


@register_model("kvdrive")
class DriveLM(HFLM):  # type: ignore[misc]
    """`pretrained`: a local checkpoint folder or "mini". `options`: those of `kvdrive generate` by the names of their
    flags, as drive=FOLDER or kv_format=int8; and the harness's own. Raises KvdriveError.
    """

    def __init__(
        self, pretrained: str, max_length: int | None = None, batch_size: int | str = 1, **options: Any
    ) -> None:
        if str(batch_size) != "1":
            raise InputError("the drive takes one sequence at a time here: leave batch_size at 1")
        options.pop("device", None)  # the host part runs on the CPU
        flags = {flag_of(name) for name in OPTIONS}
        harness = {name: value for name, value in options.items() if name not in flags}
        config = configured(OPTIONS, options).changed(model=str(pretrained))
        config = config.changed(threads=config.target.threads or os.cpu_count() or 1)
        torch.set_num_threads(config.target.threads)
        checkpoint = load_from(config)
        self._open = ExitStack()
        target = self._open.enter_context(open_drives(replace(config.target, group=checkpoint.shape.group)))
        self._attached = self._open.enter_context(attach(checkpoint.model, target, config=config))
        super().__init__(
            pretrained=checkpoint.model,
            tokenizer=checkpoint.tokenizer,
            max_length=max_length,
            batch_size=1,
            device="cpu",
            **harness,
        )

    def close(self) -> None:
        """Detach the model and close the drive."""
        self._open.close()

    def _loglikelihood_tokens(
        self,
        requests: list[tuple[Any, list[int], list[int]]],
        disable_tqdm: bool = False,
        override_bs: int | None = None,
    ) -> list[tuple[float, bool]]:
        """For each (texts, context, continuation): (log likelihood, True if greedy decoding continues so)."""
        answers = []
        for texts, context, continuation in tqdm(requests, desc="kvdrive", disable=disable_tqdm):
            kept = np.array((context + continuation)[-(self.max_length + 1) :], np.int64)
            split = len(kept) - len(continuation)
            cache = self._attached.cache()
            scores = rate(self.model, kept[:split], kept[split:], cache)
            release(cache)
            answer = (-float(scores.nats.sum()), bool(scores.first.all()))
            answers.append(answer)
            if texts is not None:
                self.cache_hook.add_partial("loglikelihood", texts, answer)
        return answers

    def _model_generate(self, context: torch.Tensor, max_length: int, stop: list[str], **options: Any) -> torch.Tensor:
        cache = self._attached.cache()
        try:
            made: torch.Tensor = super()._model_generate(context, max_length, stop, past_key_values=cache, **options)
        finally:
            release(cache)
        return made
