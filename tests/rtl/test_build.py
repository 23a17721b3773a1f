# SPDX-License-Identifier: Apache-2.0
"""`make rtl`: what is written, what the manifest says, and when both count as stale."""

import json
from pathlib import Path

import pytest

from openhls.errors import OpenHlsError
from rtl import build, cli, manifest
from rtl.build import hash_files
from rtl.kernels import ROOT, all_tops, find_tops


@pytest.fixture
def page_filter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """The smallest kernel; RTL and manifests go to a folder of the test."""
    monkeypatch.setattr(manifest, "FOLDER", tmp_path / "bitstreams")
    monkeypatch.setattr(cli, "build", lambda top: build.build(top, tmp_path / "rtl"))
    (top,) = find_tops("page_filter")
    return top


def test_manifest_says_what_was_built(page_filter, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["build", "page_filter"]) == 0
    assert capsys.readouterr().out.startswith("page_filter: ")
    assert "module page_filter (" in (tmp_path / "rtl/page_filter/rtl/page_filter.sv").read_text()
    assert "longest path" in (tmp_path / "rtl/page_filter/schedule.txt").read_text()
    text = manifest.path_of(page_filter).read_text()
    assert str(ROOT) not in text
    found = json.loads(text)
    assert found["source"] == "hls/page_filter/page_filter.cpp"
    assert {"hls/page_filter/rows.hpp", "hls/common/types.hpp"} < set(found["sources"])
    assert {(port["name"], port["width"]) for port in found["ports"]} >= {("pages_tdata", 512), ("filtered_tdata", 528)}
    assert {loop["loop"]: loop["ii"] for loop in found["loops"]} == {"split": 1, "mark": 1, "compact": 1}
    assert found["cycles"]["formula"] == "page_count * page_bytes // 64 + 1"
    assert found["tools"]["clang"].startswith("19.")
    assert manifest.stale([page_filter]) == []
    cli.main(["build", "page_filter"])
    assert manifest.path_of(page_filter).read_text() == text


def test_figures_stay_while_what_they_measure_stays(page_filter) -> None:
    cli.main(["build", "page_filter"])
    manifest.record(page_filter, "vendor", {"smartssd": {"LUT": 2}})
    manifest.record(page_filter, "yosys", {"LUT": 1})
    text = manifest.path_of(page_filter).read_text()
    cli.main(["build", "page_filter"])
    assert manifest.path_of(page_filter).read_text() == text
    kept = manifest.load(page_filter)
    assert (kept["yosys"], kept["vendor"]) == ({"LUT": 1}, {"smartssd": {"LUT": 2}})
    manifest.save(page_filter, kept | {"compiler_hash": "of another compiler"})
    assert manifest.stale([page_filter]) == ["page_filter"]
    cli.main(["build", "page_filter"])  # another compiler, the same RTL
    assert manifest.path_of(page_filter).read_text() == text
    manifest.save(page_filter, kept | {"compiler_hash": "of another compiler", "rtl_hash": "of other RTL"})
    with pytest.raises(OpenHlsError, match="make rtl KERNEL=page_filter"):
        manifest.record(page_filter, "yosys", {"LUT": 3})
    old = manifest.load(page_filter)
    cli.main(["build", "page_filter"])
    with pytest.raises(OpenHlsError, match="built anew meanwhile"):
        manifest.record(page_filter, "yosys", {"LUT": 3}, old)
    kept = manifest.load(page_filter)
    assert "yosys" not in kept
    assert "vendor" in kept
    manifest.save(page_filter, kept | {"source_hash": "of other sources"})
    cli.main(["build", "page_filter"])
    assert "vendor" not in manifest.load(page_filter)


def test_built_rtl_is_stale_when_a_source_changes(page_filter, tmp_path: Path, monkeypatch) -> None:
    assert build.stamp_of(page_filter, tmp_path) is None
    build.build(page_filter, tmp_path)
    stamp = build.stamp_of(page_filter, tmp_path)
    assert stamp is not None
    monkeypatch.setattr(build, "compiler_hash", lambda: "another")
    assert build.stamp_of(page_filter, tmp_path) is None
    monkeypatch.undo()
    source = tmp_path / "rows.hpp"
    source.write_text("one")
    path = tmp_path / "page_filter/built.json"
    stamp = json.loads(path.read_text()) | {"sources": [str(source)], "source_hash": build.hash_files([source])}
    path.write_text(json.dumps(stamp))
    assert build.stamp_of(page_filter, tmp_path) is not None
    source.write_text("two")
    assert build.stamp_of(page_filter, tmp_path) is None


def test_an_interval_that_is_missed_and_an_unknown_kernel_are_errors(
    page_filter, tmp_path: Path, monkeypatch, capsys
) -> None:
    wrong = tmp_path / "kernel.toml"
    wrong.write_text(page_filter.description.read_text().replace("compact = 1", "compacted = 1"))
    monkeypatch.setattr(cli, "read_expectation", lambda _, read=cli.read_expectation: read(wrong))
    assert cli.main(["build", "page_filter"]) == 1
    assert "loop compact of compact is pipelined" in capsys.readouterr().err
    assert not manifest.path_of(page_filter).exists()
    assert cli.main(["build", "sort"]) == 2
    assert "no kernel or top is called sort" in capsys.readouterr().err


def test_every_committed_manifest_is_of_the_present_kernels() -> None:
    """If this fails: run `make rtl`, then `make estimate` and `make bench SUITE=hardware` for new figures."""
    found = [kept for top in all_tops() if (kept := manifest.load(top)) is not None]
    assert found
    sources = {kept["top"]: hash_files([ROOT / source for source in kept["sources"]]) for kept in found}
    assert sources == {kept["top"]: kept["source_hash"] for kept in found}


@pytest.mark.slow
def test_every_committed_manifest_is_of_the_present_compiler() -> None:
    """Renewing them takes minutes, so a change of the compiler alone may be committed without."""
    assert manifest.stale([top for top in all_tops() if manifest.load(top) is not None]) == []
