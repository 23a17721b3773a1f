"""The performance model beside this machine: steps of the cpu target and of the emulator, predicted and measured.

A step is the attention of all layers. The cpu target's steps are predicted from its rate and its fixed time, which two
contexts show (processor time of one thread, K and V in the page cache), or from the disk's own rate (wall time, around
the page cache; `validate_disk.py`). The emulator's device times are those of a step with contents through the runtime;
the model asks the drive library for one layer without contents. For SparF and policy groups it takes a rate and a fixed
time, too, and the work of the busiest die or channel in place of the bytes. What is read is counted, not predicted:
which pages these policies read depends on the contents.
Contexts that predict others are not reported.
Prints each setting with its prediction, and writes a JSON file and docs/performance.md. With --only the other rows of
the page stay as they are.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import statistics
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from attention_states import IN_RUNS, SCATTERED, Shape
from kvdrive.choices import KV_FORMATS
from kvdrive.kvcache import formats
from kvdrive.perf import drives, hardware
from kvdrive.targets.cpu import CpuDrive
from kvdrive.targets.emulator import Emulator
from kvdrive.targets.opening import drive_folder
from perf_steps import Outcome, Setting, Stored, Timed, from_known
from validate_disk import disk

PAGE = Path(__file__).parents[1] / "docs/performance.md"
CONTEXTS = (4096, 8192, 16384, 32768, 65536)
GROUPS = (1, 4, 8)
SPARSE = ("sparf", "groups")
BOUND = 0.15
PARTS = {"cache": "cpu, page cache", "disk": "cpu, disk", "emulator": "emulator"}
PRESETS = {"smartssd": hardware.SMARTSSD, "instcsd": hardware.INSTCSD}


def settings(target: str, place: str, data: str, contexts: Sequence[int]) -> list[Setting]:
    """All policies and formats; of scattered K only the policies to which it makes a difference."""
    kinds = [(policy, "f16") for policy in SPARSE]
    if data == IN_RUNS:
        kinds = [("exact", name) for name in KV_FORMATS] + kinds
    return [
        Setting(target, place, policy, group, tokens, data, name)
        for policy, name in kinds
        for group in GROUPS
        for tokens in contexts
    ]


def cpu_target(path: Path, rounds: int, contexts: Sequence[int] = CONTEXTS) -> list[Outcome]:
    """Steps of the cpu target: the fastest of several rounds, which other work disturbs least, in different orders."""
    shape = Shape(layers=2, group=max(GROUPS), tokens=max(contexts))
    asked = settings("cpu", "page cache", IN_RUNS, contexts)
    with CpuDrive(path, os.cpu_count() or 1, 16 * shape.kv_bytes, format=True) as drive:
        stored = Stored(drive, shape, IN_RUNS, asked)
    times: dict[Setting, list[Timed]] = {setting: [] for setting in asked}
    with CpuDrive(path, 1, cache_bytes=1 << 40) as drive:
        for number in range(rounds + 1):
            random.Random(number).shuffle(asked)  # a step behind a long one finds less in the processor's caches
            for setting in asked:
                timed = stored.step(drive, setting, time.process_time)
                if number:  # the first round warms up
                    times[setting].append(timed)
    return from_known({setting: min(found, key=lambda one: one.seconds) for setting, found in times.items()})


def emulator(folder: Path, contexts: Sequence[int] = CONTEXTS) -> list[Outcome]:
    """Device times of steps; the same on every machine. Sparse ones are predicted from the busiest die or channel."""
    shape = Shape(layers=2, group=max(GROUPS), tokens=max(contexts))
    outcomes = []
    for preset in PRESETS:
        for data in (IN_RUNS, SCATTERED):
            path = folder / f"{preset}-{data}.kv".replace(" ", "-")
            asked = settings("emulator", preset, data, contexts)
            times: dict[Setting, Timed] = {}
            with Emulator(path, "fast", os.cpu_count() or 1, 16 * shape.kv_bytes, preset=preset) as target:
                stored = Stored(target, shape, data, asked)
                for setting in asked:
                    if setting.policy != "exact":
                        times[setting] = stored.on_flash(target, setting)
                        continue
                    before = target.device_ns()
                    size = stored.step(target, setting).size
                    times[setting] = Timed(size, (target.device_ns() - before) / 1e9)
            path.unlink()
            exact = {one: timed for one, timed in times.items() if one.policy == "exact"}
            outcomes += [Outcome(one, _device_seconds(one, shape), timed.seconds) for one, timed in exact.items()]
            outcomes += from_known({one: timed for one, timed in times.items() if one not in exact})
    return outcomes


def _device_seconds(setting: Setting, shape: Shape) -> float:
    """What the model says of an exact step."""
    layer = drives.attention_seconds(
        PRESETS[setting.place],
        shape.kv_heads,
        setting.tokens,
        shape.head_dim,
        setting.group,
        formats.named(setting.kv_format),
    )
    return shape.layers * layer


HEAD = """\
# The performance model, measured

