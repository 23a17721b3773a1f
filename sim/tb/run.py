# SPDX-License-Identifier: Apache-2.0
"""Runs the tests of a top in one simulation. Runs each failing test again, alone and with a waveform."""

from __future__ import annotations

import contextlib
import json
import re
import xml.etree.ElementTree as ElementTree
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cocotb_tools.runner import Verilator

from rtl.kernels import Top
from tb.build import OUT, Simulation, simulation_of


@dataclass(frozen=True)
class Result:
    """`failures`: messages of failed tests by name; `waveforms`: their files. `report`: as in report.json."""

    top: Top
    tests: list[str]
    failures: dict[str, str]
    junit: Path
    log: Path
    report: dict[str, Any]
    waveforms: dict[str, Path] = field(default_factory=dict)

    def holes(self) -> list[str]:
        """Coverage bins that no test has hit."""
        return [
            f"{group}: {name}"
            for group, bins in self.report.get("coverage", {}).items()
            for name, hits in bins.items()
            if hits == 0
        ]


def run_top(top: Top, seed: int, *, small: bool = False, out: Path = OUT) -> Result:
    """Run every test of a top. Raises OpenHlsError if it does not compile."""
    result = simulate(simulation_of(top, out=out), seed, small=small)
    failed = [test for test in result.failures if test in result.tests]
    if failed:
        waves = simulation_of(top, waves=True, out=out)
        for test in failed:
            simulate(waves, seed, small=small, only=test)
            result.waveforms[test] = waves.binary / test / "dump.fst"
    if not small and not result.failures:
        result.failures.update({f"coverage, {hole}": "was never hit" for hole in result.holes()})
    return result


def simulate(simulation: Simulation, seed: int, *, small: bool, only: str = "", plusargs: Sequence[str] = ()) -> Result:
    """Run the simulation in its folder `run`, or a single test in a folder with its name."""
    top = simulation.top
    folder = simulation.binary / (only or "run")
    modules = ["tb.common.tests"]
    if any(one["kind"] == "m_axi" for one in top.interfaces):
        modules.append("tb.common.memory_tests")
    runner = Verilator()
    junit, log = folder / "junit.xml", folder / "log.txt"
    folder.mkdir(parents=True, exist_ok=True)
    for old in (junit, folder / "report.json"):
        old.unlink(missing_ok=True)
    with contextlib.suppress(SystemExit, RuntimeError):  # the results are in the file, if there is one
        runner.test(
            test_module=modules,
            hdl_toplevel=top.name,
            hdl_toplevel_lang="verilog",
            seed=seed,
            plusargs=["+verilator+rand+reset+2", f"+verilator+seed+{seed % 2**31 or 1}", *plusargs],
            extra_env={
                "TB_TOP": top.name,
                "TB_FOLDER": str(simulation.folder),
                "TB_REPORT": str(folder),
                "TB_SEED": str(seed),
                "TB_SMALL": str(int(small)),
            },
            waves=simulation.waves,
            build_dir=simulation.binary,
            test_dir=folder,
            results_xml=str(junit),
            log_file=log,
            test_filter=rf"\.{re.escape(only)}$" if only else None,
        )
    report = folder / "report.json"
    tests, failures = _read(junit)
    return Result(top, tests, failures, junit, log, json.loads(report.read_text()) if report.exists() else {})


def _read(junit: Path) -> tuple[list[str], dict[str, str]]:
    """The tests of a JUnit file and the messages of failed ones. A simulation that crashed counts as failed."""
    if not junit.exists():
        return [], {"simulation": "ended without results"}
    tests: list[str] = []
    failures: dict[str, str] = {}
    for case in ElementTree.parse(junit).iter("testcase"):
        name = case.get("name", "")
        tests.append(name)
        for fault in (*case.iter("failure"), *case.iter("error")):
            failures[name] = fault.get("message") or fault.get("error_msg") or (fault.text or "").strip()
    return tests, failures
