"""The list of checks, and the run of them."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from kvdrive.conformance.bench import Bench, MismatchError
from kvdrive.conformance.device import WITHOUT, Ability, Device
from kvdrive.errors import TargetError
from kvdrive.nvme.command_set import COMMANDS

Say = Callable[[str], None]
_MODULES = (
    "sessions", "attention", "rows", "ffn", "blocks", "memory", "admin", "ordering", "durability", "faults", "values",
)  # fmt: skip


@dataclass(frozen=True)
class Check:
    """A sentence that must be true of the drive, and the function that finds out. It is listed under `command`."""

    command: str
    sentence: str
    needs: Ability
    run: Callable[[Bench], None]


@dataclass
class Outcome:
    """`state`: passed, failed or skipped; `reason` says why a check failed or was skipped."""

    sentence: str
    state: str
    reason: str = ""


@dataclass
class Report:
    """The outcomes by command, and the statuses that each command has answered."""

    target: str
    identity: dict[str, Any]
    outcomes: dict[str, list[Outcome]] = field(default_factory=lambda: {name: [] for name in COMMANDS})
    seen: dict[str, set[str]] = field(default_factory=dict)

    def count(self, state: str) -> int:
        """The number of checks with a state."""
        return sum(outcome.state == state for outcomes in self.outcomes.values() for outcome in outcomes)

    @property
    def conforms(self) -> bool:
        """True if no check failed and at least one passed."""
        return self.count("failed") == 0 and self.count("passed") > 0

    def as_json(self) -> dict[str, Any]:
        """The report as plain values."""
        rows = {
            name: {
                "statuses_listed": sorted(COMMANDS[name].statuses),
                "statuses_answered": sorted(self.seen.get(name, set())),
                "checks": [vars(outcome) for outcome in outcomes],
            }
            for name, outcomes in self.outcomes.items()
        }
        counts = {state: self.count(state) for state in ("passed", "failed", "skipped")}
        return {"target": self.target, "drive": self.identity, "conforms": self.conforms, **counts, "commands": rows}


_CHECKS: list[Check] = []


def check(command: str, sentence: str, needs: Ability = Ability.NONE) -> Callable[..., Callable[[Bench], None]]:
    """Add a function to the list of checks."""

    def add(function: Callable[[Bench], None]) -> Callable[[Bench], None]:
        _CHECKS.append(Check(command, sentence, needs, function))
        return function

    return add


def all_checks() -> Sequence[Check]:
    """The checks in the order in which they run."""
    for module in _MODULES:
        importlib.import_module(f"kvdrive.conformance.{module}")
    return _CHECKS


def run(device: Device, only: Sequence[str] = (), say: Say = lambda _: None) -> Report:
    """Run the checks of all commands, or of those named in `only`. `say` gets each check's sentence before it runs.

    Raises MismatchError, TargetError if the drive cannot even be identified.
    """
    bench = Bench(device)
    shown = ("mn", "sn", "fr", "engine", "preset", "abi_version")
    report = Report(device.place, {name: bench.identity[name] for name in shown})
    with bench.borrowed_blocks():
        for one in all_checks():
            if only and one.command not in only:
                continue
            say(f"{one.command}: {one.sentence}")
            report.outcomes[one.command].append(_outcome(bench, one))
    report.seen = bench.seen
    return report


def _outcome(bench: Bench, one: Check) -> Outcome:
    missing = [ability for ability in one.needs if ability not in bench.device.abilities]
    if missing:
        return Outcome(one.sentence, "skipped", WITHOUT[missing[0]])
    try:
        one.run(bench)
        bench.clean_up()
    except MismatchError as error:
        bench.clean_up()
        return Outcome(one.sentence, "failed", str(error))
    except TargetError as error:
        bench.device.reset()
        bench.clean_up()
        return Outcome(one.sentence, "failed", f"the connection to the drive was lost: {error}")
    return Outcome(one.sentence, "passed")
