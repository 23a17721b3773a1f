"""The papers' claims beside our values: complete, current, and an error that grows is noticed."""

import dataclasses
import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from kvdrive.cli.main import app
from kvdrive.ledger import hilos, page
from kvdrive.ledger.claim import Claim, Kind, Relation, Verdict, evaluate
from kvdrive.ledger.evaluated import evaluated

RUNNER = CliRunner()
PAGE = Path(__file__).resolve().parents[3] / "docs/ledger.md"


def test_every_claim_is_there_once():
    claims = [claim for paper in page.PAPERS.values() for claim in paper]
    assert [len(paper) for paper in page.PAPERS.values()] == [24, 33, 49, 7, 25]
    assert len({claim.key for claim in claims}) == len(claims)


def test_every_claim_has_a_value_or_a_reason():
    for claim in (claim for paper in page.PAPERS.values() for claim in paper):
        assert (claim.ours is None) == bool(claim.missing), claim.key
        assert claim.expected is None or claim.note, claim.key  # a difference is explained
        assert claim.kind is not Kind.calibrated or claim.note or claim.missing, claim.key


def test_the_page_is_current():
    assert RUNNER.invoke(app, ["ledger", "--check", str(PAGE)]).exit_code == 0


def test_a_stale_page_and_an_error_that_grows_fail(tmp_path, monkeypatch):
    stale = tmp_path / "ledger.md"
    stale.write_text(PAGE.read_text() + "more\n")
    result = RUNNER.invoke(app, ["ledger", "--check", str(stale)])
    assert str(result.exception) == f"{stale} is stale: kvdrive ledger --write {stale}"
    wrong = [dataclasses.replace(c, ours=lambda: (0.7,)) if c.key == "HIL-06" else c for c in hilos.CLAIMS]
    monkeypatch.setitem(page.PAPERS, "HILOS", tuple(wrong))
    result = RUNNER.invoke(app, ["ledger"])
    assert str(result.exception) == "HIL-06 is 95.6 % off"


def test_json_has_every_claim():
    rows = json.loads(RUNNER.invoke(app, ["ledger", "--json"]).output)
    assert {row["id"] for row in rows} == {claim.key for paper in page.PAPERS.values() for claim in paper}
    assert all(row["verdict"] in set(Verdict) for row in rows)


@pytest.mark.parametrize(
    ("relation", "ours", "error"),
    [
        (Relation.equal, 11, 0.1),
        (Relation.at_least, 11, 0),
        (Relation.at_least, 9, 0.1),
        (Relation.at_most, 9, 0),
        (Relation.at_most, 11, 0.1),
        (Relation.equal, float("inf"), float("inf")),
        (Relation.at_least, float("nan"), float("inf")),
    ],
)
def test_errors_follow_the_relation(relation, ours, error):
    entry = evaluate(Claim("X", "here", "ten", (10,), ours=lambda: (ours,), relation=relation))
    assert entry.error == pytest.approx(error)
    assert entry.fails == (error > 0.05)


def test_as_many_values_as_the_paper_has():
    with pytest.raises(ValueError, match="X: 1 values of our own for 2 of the paper"):
        evaluate(Claim("X", "here", "two", (1, 2), ours=lambda: (1,)))


def test_values_of_kvdrive_eval_come_from_its_page():
    assert evaluated("mini", 2048, "exact").bytes_read == 1.0
    assert evaluated("mini", 2048, "sparf", "1/8").perplexity != evaluated("mini", 2048, "local", "1/8").perplexity
    with pytest.raises(ValueError, match=r"no row of mini, 7 tokens, exact 1: run scripts/eval_page\.py"):
        evaluated("mini", 7, "exact")


def test_without_its_page_a_value_of_kvdrive_eval_is_open(tmp_path, monkeypatch):
    """A wheel holds no docs/."""
    monkeypatch.setattr("kvdrive.ledger.evaluated.ROOT", tmp_path)
    entry = evaluate(Claim("X", "here", "one", (1,), ours=lambda: (evaluated("mini", 2048, "exact").bytes_read,)))
    assert (entry.values, entry.verdict) == ((), Verdict.open)
