"""Numbers that the papers state as results, and that something here takes as an input; and who reads them.

`value` reads a number. `watched` collects the claims whose numbers are read meanwhile, so that a prediction that is
told its own answer is noticed, however far away it reads it. Two rules keep that complete, and tests hold them: no
number is read while a module is imported, and results are kept for later by `remembered`, not by `functools.cache`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import wraps
from typing import Any, ParamSpec, TypeVar

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")

_watches: ContextVar[tuple[set[str], ...]] = ContextVar("watches", default=())
_kept: list[dict[Any, Any]] = []


@dataclass(frozen=True)
class Stated:
    """`printed`: the number in `unit`, for pictures; models read `value`. `claim`: that it belongs to, itself or
    beside it in the text."""

    claim: str
    printed: float
    unit: str
    says: str

    @property
    def value(self) -> float:
        """The number. Reading it is noticed."""
        read(self.claim)
        return self.printed


def read(*claims: str) -> None:
    """Notice that numbers of these claims go into what is computed now: read, fitted to, or in a recorded result."""
    for watch in _watches.get():
        watch.update(claims)


@contextmanager
def watched() -> Iterator[set[str]]:
    """The claims whose numbers are read inside."""
    claims: set[str] = set()
    token = _watches.set((*_watches.get(), claims))
    try:
        yield claims
    finally:
        _watches.reset(token)


def remembered(function: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
    """Compute once for the same arguments, like `functools.cache`. A result from before has read the same numbers."""
    known: dict[Any, tuple[Result, Iterable[str]]] = {}
    _kept.append(known)

    @wraps(function)
    def result(*positional: Arguments.args, **named: Arguments.kwargs) -> Result:
        key = (positional, tuple(sorted(named.items())))
        if key not in known:
            with watched() as claims:
                known[key] = function(*positional, **named), claims
            return known[key][0]
        read(*known[key][1])
        return known[key][0]

    return result


def forget() -> None:
    """Drop everything that `remembered` keeps."""
    for known in _kept:
        known.clear()


KV_SAVED = Stated("INST-16", 88.1, "%", "time that one drive saves of FlexGen's access to K and V")
DENSE_SHARE = Stated("INST-07", 80.7, "%", "access to K and V in a step of one drive, dense, batch 64")
DENSE_SHARE_LARGE = Stated("INST-09", 93.6, "%", "the same with batch 256")
SECOND_SSD = Stated("INST-13", 1.0, "times", "FlexGen's throughput with two SSDs over one")
DEEPSPEED_GAIN = Stated("INST-08", 4.6, "% more", "one drive at batch 256 over DeepSpeed at batch 16")
DEEPSPEED_FALL = Stated("INST-04", 32.6, "times", "DeepSpeed at batch 16 over batch 32")
PAGES_KEEP = Stated("INST-25", 0.25, "of all", "pages of K that SparF 1/8 reads")

FLEXGEN_GAIN = Stated("HIL-24", 3.39, "times", "drives that attend, nothing else, over FlexGen from SSD")
KERNEL_WATTS = Stated("HIL-09", 16.08, "W", "power of the kernel with 5 queries per KV head")

PREFILL_SECONDS = Stated("AS-05", 0.360, "s", "prefill of 2K tokens of LLaMA-65B on four A100")
PREFILL_SHARE = Stated("AS-24", 41.0, "%", "prefill's share of the GPU's time, computed")
PREFILL_SHARE_LOADED = Stated("AS-24", 1.2, "%", "the same, loaded")

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
