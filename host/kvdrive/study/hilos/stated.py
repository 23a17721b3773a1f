"""Numbers that HILOS states as results, and that a model here takes as an input, or a picture shows."""

from __future__ import annotations

from kvdrive.study.stated import Stated

FLEXGEN_GAIN = Stated("HIL-24", 3.39, "times", "drives that attend, nothing else, over FlexGen from SSD, at most")
