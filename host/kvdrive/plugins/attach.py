"""The names by which the benchmarks know `attach` and `RunConfig`."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from transformers import PreTrainedModel

from kvdrive.config.run import RunConfig
from kvdrive.plugins.transformers import Attachment, attach
from kvdrive.targets.group import Drives

__all__ = ["AttentionOptions", "attach", "attach_to"]


def AttentionOptions(attention: str = "exact", ratio: Fraction | None = None, **fields: Any) -> RunConfig:
    """`RunConfig` with these fields."""
    return RunConfig.of(attention=attention, ratio=ratio, **fields)


def attach_to(model: PreTrainedModel, drives: Drives, config: RunConfig) -> Attachment:
    """`attach` with all options in one value."""
    return attach(model, drives, config=config)
