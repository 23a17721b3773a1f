"""The csim runner: kernels equal the golden model, and the runner detects faults."""

import json
import subprocess
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest

from compiled.build import compiler_version, objects
from compiled.recipe import PLAIN, ROOT, Unit
from compiled.store import Store
from csim import argtopk, build, run, vectors
from openhls import store
from rtl.kernels import find_tops

SEED = 20
FEWEST = {"primitives": 40}  # cases, each of many words; of any other testbench 100
STREAMS = {"argtopk": {"key_beats", "groups", "masks"}, "page_filter": {"chunks", "marked"}}


CasesOf = Callable[[str], Path]
LARGE = ("attention", "attention_codes", "group_choice")  # half a minute each to compile under sanitizers


def in_groups(kernels: Iterable[str], slow: Collection[str] = ()) -> list:
    """One group for a kernel, so that its cases are computed once."""
    groups = {name: pytest.mark.xdist_group(f"csim-{name}") for name in kernels}
    return [
        pytest.param(name, marks=[mark, pytest.mark.slow] if name in slow else mark) for name, mark in groups.items()
    ]


@pytest.mark.parametrize("kernel", in_groups(build.kernels()))
def test_kernel_equals_golden(kernel: str, cases_of: CasesOf) -> None:
    """The reduced set of cases, where all stages advance in lockstep."""
    compare(kernel, cases_of(kernel), sanitize=False)


@pytest.mark.parametrize("kernel", in_groups(build.kernels(), slow=LARGE))
def test_kernel_equals_golden_under_sanitizers(kernel: str, cases_of: CasesOf) -> None:
    """The same, where each stage runs ahead."""
    compare(kernel, cases_of(kernel), sanitize=True)


def compare(kernel: str, cases: Path, *, sanitize: bool) -> None:
    """A program that has passed says the same of the same cases again: its report is kept."""
    program = build.build(kernel, sanitize=sanitize)

    def run_once(folder: Path) -> None:
        found = run.run_cases(kernel, cases, sanitize=sanitize)
        assert (found.mismatches, found.shown) == (0, [])
        (folder / "report.json").write_text(json.dumps(asdict(found)))

    around = store.texts([Path(run.__file__), Path(build.__file__), Path(__file__)])
    parts = [kernel, str(sanitize), *around, program.read_bytes(), cases.read_bytes()]
    report = store.kept("csim", parts, run_once) / "report.json"
    result = run.Result(**json.loads(report.read_text()))
    assert (result.mismatches, result.shown) == (0, [])
    assert result.cases >= FEWEST.get(kernel, 100)
    assert result.values > result.cases
    assert {stream["name"] for stream in result.streams} >= STREAMS.get(kernel, set())


@pytest.mark.slow
@pytest.mark.parametrize("kernel", build.kernels())
def test_kernel_equals_golden_in_all_cases(kernel: str) -> None:
    result = run.run_kernel(kernel, SEED, small=False)
    assert (result.mismatches, result.shown) == (0, [])
    assert result.cases >= FEWEST.get(kernel, 100)


def test_a_wrong_expectation_is_reported(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    original = argtopk.cases

    def tampered(rng: np.random.Generator, small: bool) -> Iterator[vectors.Case]:
        case = dict(next(original(rng, small)))
        case["bitmap"] = case["bitmap"] ^ np.uint8(1)
        yield list(case.items())

    monkeypatch.setattr(argtopk, "cases", tampered)
    assert run.main(["argtopk", "--small", "--seed", "4"]) == 1
    output = capsys.readouterr().out
    assert "seed 4" in output
    assert "case 1 (random" in output
    assert "bitmap[0] is" in output


def test_a_testbench_without_a_report_is_an_error(tmp_path: Path) -> None:
    program = build.build("argtopk")
    (tmp_path / "cases").write_bytes(b"KVCASES1\x01")
    with pytest.raises(run.SimulationError, match="end too early"):
        run.run_program(program, tmp_path / "cases")


def test_a_source_with_a_warning_does_not_build(tmp_path: Path) -> None:
    (tmp_path / "bad.cpp").write_text("int main() { int unused; }\n")
    with pytest.raises(build.BuildError, match="unused variable"):
        build.compile_program([tmp_path / "bad.cpp"], "bad", store=Store(tmp_path))


@pytest.mark.parametrize(
    ("sanitize", "message"), [(False, "system_packages.sh build"), (True, "system_packages.sh fuzz")]
)
def test_a_missing_compiler_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, sanitize: bool, message: str
) -> None:
    compiler_version.cache_clear()
    monkeypatch.setattr("compiled.build.shutil.which", lambda program: None)
    (tmp_path / "any.cpp").touch()
    with pytest.raises(build.BuildError, match=message):
        build.compile_program([tmp_path / "any.cpp"], "any", sanitize=sanitize, store=Store(tmp_path))


def test_an_unknown_kernel_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        run.main(["no_such_kernel"])
    assert caught.value.code == 2
    assert "no such kernel: no_such_kernel" in capsys.readouterr().err


def test_every_kernel_has_a_description_a_testbench_and_cases() -> None:
    for kernel in build.kernels():
        assert all(path.is_file() for path in build.sources(kernel))
        assert (ROOT / "sim/csim" / f"{kernel}.py").is_file()


LARGE = ("attention", "attention_codes", "group_choice")  # many tops to compile
STAND_IN = Path(__file__).with_name("vendor")
# As in synthesis, and without any language extension: the last tools for the SmartSSD bring GCC 6.
AS_THE_VENDOR = ("-D__VITIS_HLS__", "-pedantic-errors", f"-I{STAND_IN}")


@pytest.mark.parametrize("kernel", in_groups(("argtopk", "ffn", "gemv", "page_filter", "softmax", *LARGE), slow=LARGE))
def test_kernel_equals_golden_with_the_vendor_streams(kernel: str, cases_of: CasesOf) -> None:
    """The sources as in synthesis: strict C++14, stages are plain calls, and streams come from the vendor's header."""
    as_vendor = {"extra": AS_THE_VENDOR, "kernels_as": "c++14"}
    program = build.compile_program(build.sources(kernel), f"{kernel}_vendor", **as_vendor)
    report = run.run_program(program, cases_of(kernel))
    assert (report["mismatches"], report["shown"], report["streams"]) == (0, [], [])
    assert report["cases"] > 100
    parts = objects(build.units([path for path in build.sources(kernel) if not path.stem.endswith("_tb")], **as_vendor))
    listed = subprocess.run(["nm", "-g", "--defined-only", *parts], capture_output=True, text=True, check=True).stdout
    tops = {top.name for top in find_tops(kernel)}
    assert tops <= {line.split()[-1] for line in listed.splitlines() if " T " in line}  # v++ finds tops by linker name


@pytest.mark.parametrize(
    "tops",
    [("attention_g1", "attention_g4", "attention_exact_g1"), ("attention_codes_g1",), ("group_choice_g4",)],
    ids="-".join,
)
def test_a_large_kernel_is_strict_cpp14_in_synthesis(tops: tuple[str, ...]) -> None:
    """Tops of one folder in one source, because their headers take most of the time; once for each text of them."""
    sources = tuple(find_tops(top)[0].source for top in tops)
    unit = Unit("-".join(tops), sources, PLAIN, "c++14", AS_THE_VENDOR)

    def check(folder: Path) -> None:
        (folder / "all.cpp").write_text(unit.text())
        command = [*unit.command(), "-fsyntax-only", str(folder / "all.cpp")]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert (done.returncode, done.stderr) == (0, "")

    store.kept("strict", [compiler_version(PLAIN), *unit.texts(), *store.texts(unit.files())], check)
