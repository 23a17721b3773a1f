# SPDX-License-Identifier: Apache-2.0
"""The user's own testbench: run as software, and its calls of the top repeated on the RTL."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from openhls.cosim import (
    Cosimulation,
    argument_table,
    check_readable,
    compile_reference,
    included,
    queue_lines,
    replayed,
    simulate,
)
from openhls.cosim.causes import cause
from openhls.emit.design import Design
from openhls.errors import OpenHlsError

CHECKS = ("-fsanitize=address", "-g1")  # it knows how much lies behind a pointer
_FAILED = 97  # status of Recording::fail
_STDERR = 2


@dataclass(frozen=True)
class TestbenchRun:
    """`status`: what the testbench's main returned. `calls`: of the top. `found`: the same calls on the RTL."""

    status: int
    calls: int
    found: Cosimulation


def run_testbench(
    files: Sequence[Path], folder: Path, includes: tuple[Path, ...] = (), defines: tuple[str, ...] = ()
) -> int:
    """Compiles sources and testbenches with g++ and runs them in the folder of the last file; returns the status
    of `main`. Raises OpenHlsError where g++ refuses them."""
    objects = _objects(files, folder, includes, tuple(f"-D{each}" for each in defines))
    program = folder.resolve() / "testbench"
    simulate.run(["g++", *objects, "-o", program])
    return subprocess.run([program], cwd=files[-1].resolve().parent, check=False).returncode


def replay_testbench(
    design: Design,
    sources: Sequence[Path],
    function: str,
    benches: Sequence[Path],
    *,
    includes: tuple[Path, ...] = (),
    defines: tuple[str, ...] = (),
    output: int = _STDERR,
    patience: int = simulate.PATIENCE,
    explain: bool = False,
) -> TestbenchRun:
    """Run the testbench as software and record each call of the top, then repeat the calls on the RTL, with stalls,
    without, and after resets. `function`: the top's name with its namespaces. `output`: where the testbench's own
    output goes; `explain`: where results differ, look for the cause in the C++. Raises OpenHlsError where the testbench
    fails before it ends, and where its calls cannot be recorded."""
    check_readable(design)

    def run_again(flags: tuple[str, ...]) -> tuple[str, bytes] | None:
        said = _recorded(design, sources, function, benches, includes, defines, subprocess.DEVNULL, flags)
        return said.stderr, _record(design).read_bytes()

    done = _recorded(design, sources, function, benches, includes, defines, output)
    record = _record(design)
    calls = int.from_bytes(record.read_bytes()[:4], "little") if record.exists() else 0
    if done.returncode < 0 or done.returncode == _FAILED or "AddressSanitizer" in done.stderr:
        said = "\n".join(done.stderr.strip().splitlines()[:12])
        raise OpenHlsError(f"the testbench failed as software:\n{said}")
    if calls == 0:
        raise OpenHlsError(f"the testbench ended with status {done.returncode} and never called {function}")
    found = replayed(design, record, 1, patience)
    if found.problem and explain:
        found = replace(found, cause=cause(design, (*sources, *benches), run_again))
    return TestbenchRun(done.returncode, calls, found)


def _record(design: Design) -> Path:
    return design.folder.resolve() / "calls.bin"


def _recorded(
    design: Design,
    sources: Sequence[Path],
    function: str,
    benches: Sequence[Path],
    includes: tuple[Path, ...],
    defines: tuple[str, ...],
    output: int,
    more: tuple[str, ...] = (),
) -> subprocess.CompletedProcess[str]:
    """Runs the testbench as software; `more` are flags of g++."""
    flags = (*CHECKS, *(f"-D{each}" for each in defines), *more)
    recorder = design.folder / "recorder.cpp"
    recorder.write_text(_recorder_text(design, [each.resolve() for each in sources], function))
    compile_reference(recorder, includes, recorder.with_suffix(".o"), flags)
    objects = _objects(benches, design.folder, includes, flags)
    _redirect(objects, recorder.with_suffix(".o"), function)
    program = design.folder.resolve() / "testbench"
    simulate.run(["g++", *CHECKS, *more, recorder.with_suffix(".o"), *objects, "-o", program])
    environment = {**os.environ, "OPENHLS_RECORD": str(_record(design))}
    where = benches[-1].resolve().parent
    return subprocess.run(
        [program], cwd=where, env=environment, stdout=output, stderr=subprocess.PIPE, text=True, check=False
    )


def _objects(files: Sequence[Path], folder: Path, includes: tuple[Path, ...], flags: tuple[str, ...]) -> list[Path]:
    objects = [folder / f"{number}_{file.stem}.o" for number, file in enumerate(files)]
    for file, target in zip(files, objects, strict=True):
        compile_reference(file.resolve(), includes, target.resolve(), flags)
    return objects


def _recorder_text(design: Design, sources: Sequence[Path], function: str) -> str:
    return f"""{included("recorder.hpp", sources, function)}
{queue_lines(design, "top")}

const std::vector<openhls::Argument>& openhls::arguments() {{
  static const std::vector<Argument> all = {argument_table(design, {}, {})};
  return all;
}}

template struct openhls::Recorded<&{function}>;
"""


def _redirect(objects: Sequence[Path], recorder: Path, function: str) -> None:
    """Let the testbench's calls of the top call `Recorded<top>::call` instead."""
    names = simulate.run(["nm", "--defined-only", "--format=just-symbols", recorder]).split()
    readable = simulate.run(["nm", "--defined-only", "--demangle", "--format=just-symbols", recorder]).splitlines()
    pairs = dict(zip(names, readable, strict=True))
    tops = {name for name, text in pairs.items() if text == function or text.startswith(f"{function}(")}
    (call,) = (name for name, text in pairs.items() if "openhls::Recorded<" in text and ">::call(" in text)
    for path in objects:
        if tops & set(simulate.run(["nm", "--defined-only", "--format=just-symbols", path]).split()):
            raise OpenHlsError(f"the testbench includes the source of {function}: its calls cannot be told apart")
        for name in tops:
            simulate.run(["objcopy", f"--redefine-sym={name}={call}", path])
