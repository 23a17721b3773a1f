"""Numbers that AttentionStore states as results, and that a model here takes as an input, or a picture shows."""

from __future__ import annotations

from kvdrive.study.stated import Stated

PREFILL_SECONDS = Stated("AS-05", 0.360, "s", "prefill of 2K tokens of LLaMA-65B on four A100")