`make validate-perf` predicts the attention of decode steps and compares: two layers of 4 KV heads, 128 elements, 4K to
64K tokens; exact attention to K and V as f16, int8, int4 and fp8; SparF 1/8 and policy groups 1/8 of f16. It writes
this page.

- **cpu target, page cache**: processor time of one thread, predicted from the bytes that the drive counts, with a rate
  and a fixed time that the steps at 4K and 32K tokens show; reported at 8K, 16K and 64K. The fastest of several
  rounds in different orders.
- **cpu target, disk**: wall time, around the page cache. Predicted from plain reads of as many bytes of the same file,
  in pieces of the drive's size with as many in flight, while the engine works on the same step from the page cache,
  right before and after the step. Medians of several rounds.
- **emulator**: modelled device time of a step through the runtime, with contents. *exact*: predicted by the drive
  library for one layer without contents, for each format. *sparf*, *groups*: as above, but from the time that
  the busiest die senses or the busiest channel transfers, layer by layer in the drive's timeline: the tokens that a
  query chooses do not lie on all dies alike, and the step waits for the one with most of them. The mean of four
  queries, for made-up K whose neighbours are similar (in runs) or not (scattered). These
  numbers are the same on every machine, and a test keeps them within 15 %.

What goes in is not checked. The emulator is the drive library itself: its rows say that a step without contents, one
layer instead of two, or the busiest part of a step's own timeline stands for the whole step, not that a real drive
takes that long. The rows of a disk have the disk's rate of the same minutes as an input, and say that nothing but reads
and the engine takes time. The rows of the page cache predict contexts that no input is from.

