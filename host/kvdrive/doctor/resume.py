"""The measured rates by which requests choose how to go on with a stored history."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from kvdrive.doctor.finding import Finding, State
from kvdrive.perf.stored_rates import StoredRates
from kvdrive.prefix.rates import Rates

_GIVES = "the choice between loading, attending in the drive and computing again"
_REMEDY = "run kvdrive serve once with this drive: it measures when it starts; docs/guide/server.md explains"


def resume(files: list[Path]) -> Iterator[Finding]:
    """What was measured for each model, by the files beside the drives' indices (`sessions.rates.costs_file`)."""
    found = [(key, rates, path) for path in files for key, rates in StoredRates(path).all(Rates).items()]
    if not found:
        detail = "no measured rates are stored; they are measured at the first use"
        yield Finding("sessions", "resume rates", State.missing, detail, _GIVES, _REMEDY)
    for key, rates, path in found:
        model, drives, threads = key.split("/")
        name = f"resume rates of model {model}"
        detail = f"{text(rates)} ({drives} drives, {threads} threads, {path})"
        yield Finding("sessions", name, State.ok, detail, _GIVES)


def text(rates: Rates) -> str:
    """The rates of the three ways, for people."""
    load = f"load {1e-9 / rates.load_byte:.3g} GB/s" if rates.load_byte else "load: no time"
    attend = f"attend {1e3 * rates.attend_token:.3g} ms a token + {1e6 * rates.attend_pair:.3g} us a pair"
    compute = f"recompute {1e3 * rates.token:.3g} ms a token + {1e6 * rates.pair:.3g} us a pair"
    return f"{load}; {attend}; {compute}; opening a session {1e3 * rates.open:.3g} ms"
