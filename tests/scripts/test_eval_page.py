"""The page of evaluations: contexts that were measured separately are one table, others are absent."""

import json
from dataclasses import replace

import eval_page
from kvdrive.eval.points import Point

SETTINGS = {"model": "tiny", "dtype": "float32", "engine": "fast", "targets": 8, "windows": 2, "cases": 0, "seed": 1}
EXACT = Point("exact", "1", "drive", 4096, 4096.0, 4000.0, 8, 5.0, 0.1, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0)
GROUPS = replace(EXACT, policy="groups", ratio="1/8", bytes_read=860.0, kl=0.01, added_nats=0.02)
SPARF = replace(GROUPS, policy="sparf", bytes_read=3000.0)


def write(folder, context, *points):
    folder.mkdir()
    found = SETTINGS | {"points": [replace(point, context=context).as_dict() for point in points]}
    (folder / "eval.json").write_text(json.dumps(found))


def test_contexts_measured_one_by_one_are_one_table(tmp_path):
    assert eval_page.results_of(tmp_path / "eval-groups") is None
    write(tmp_path / "eval-groups", 4096, EXACT, GROUPS, SPARF)
    write(tmp_path / "eval-groups-mini", 2048, EXACT)
    alone = eval_page.sweep_block(eval_page.results_of(tmp_path / "eval-groups"))
    assert alone.count("| 4,096 |") == 3
    write(tmp_path / "eval-groups-8064", 8064, EXACT, GROUPS)
    both = eval_page.sweep_block(eval_page.results_of(tmp_path / "eval-groups"))
    lines = [line.split(" | ")[:2] for line in both.splitlines() if line.startswith("| ")][1:]
    assert [line[0].strip("| ") for line in lines][-5:] == ["4,096"] * 3 + ["8,064"] * 2


def test_the_sentence_of_the_readme_is_of_the_shortest_context(tmp_path):
    write(tmp_path / "eval-groups", 4096, EXACT, GROUPS, SPARF)
    write(tmp_path / "eval-groups-8064", 8064, replace(EXACT, bytes_read=9.0), GROUPS)
    results = eval_page.results_of(tmp_path / "eval-groups")
    assert "at 4,096 tokens, `groups` at 1/8 reads 21% of the bytes" in eval_page.gain(
        eval_page.report.points_of(results)
    )
