"""Inputs of the models that are results of AttentionStore."""

from __future__ import annotations

from kvdrive.perf.shapes import LLAMA_65B
from kvdrive.study.attention_store import reuse, stated
from kvdrive.study.inputs import Input

A100_USE = Input(
    lambda: reuse.efficiency(LLAMA_65B, 2048, stated.PREFILL_SECONDS.value, 4),
    "of its FLOP",
    "2K tokens of LLaMA-65B in 360 ms on four A100; used for every matrix of many rows on A100 and H100",
)
