"""Numbers that "LLM in a flash" states as results, and that a model here takes as an input, or a picture shows."""

from __future__ import annotations

from dataclasses import dataclass

from kvdrive.study.stated import Stated

FLASH_SEQUENTIAL = Stated("LIF-01", 6.1e9, "B/s", "reads of whole matrices, table 2")
FLASH_PREDICTED = Stated("LIF-03", 0.9e9, "B", "bytes of the rows that a predictor chooses, table 2")
FLASH_ROWS = Stated("LIF-03", 1.25e9, "B/s", "reads of single rows, table 2")
FLASH_NEW = Stated("LIF-04", 2.4, "%", "new neurons of a token with a window of 4 tokens")
FLASH_BUNDLES = Stated("LIF-05", 2.25e9, "B/s", "reads of bundled rows and columns, table 2")
WINDOW_NEURONS = Stated("LIF-21", 24.0, "%", "neurons in memory with a window of 4 or 5 tokens")
PREDICTOR_SHARE = Stated("LIF-21", 1.25, "%", "the predictor's share of the model")


@dataclass(frozen=True)
class Token:
    """Milliseconds of a token of OPT-6.7B on a machine of table 3: what is not I/O, and all of it; naive, and with
    everything."""

    naive_rest: Stated
    rest: Stated
    naive: Stated
    everything: Stated


def _token(claim: str, *milliseconds: float) -> Token:
    says = ("naive without I/O", "with everything, without I/O", "naive", "with everything")
    numbers = zip(milliseconds, says, strict=True)
    return Token(*(Stated(claim, number, "ms", f"a token, {what}") for number, what in numbers))


TOKENS = {
    "CPU": _token("LIF-06", 986, 58 + 506, 3182, 669),
    "Metal M1": _token("LIF-07", 193, 35 + 438, 2389, 565),
    "Metal M2": _token("LIF-08", 125, 8 + 271, 2270, 305),
    "RTX 4090": _token("LIF-09", 22, 34 + 20, 2218, 84),
}
