# SPDX-License-Identifier: Apache-2.0
"""Names and comments do not count as hardware, so figures that were measured stay when only these change."""

import random
import re
from pathlib import Path

import pytest

from openhls.names import KEYWORDS
from rtl import build, identity
from rtl.kernels import find_tops

TOP = """// Written by openhls
module unit (
  input logic ap_clk,
  input logic [3:0] a,
  output logic [3:0] y
);
  logic [3:0] brmerge;  // unit.cpp:3
  logic [3:0] sum;
  assign sum = brmerge ^ 4'ha;
  assign y = sum;
  add_process one (
    .clk(ap_clk),
    .arg_x(a),
    .other(sum),
    .sum(brmerge)
  );
  openhls_fifo #(.WIDTH(4), .STYLE("block")) queue (.clk(ap_clk), .data(sum));
endmodule
"""
PART = """module add_process (
  input logic clk,
  input logic [3:0] arg_x,
  input logic [3:0] other,
  output logic [3:0] sum
);
  assign sum = arg_x + $unsigned(other);
endmodule
"""
LIBRARY = "module openhls_fifo (input logic clk);\nendmodule\n"


@pytest.fixture
def hashed(tmp_path: Path):
    def of(top: str = TOP, part: str = PART, library: str = LIBRARY, name: str = "add_process") -> str:
        folder = tmp_path / "rtl"
        folder.mkdir(exist_ok=True)
        for path in folder.iterdir():
            path.unlink()
        for stem, text in (("unit", top), (name, part), ("openhls_fifo", library)):
            (folder / f"{stem}.sv").write_text(text)
        return identity.rtl_hash(tmp_path)

    return of


def test_names_that_come_from_the_cpp_do_not_count(hashed) -> None:
    same = [
        hashed(TOP.replace("brmerge", "block").replace("unit.cpp:3", "unit.cpp:4")),
        hashed(
            TOP.replace("sum;", "total;")
            .replace("= sum", "= total")
            .replace("sum =", "total =")
            .replace("(sum)", "(total)")
        ),
        hashed(TOP.replace("  logic [3:0] sum;", "  // verilator lint_off UNUSEDSIGNAL\n  logic [3:0] sum;")),
        hashed(TOP.replace(" one (", " two (")),
        hashed(TOP.replace(".arg_x", ".first"), PART.replace("arg_x", "first")),
        hashed(TOP.replace(".sum(", ".result("), PART.replace("sum", "result")),
        hashed(TOP.replace("add_process", "aa_process"), PART.replace("add_process", "aa_process"), name="aa_process"),
    ]
    assert set(same) == {hashed()}


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("4'ha", "4'hb"),
        ("brmerge ^", "a ^"),
        ("[3:0] sum;", "[4:0] sum;"),
        ("y = sum", "y = a"),
        (".other(sum)", ".other(a)"),
        (".arg_x(a),\n    .other(sum)", ".arg_x(sum),\n    .other(a)"),
        ("] y", "] z"),
        ("add_process one", "openhls_fifo one"),
        ("openhls_fifo #", "openhls_ram #"),
        (".WIDTH(4)", ".WIDTH(5)"),
        ('"block"', '"ultra"'),
        (".data(", ".last("),
    ],
)
def test_everything_else_of_the_top_counts(hashed, old: str, new: str) -> None:
    changed = TOP.replace(old, new)
    assert changed != TOP
    if "y" in old and new == "] z":
        changed = changed.replace("assign y", "assign z")
    if "openhls_fifo one" in new:
        changed = changed.replace("endmodule", "  add_process more (.clk(ap_clk));\nendmodule")
    assert hashed(changed) != hashed()


def test_parts_and_the_library_count(hashed) -> None:
    assert hashed(part=PART.replace("+", "-")) != hashed()
    assert hashed(part=PART.replace("arg_x +", "other +")) != hashed()
    assert hashed(part=PART.replace("$unsigned", "$signed")) != hashed()
    assert hashed(library=LIBRARY.replace("clk", "clock")) != hashed()


def test_a_design_with_two_tops_has_no_hash(hashed) -> None:
    with pytest.raises(ValueError, match="unpack"):
        hashed(part=PART, top=TOP.replace("add_process", "openhls_fifo"))


def test_a_kernel_keeps_its_hash_under_any_names_and_loses_it_by_any_number(tmp_path: Path) -> None:
    (top,) = find_tops("page_filter")
    folder = build.build(top, tmp_path).folder
    files = {path: path.read_text() for path in (folder / "rtl").glob("*.sv") if not path.name.startswith("openhls_")}
    before = identity.rtl_hash(folder)
    ports = set(re.findall(r"put logic .*?(\w+),?$", files[folder / "rtl/page_filter.sv"], re.MULTILINE))
    words = {
        word for text in files.values() for word in re.findall(r"(?<![$'\w])[A-Za-z_]\w*", re.sub("//.*", "", text))
    }
    library = {word for path in (folder / "rtl").glob("openhls_*.sv") for word in re.findall(r"\w+", path.read_text())}
    free = sorted(words - KEYWORDS - ports - library - {"page_filter"})
    assert len(free) > 200
    dice = random.Random(1)
    for _ in range(3):
        numbers = dice.sample(range(len(free)), len(free))
        renamed = {word: f"x{number}" for word, number in zip(free, numbers, strict=True)}
        for path, text in files.items():
            path.unlink(missing_ok=True)
            new = re.sub(r"(?<![$'\w])[A-Za-z_]\w*", lambda word, to=renamed: to.get(word.group(), word.group()), text)
            (folder / "rtl" / f"{renamed.get(path.stem, path.stem)}.sv").write_text(new)
        assert identity.rtl_hash(folder) == before
        for word in renamed.values():
            (folder / "rtl" / f"{word}.sv").unlink(missing_ok=True)
    for path, text in files.items():
        path.write_text(text)
    for path, text in dice.choices(sorted(files.items()), k=10):
        places = [match for match in re.finditer(r"\d+'d\d+|\[\d+:", text)]
        place = dice.choice(places)
        path.write_text(
            f"{text[: place.start()]}{place.group().replace(place.group(), '7' + place.group())}{text[place.end() :]}"
        )
        assert identity.rtl_hash(folder) != before
        path.write_text(text)
