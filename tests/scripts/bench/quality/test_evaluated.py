"""The tables of evaluations, and the README's sentence."""

from dataclasses import replace

from bench.quality import evaluated
from kvdrive.eval.points import Point

SETTINGS = {"model": "tiny", "dtype": "float32", "engine": "fast", "targets": 8, "windows": 2, "cases": 5, "seed": 1}
EXACT = Point("exact", "1", "drive", 4096, 4096.0, 4000.0, 8, 5.0, 0.1, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0)
GROUPS = replace(EXACT, policy="groups", ratio="1/8", bytes_read=860.0, kl=0.01, added_nats=0.02)
SPARF = replace(GROUPS, policy="sparf", bytes_read=3000.0)


def results(*points):
    return SETTINGS | {"points": [point.as_dict() for point in points]}


def test_a_table_has_a_row_for_each_point():
    (block,) = evaluated.blocks("units", results(EXACT, GROUPS, SPARF))
    (table,) = block.tables
    assert len(table.rows) == 3
    assert all("4,096" in row for row in table.rows)


def test_limits_are_compared_at_equal_bytes():
    limit = replace(GROUPS, ratio="1/8, unread 0.1", bytes_read=2000.0, kl=0.005)
    (block,) = evaluated.blocks(
        "limits", results(EXACT, GROUPS, replace(GROUPS, ratio="1/2", bytes_read=3000.0), limit)
    )
    assert block.tables[1].rows == [["1/8, unread 0.1", "0.0050", "0.0100"]]


def test_the_sentence_of_the_readme():
    answered = [{"passkey": 1.0, "lines": share} for share in (0.8, 0.6, 0.2)]
    points = [replace(point, accuracy=one) for point, one in zip((EXACT, GROUPS, SPARF), answered, strict=True)]
    sentence = evaluated.gain(results(*points))
    assert "at 4,096 tokens, `groups` at 1/8 reads 21% of the bytes" in sentence
    assert "Of 10 questions" in sentence
    assert "exact attention answers 9, `groups` 8 and SparF 6" in sentence
