# SPDX-License-Identifier: Apache-2.0
"""docs/results/hardware.md: the tables are those of the manifests, and a missed target is shown as missed."""

import pytest

from pages import hardware

TARGET = {"name": "x", "top": "x", "job": "a", "memory": "ideal"}


def manifests(**cycles: int) -> dict:
    jobs = [{"job": job, "memory": "ideal", "cycles": n, "amount": 6400.0, "unit": "B"} for job, n in cycles.items()]
    return {"x": {"measured": jobs, "clock_mhz": 300.0, "slowest_ns": 2.5}}


def test_the_page_is_that_of_the_manifests() -> None:
    for path, text in hardware.texts().items():
        assert path.read_text() == text, f"{path.name}: make pages PART=hardware"


@pytest.mark.parametrize(
    ("limit", "cells"),
    [
        ({"cycles": 100}, ["<= 100 cycles", "100", "-", "met"]),
        ({"cycles": 80}, ["<= 80 cycles", "100", "-", "missed by 25 %"]),
        ({"gb_per_s": 19.2}, [">= 19.2 GB/s", "100, 19.2 GB/s", "-", "met"]),
        ({"gb_per_s": 24.0}, [">= 24.0 GB/s", "100, 19.2 GB/s", "-", "missed by 20 %"]),
        ({"faster": 4.0, "than": "b"}, [">= 4x", "100, 4.00x", "-", "met"]),
        ({"faster": 5.0, "than": "b"}, [">= 5x", "100, 4.00x", "-", "missed by 20 %"]),
        ({"faster": 5.0, "than": "c"}, [">= 5x", "100", "-", "not measured"]),
        ({"cycles": 80, "job": "c"}, ["<= 80 cycles", "-", "-", "not measured"]),
    ],
)
def test_verdicts_on_rates(limit: dict, cells: list[str]) -> None:
    assert hardware.rate_row(manifests(a=100, b=400), TARGET | limit)[3:] == cells


def test_area_prefers_the_vendors_figure_and_knows_zero() -> None:
    target = {"name": "x", "top": "x", "LUT": 1000, "DSP": 0}
    yosys = {"total": {"LUT": 1500, "DSP": 2}, "modules": {"part_process": {"LUT": 900}}}
    rows = hardware.area_rows({"x": {"yosys": yosys}}, target)
    assert rows[0] == ["x", "LUT", "<= 1,000", "-", "1,500", "-", "missed by 50 %"]
    assert rows[1] == ["x", "DSP", "<= 0", "-", "2", "-", "missed by 2"]
    both = {"yosys": yosys, "vendor": {"smartssd": {"LUT": 990, "DSP": 0}}}
    assert [row[5:] for row in hardware.area_rows({"x": both}, target)] == [["990", "met"], ["0", "met"]]
    (row,) = hardware.area_rows({"x": both}, {"name": "p", "top": "x", "module": "part", "LUT": 1000})
    assert row[3:] == ["-", "900", "-", "met"]


def test_a_miss_below_one_percent_is_not_shown_as_nothing() -> None:
    assert hardware.verdict(33_085, 33_068, at_most=True) == "missed by 0.05 %"
    assert hardware.verdict(1_009, 1_000, at_most=True) == "missed by 0.9 %"


def test_a_top_over_another_one() -> None:
    target = {"name": "x", "top": "x", "over": "y", "times": 1.5}
    found = {name: {"yosys": {"total": {"LUT": luts}}} for name, luts in (("x", 80), ("y", 50))}
    assert hardware.area_rows(found, target) == [["x", "LUT", "<= 1.5x", "-", "1.60x", "-", "missed by 7 %"]]
    assert hardware.area_rows({}, target)[0][-1] == "not measured"


def test_largest_modules_count_all_their_copies() -> None:
    modules = {f"m{i}": {"LUT": i, "DSP": 1, "uses": 1} for i in range(1, 7)} | {
        "many": {"LUT": 2, "DSP": 0, "uses": 20}
    }
    rows = hardware.module_rows("x", {"yosys": {"total": {"LUT": 61}, "modules": modules}})
    assert rows[0] == ["x", "many", "20", "40", "0", "66%"]
    assert [row[1] for row in rows] == ["many", "m6", "m5"]
    assert hardware.module_rows("x", {}) == []


def test_cycles_by_length_are_a_line_for_each_memory() -> None:
    cycles = {"ideal": {4096: 8_500, 1024: 2_356}, "ddr4": {4096: 9_000}}
    jobs = [
        {"job": f"exact over codes, {tokens} tokens, d = 128", "memory": memory, "cycles": count}
        for memory, found in cycles.items()
        for tokens, count in found.items()
    ]
    jobs.append({"job": "exact over codes, 1024 tokens, d = 64", "memory": "ideal", "cycles": 1_300})
    jobs.append({"job": "SparF 1/8, 16384 tokens, d = 128", "memory": "ideal", "cycles": 7})
    assert hardware.length_rows("x", {"measured": jobs}) == [
        ["x", "128", "ideal", "1,024: 2,356; 4,096: 8,500", "2.00", "308"]
    ]
    assert hardware.length_rows("x", {}) == []


def test_gains_count_dsps_for_the_same_rate() -> None:
    def manifest(job: str, cycles: int, dsps: int) -> dict:
        job = {"job": job, "memory": "ideal", "cycles": cycles}
        return {"measured": [job], "yosys": {"total": {"DSP": dsps}}}

    gain = {"than": "x", "tops": ["y", "z"], "job": "a", "job_over_codes": "b", "memory": "ideal"}
    found = {"x": manifest("a", 8_000, 40), "y": manifest("b", 4_000, 60)}
    assert hardware.gain_rows(found, gain) == [
        ["x", "8,000", "1.00x", "40", "1.00x"],
        ["y", "4,000", "2.00x", "60", "0.75x"],
        ["z", "-", "-", "-", "-"],
    ]
    del found["y"]["yosys"]
    assert hardware.gain_rows(found, gain)[1] == ["y", "4,000", "2.00x", "-", "-"]
