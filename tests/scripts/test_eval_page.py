"""The page of evaluations: a table of each folder with results, and the README's sentence."""

import json
from dataclasses import replace

import eval_page
from kvdrive.eval.points import Point

SETTINGS = {"model": "tiny", "dtype": "float32", "engine": "fast", "targets": 8, "windows": 2, "cases": 5, "seed": 1}
EXACT = Point("exact", "1", "drive", 4096, 4096.0, 4000.0, 8, 5.0, 0.1, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0)
GROUPS = replace(EXACT, policy="groups", ratio="1/8", bytes_read=860.0, kl=0.01, added_nats=0.02)
SPARF = replace(GROUPS, policy="sparf", bytes_read=3000.0)


def write(folder, *points):
    folder.mkdir()
    (folder / "eval.json").write_text(json.dumps(SETTINGS | {"points": [point.as_dict() for point in points]}))


def test_a_table_has_the_results_of_its_folder_alone(tmp_path):
    assert eval_page.results_of(tmp_path / "eval-groups") is None
    write(tmp_path / "eval-groups", EXACT, GROUPS, SPARF)
    write(tmp_path / "eval-groups-8064", replace(EXACT, context=8064))
    block = eval_page.sweep_block(eval_page.results_of(tmp_path / "eval-groups"))
    assert block.count("| 4,096 |") == 3
    assert "8,064" not in block


def test_the_sentence_of_the_readme(tmp_path):
    answered = [{"passkey": 1.0, "lines": share} for share in (0.8, 0.6, 0.2)]
    points = [replace(point, accuracy=one) for point, one in zip((EXACT, GROUPS, SPARF), answered, strict=True)]
    write(tmp_path / "eval-groups", *points)
    sentence = eval_page.gain(eval_page.results_of(tmp_path / "eval-groups"))
    assert "at 4,096 tokens, `groups` at 1/8 reads 21% of the bytes" in sentence
    assert "Of 10 questions" in sentence
    assert "exact attention answers 9, `groups` 8 and SparF 6" in sentence


def test_every_table_has_its_place():
    for name, page in eval_page.SOURCES:
        assert f"<!-- {name} -->" in (eval_page.ROOT / "docs" / page).read_text()
