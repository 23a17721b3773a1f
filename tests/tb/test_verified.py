# SPDX-License-Identifier: Apache-2.0
"""The record of a regression: who writes it, and what makes the simulation run again. All on copies."""

import shutil
from pathlib import Path

import pytest

from openhls.emit import design
from openhls.errors import OpenHlsError
from rtl import build, manifest
from rtl.kernels import ROOT, Top, find_tops
from tb import __main__ as command
from tb import verified
from tb.run import Result

FILES = [
    "sim/tb/common/tests.py",
    "sim/tb/page_filter/scoreboard.py",
    "sim/golden/page_filter.py",
    "sim/csim/vectors.py",
]


def passed(top: Top, **failures: str) -> Result:
    return Result(top, ["one", "two"], failures, Path("junit.xml"), Path("log.txt"), {"files": FILES})


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Top, Path]:
    """page_filter, and the folder with its RTL."""
    (top,) = find_tops("page_filter")
    out = tmp_path_factory.mktemp("rtl")
    build.build(top, out)
    return top, out


@pytest.fixture
def recorded(built: tuple[Top, Path], verilator: None, tmp_path: Path, monkeypatch) -> tuple[Top, Path]:
    """The same after a run that passed, with a manifest of its own."""
    top, out = built
    own = tmp_path / "rtl"
    shutil.copytree(out, own)
    monkeypatch.setattr(manifest, "FOLDER", tmp_path / "bitstreams")
    committed = ROOT / f"bitstreams/{top.name}.json"
    (tmp_path / "bitstreams").mkdir()
    shutil.copy(committed, tmp_path / "bitstreams")
    verified.forget(top)
    verified.record(passed(top), 7, small=True, out=own)
    return top, own


def test_a_record_is_valid_until_it_is_deleted(recorded: tuple[Top, Path]) -> None:
    top, out = recorded
    assert verified.problem(top, out=out) == ""
    found = manifest.load(top)[verified.KEY]
    assert (found["seed"], found["cases"], found["tests"]) == (7, "small", 2)
    assert set(FILES) < set(found["files"])
    verified.forget(top)
    assert verified.problem(top, out=out) == "it has no record"


@pytest.mark.parametrize("name", [*FILES, "sim/tb/run.py", "sim/tb/common/fifo_watch.sv"])
def test_one_byte_of_test_bench_or_golden_model_counts(name: str, recorded: tuple[Top, Path], tmp_path: Path) -> None:
    top, out = recorded
    copy = tmp_path / "tree"
    for file in manifest.load(top)[verified.KEY]["files"]:
        (copy / file).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / file, copy / file)
    assert verified.problem(top, root=copy, out=out) == ""
    text = (copy / name).read_bytes()
    (copy / name).write_bytes(text[:-1] + b" ")
    assert verified.problem(top, root=copy, out=out) == "the test bench or the golden model has changed"
    (copy / name).unlink()
    assert verified.problem(top, root=copy, out=out) == "the test bench or the golden model has changed"


def with_library(folder: Path, old: str, new: str) -> list[Path]:
    """The compiler's library with another text in its FIFO."""
    folder.mkdir()
    paths = [Path(shutil.copy(path, folder)) for path in design.LIBRARY]
    (fifo,) = (path for path in paths if path.stem == "openhls_fifo")
    assert fifo.read_text().count(old) == 1
    fifo.write_text(fifo.read_text().replace(old, new))
    return paths


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [("DEPTH - 1)", "DEPTH - 2)", "its RTL has changed"), ("// SPDX-License-Identifier:", "// SPDX:", "")],
    ids=["a byte of the RTL", "a comment"],
)
def test_another_compiler_counts_where_it_gives_other_rtl(
    old: str, new: str, reason: str, recorded: tuple[Top, Path], tmp_path: Path, monkeypatch
) -> None:
    top, out = recorded
    monkeypatch.setattr(design, "LIBRARY", with_library(tmp_path / "library", old, new))
    monkeypatch.setattr(build, "compiler_hash", lambda: "another")
    assert verified.problem(top, out=out) == reason


def test_a_record_that_is_renewed_needs_no_compilation(recorded: tuple[Top, Path], monkeypatch) -> None:
    top, out = recorded
    monkeypatch.setattr(build, "compiler_hash", lambda: "another")
    compiled = []
    monkeypatch.setattr(build, "build", lambda *a, build=build.build: compiled.append(a) or build(*a))
    assert verified.problem(top, out=out) == ""
    assert len(compiled) == 1
    verified.renew(top)
    shutil.rmtree(out)
    assert verified.problem(top, out=out) == ""
    assert len(compiled) == 1
    kept = manifest.load(top)
    manifest.save(top, kept | {"source_hash": "of other sources"})
    with pytest.raises(OpenHlsError, match="make rtl KERNEL=page_filter"):
        verified.renew(top)


def test_other_tools_count(recorded: tuple[Top, Path], monkeypatch) -> None:
    top, out = recorded
    monkeypatch.setattr(verified, "tools", lambda: {"verilator": "6"})
    assert "it was simulated with" in verified.problem(top, out=out)


def test_only_a_run_that_passed_is_recorded(recorded: tuple[Top, Path]) -> None:
    top, out = recorded
    with pytest.raises(OpenHlsError, match="did not pass"):
        verified.record(passed(top, one="wrong"), 1, small=True, out=out)
    kept = manifest.load(top)
    manifest.save(top, kept | {"rtl_hash": "of other RTL"})
    with pytest.raises(OpenHlsError, match="make rtl KERNEL=page_filter"):
        verified.record(passed(top), 1, small=True, out=out)


def test_a_run_of_all_cases_stands_for_one_of_some(recorded: tuple[Top, Path]) -> None:
    top, out = recorded
    verified.record(passed(top), 3, small=False, out=out)
    verified.record(passed(top), 4, small=True, out=out)
    found = manifest.load(top)[verified.KEY]
    assert (found["seed"], found["cases"]) == (3, "all")


def test_the_command_records_a_run_that_passed_and_forgets_the_record_of_one_that_failed(
    recorded: tuple[Top, Path], monkeypatch, capsys: pytest.CaptureFixture[str]
) -> None:
    top, out = recorded
    monkeypatch.setattr(verified, "problem", lambda top, problem=verified.problem: problem(top, out=out))
    monkeypatch.setattr(verified, "record", lambda *a, record=verified.record, **k: record(*a, **k, out=out))
    runs = []

    def run(result: Result):
        monkeypatch.setattr(command, "run_top", lambda *_, **__: runs.append(result.failures) or result)

    run(passed(top))
    assert command.main(["page_filter", "--stale"]) == 0
    assert "its record is valid" in capsys.readouterr().out
    assert runs == []
    run(passed(top, one="wrong"))
    assert command.main(["page_filter"]) == 1
    assert verified.problem(top) == "it has no record"
    run(passed(top))
    assert command.main(["page_filter"]) == 0
    assert verified.problem(top) == "it has no record"
    assert command.main(["page_filter", "--stale", "--record"]) == 0
    assert verified.problem(top) == ""
    assert len(runs) == 3
