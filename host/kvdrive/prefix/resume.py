"""How a request resumes a stored history: load it into memory, attend to it in the drive, or compute it again."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, get_args

from kvdrive.kvcache.loading import LoadPlan, LoadStats
from kvdrive.perf.stored_rates import StoredRates
from kvdrive.prefix.rates import Rates

Strategy = Literal["load", "attend", "recompute"]
STRATEGIES: tuple[Strategy, ...] = get_args(Strategy)
ON_DRIVES: tuple[Strategy, ...] = ("attend", "recompute")  # where sequences are not in memory
_MEMORY = 0.5  # weight of what was known before a load was measured
log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Turn:
    """A request: tokens that are stored, new ones behind them, and those that it will generate.

    `bytes`: K and V of the history; `layers`: of the model. `in_memory`: it runs in memory, unless it attends on the
    drives. `copied`: the memory tier has the history.
    """

    history: int
    new_tokens: int
    steps: int
    bytes: int
    layers: int
    in_memory: bool = True
    copied: bool = False


_NO_FORK = 0.02  # share of the time for computing again that opening the stored session may take beside it
_SLOWER = 0.05  # share of the same time by which attending may be slower: it writes nothing again
_LITTLE = 0.05  # seconds that do not matter beside these writes


@dataclass(frozen=True)
class Choice:
    """`seconds`: what each strategy is estimated to take. `plan`: how to load, for "load".

    `forks`: the stored session is opened, so that what is computed again is not written again.
    """

    strategy: Strategy
    seconds: dict[Strategy, float]
    plan: LoadPlan | None = None
    forks: bool = True


def estimate(rates: Rates, turn: Turn) -> dict[Strategy, float]:
    """Seconds of each strategy until the last token."""
    context = turn.history + turn.new_tokens
    load, new = load_seconds(rates, turn), rates.prefill(turn.history, turn.new_tokens)
    in_memory = turn.steps * (rates.step + rates.step_pair * context)
    asked = rates.attend_token + rates.attend_pair * context
    on_drives = turn.steps * (rates.step + asked)
    return {
        # layers load while others compute; the first one's load is not hidden
        "load": rates.open + max(load, new) + min(load, new) / max(turn.layers, 1) + in_memory,
        "attend": rates.open + turn.new_tokens * (rates.token + asked) + on_drives,
        "recompute": rates.prefill(0, context) + (in_memory if turn.in_memory else on_drives),
    }


def load_seconds(rates: Rates, turn: Turn) -> float:
    """Reading the history's K and V from the drives."""
    return rates.load_byte * turn.bytes + rates.load_command * turn.layers


def read_buffer(rates: Rates, turn: Turn) -> int:
    """Bytes that have to be loaded before the prefill of the new tokens begins, so that it never waits.

    AttentionStore's S_buf = B (T_load L_hist - T_pref L_new).
    """
    missing = load_seconds(rates, turn) - rates.prefill(turn.history, turn.new_tokens)
    return int(max(0.0, missing) / rates.load_byte) if rates.load_byte else 0


class Costs:
    """The rates of one model on one group of drives: measured once, stored in `path` under `key`, corrected by loads.

    `path` None: nowhere. `clock` gives the seconds of loads.
    """

    def __init__(
        self, path: Path | None, key: str, measure: Callable[[], Rates], clock: Callable[[], float] = time.perf_counter
    ) -> None:
        self.clock = clock
        self._file = StoredRates(path)
        self._key = key
        self._measure = measure
        self._rates: Rates | None = None
        self._memory_byte = 0.0  # seconds to load a byte from the memory tier; 0: before the first load from there

    @property
    def rates(self) -> Rates:
        """Read from the file, or measured now, which takes seconds. Raises CommandError, TargetError."""
        if not self.known:
            self.rates = self._measure()
        assert self._rates is not None
        return self._rates

    @rates.setter
    def rates(self, rates: Rates) -> None:
        self._rates = rates
        self._file.put(self._key, rates)

    @property
    def known(self) -> bool:
        """True if the rates were measured, now or before: `choose` answers at once."""
        if self._rates is None:
            self._rates = self._file.get(self._key, Rates)
        return self._rates is not None

    def measure(self) -> None:
        """Measure now what is not known yet, so that no request waits for it. Raises CommandError, TargetError."""
        log.info("the rates of model and drives: %s", self.rates)

    def choose(self, turn: Turn, strategies: tuple[Strategy, ...]) -> Choice:
        """The fastest of `strategies`. A sequence on the drives whose history would be computed again is written again
        as well, so there "attend" may be a little slower.

        Raises CommandError, TargetError when the rates have to be measured.
        """
        rates = self.rates
        if turn.copied:
            rates = replace(rates, load_byte=self._memory_byte, load_command=0.0)
        seconds = estimate(rates, turn)
        best = min(strategies, key=lambda one: seconds[one])
        if best == "recompute" and not turn.in_memory:
            slower = seconds["attend"] - seconds[best]
            attends = slower <= max(_SLOWER * rates.prefill(0, turn.history + turn.new_tokens), _LITTLE)
            return Choice("attend" if attends else best, seconds, forks=attends)
        if best != "load":
            return Choice(best, seconds, forks=best == "attend" or rates.open <= _NO_FORK * seconds[best])
        plan = LoadPlan(read_buffer(rates, turn), rates.prefill(0, turn.history), self.clock)
        return Choice(best, seconds, plan)

    def loaded(self, stats: LoadStats) -> None:
        """Correct the rate of loads by one that was measured, whole or not."""
        if stats.from_memory:
            self._memory_byte = stats.seconds / max(stats.bytes, 1)
        elif stats.bytes:
            before, now = self.rates, stats.seconds / stats.bytes
            self.rates = replace(before, load_byte=_MEMORY * before.load_byte + (1 - _MEMORY) * now)
