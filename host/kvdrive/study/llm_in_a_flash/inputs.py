"""Inputs of the models that are results of "LLM in a flash"."""

from __future__ import annotations

from kvdrive.study.inputs import Input
from kvdrive.study.llm_in_a_flash import stated

FLASH_SEQUENTIAL = Input(lambda: stated.FLASH_SEQUENTIAL.value, "B/s", "reads of whole matrices on an M1 Max, table 2")
FLASH_ROWS = Input(lambda: stated.FLASH_ROWS.value, "B/s", "reads of single rows on an M1 Max, table 2")
FLASH_BUNDLES = Input(lambda: stated.FLASH_BUNDLES.value, "B/s", "reads of bundled rows and columns, table 2")
FLASH_NEW = Input(
    lambda: stated.FLASH_NEW.value / 100,
    "of a layer's neurons",
    "new neurons of a token with a window of 4 tokens",
)