"""


def page(outcomes: list[Outcome], old: str = "") -> str:
    """Summaries and rows of the parts that were measured, and those of the other parts from an `old` page."""
    measured, before = summaries(outcomes), _sentences(old)
    said = [measured.get(part) or before.get(part) for part in PARTS.values()]
    kept = [line for line in old.splitlines() if (part := _part(line)) and part not in measured]
    rows = sorted(kept + table(outcomes), key=lambda line: list(PARTS.values()).index(_part(line)))
    lines = [
        HEAD + " ".join(filter(None, said)) + "\n",
        "| target | where | policy | format | data | queries per head | error at each context |",
        "|---" * 7 + "|",
        *rows,
    ]
    return "\n".join(lines) + "\n"


def _sentences(text: str) -> dict[str, str]:
    """Summaries on a page, by part."""
    found = re.finditer(rf"({'|'.join(PARTS.values())}): \d+ of \d+ settings .*?, largest [\d.]+ %\.", text)
    return {match[1]: match[0] for match in found}


def _part(line: str) -> str:
    """The part of a row of the page; empty for other lines."""
    cells = line.split(" | ")
    if not line.startswith(("| cpu |", "| emulator |")):
        return ""
    return "emulator" if line.startswith("| emulator |") else f"cpu, {cells[1]}"


def table(outcomes: list[Outcome]) -> list[str]:
    """Rows by target, place, policy, format and data; the error of each group and context."""
    lines = []
    rows: dict[tuple[str, str, str, str, str, int], list[Outcome]] = {}
    for one in outcomes:
        s = one.setting
        rows.setdefault((s.target, s.place, s.policy, s.kv_format, s.data, s.group), []).append(one)
    for names, found in rows.items():
        cells = ", ".join(f"{o.setting.tokens // 1024}K {100 * o.error:+.1f} %" for o in found)
        lines.append(f"| {' | '.join(map(str, names))} | {cells} |")
    return lines


def listing(outcomes: list[Outcome]) -> str:
    """A line for each setting: predicted and measured milliseconds, and the error."""
    lines = []
    for one in outcomes:
        s = one.setting
        name = f"{s.target:8} {s.place:10} {s.policy:6} {s.kv_format:4} {s.data:9} g={s.group} {s.tokens // 1024:2}K"
        missed = "" if abs(one.error) <= BOUND else "  MISSED"
        times = f"predicted {1e3 * one.predicted:10.3f} ms, measured {1e3 * one.measured:10.3f} ms"
        lines.append(f"{name}  {times}, {100 * one.error:+6.1f} %{missed}")
    return "\n".join(lines)


def summaries(outcomes: list[Outcome]) -> dict[str, str]:
    """How many are within the bound, by target and place of K and V."""
    sentences = {}
    for name, chosen in (
        ("cpu, page cache", [one for one in outcomes if one.setting.place == "page cache"]),
        ("cpu, disk", [one for one in outcomes if one.setting.place == "disk"]),
        ("emulator", [one for one in outcomes if one.setting.target == "emulator"]),
    ):
        errors = [abs(one.error) for one in chosen]
        if errors:
            within = sum(error <= BOUND for error in errors)
            sentences[name] = (
                f"{name}: {within} of {len(errors)} settings within {100 * BOUND:.0f} %, median "
                f"{100 * statistics.median(errors):.1f} %, largest {100 * max(errors):.1f} %."
            )
    return sentences


def main() -> None:
    """Measure, compare, write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--contexts", type=int, nargs="+", default=CONTEXTS, help="others than all: the page stays")
    parser.add_argument("--only", choices=PARTS, help="measure this part; the page keeps its other rows")
    parser.add_argument("--json", type=Path, default=Path("out/validate_perf.json"))
    parser.add_argument("--page", type=Path, default=PAGE)
    given = parser.parse_args()
    outcomes: list[Outcome] = []
    with drive_folder(None) as folder, tempfile.TemporaryDirectory(dir=folder) as name:
        place = Path(name)
        parts = {
            "cache": lambda: cpu_target(place / "cpu.kv", given.rounds, given.contexts),
            "disk": lambda: disk(place / "disk.kv", os.cpu_count() or 1, given.rounds, sorted(given.contexts)[-2:]),
            "emulator": lambda: emulator(place, given.contexts),
        }
        for part in [parts[given.only]] if given.only else parts.values():
            began = time.perf_counter()
            outcomes += (found := part())
            for file in place.iterdir():
                file.unlink()
            print(listing(found), f"\n({time.perf_counter() - began:.0f} s)\n", flush=True)
    print(" ".join(summaries(outcomes).values()))
    if tuple(given.contexts) == CONTEXTS:
        given.json.parent.mkdir(parents=True, exist_ok=True)
        rows = [asdict(one) | {"error": one.error} for one in outcomes]
        given.json.write_text(json.dumps({"bound": BOUND, "cpus": os.cpu_count(), "rows": rows}, indent=1) + "\n")
        given.page.write_text(page(outcomes, given.page.read_text() if given.page.exists() else ""))


if __name__ == "__main__":
    main()
