"""The generated parts of the documentation are current, and each table names its machine and date."""

import json
from importlib import import_module
from pathlib import Path

import pytest

from bench import results
from bench.machine import Machine
from bench.setup import Setup
from bench.table import Block, Table
from kvdrive.tree import ROOT
from pages import measured
from pages.__main__ import PARTS


@pytest.mark.parametrize("part", PARTS)
def test_what_a_part_writes_is_there(part):
    stale = [path.name for path, text in import_module(f"pages.{part}").texts().items() if path.read_text() != text]
    assert stale == [], f"make pages PART={part}"


def test_every_table_has_a_place_or_is_shown_by_its_command_only():
    shown = {name for _, name, _ in measured.places()}
    kept = {name for name, _ in results.load()}
    assert shown <= kept
    assert kept - shown <= {"attention/rows", "weights/window"}


def tree(tmp_path: Path, marker: str) -> Path:
    (tmp_path / "docs").mkdir()
    (tmp_path / "README.md").write_text(f"before\n<!-- {marker} -->\nold\n<!-- end -->\nafter\n")
    return tmp_path


def test_a_page_shows_the_last_result_or_that_of_the_machine_it_names(tmp_path):
    block = Block("x", [Table(["a", "b"], [["1", "2"]], "A note.", "Of two.")], {"raw": [1, 2]})
    path = results.save("suite", [block], Setup(quick=False, threads=3), tmp_path / "results")
    found = json.loads(path.read_text())
    assert found["blocks"]["x"]["figures"] == {"raw": [1, 2]}
    older = {
        "machine": {"processor": "Some CPU", "cores": 4},
        "blocks": {"x": found["blocks"]["x"] | {"date": "2001-02-03"}},
    }
    path.with_name("some-cpu-4-cores.json").write_text(json.dumps(older))
    page = tree(tmp_path, "suite/x") / "README.md"
    (text,) = measured.texts(tmp_path).values()
    assert text.startswith(
        "before\n<!-- suite/x -->\nOf two.\n\n| a | b |\n| --- | ---: |\n| 1 | 2 |\n\nA note. Machine: "
    )
    assert f"Machine: {Machine.here()}, 3 threads, torch" in text
    assert text.endswith("\n<!-- end -->\nafter\n")
    page.write_text(page.read_text().replace("suite/x", "suite/x some-cpu-4-cores"))
    (text,) = measured.texts(tmp_path).values()
    assert "Machine: Some CPU, 4 cores, 3 threads" in text
    assert "Date: 2001-02-03." in text


def test_a_second_run_keeps_the_other_blocks(tmp_path):
    setup = Setup(quick=False, threads=1)
    for name in ("a", "b", "a"):
        results.save("suite", [Block(name, [Table(note=f"{name}.")])], setup, tmp_path)
    assert sorted(name for name, _ in results.load(tmp_path)) == ["suite/a", "suite/b"]


def test_a_block_without_a_result_is_an_error(tmp_path):
    tree(tmp_path, "suite/nothing")
    with pytest.raises(KeyError, match="no suite/nothing"):
        measured.texts(tmp_path)


def test_no_table_of_the_pages_is_typed_by_hand_where_a_result_exists():
    """The machine and the date stand below every block."""
    for page, name, machine in measured.places():
        block = page.read_text().partition(f"<!-- {f'{name} {machine}'.rstrip()} -->")[2].partition("<!-- end -->")[0]
        assert "Machine: " in block, (page.relative_to(ROOT), name)
        assert "Date: 20" in block, (page.relative_to(ROOT), name)


def test_brackets_mean_times_as_fast_in_every_table():
    said = [table.legend + table.note for _, one in results.load() for table in one.block.tables]
    explained = [text for text in said if "bracket" in text.lower()]
    assert len(explained) >= 5
    assert [text for text in explained if "how many times as fast as " not in text] == []
