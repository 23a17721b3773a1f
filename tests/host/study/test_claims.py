"""The papers' claims beside our values: complete, current, and an error that grows is noticed."""

import dataclasses
import json
import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from kvdrive.cli.main import app
from kvdrive.study import claims_page as page
from kvdrive.study.attention_store import stated
from kvdrive.study.claim import Claim, Kind, Relation, Verdict, evaluate
from kvdrive.study.evaluated import evaluated
from kvdrive.study.hilos import claims as hilos

pytestmark = pytest.mark.xdist_group("claims")  # what one test computes is kept for the others

RUNNER = CliRunner()
REPLAYED = {"SPA-04"}  # claims that take seconds by themselves
ROW = re.compile(r"\| (\w+-\w+) \|")
PAGE = Path(__file__).resolve().parents[3] / "docs/results/claims.md"


def test_every_claim_is_there_once():
    claims = [claim for paper in page.PAPERS.values() for claim in paper]
    assert [len(paper) for paper in page.PAPERS.values()] == [19, 29, 46, 6, 25]
    assert len({claim.key for claim in claims}) == len(claims)


def test_every_claim_has_a_value_or_a_reason():
    for claim in (claim for paper in page.PAPERS.values() for claim in paper):
        assert (claim.ours is None and claim.settings is None) == bool(claim.missing), claim.key


@pytest.mark.slow
def test_the_page_is_current():
    assert RUNNER.invoke(app, ["ledger", "--check", str(PAGE)]).exit_code == 0


@pytest.fixture
def without_replays(monkeypatch):
    """The ledger without what takes seconds: claims that replay traces."""
    for paper, claims in page.PAPERS.items():
        monkeypatch.setitem(page.PAPERS, paper, tuple(claim for claim in claims if claim.key not in REPLAYED))


@pytest.mark.usefixtures("without_replays")
def test_rows_of_the_page_are_current():
    found = page.entries()
    assert [entry.unexplained for rows in found.values() for entry in rows if entry.unexplained] == []
    rows = [line for line in page.page(found).splitlines() if ROW.match(line)]
    assert rows == [line for line in PAGE.read_text().splitlines() if (m := ROW.match(line)) and m[1] not in REPLAYED]
    assert len(rows) == sum(map(len, found.values()))


@pytest.mark.usefixtures("without_replays")
def test_a_stale_page_and_a_difference_without_a_reason_fail(tmp_path, monkeypatch):
    stale = tmp_path / "claims.md"
    assert RUNNER.invoke(app, ["ledger", "--write", str(stale)]).exit_code == 0
    assert RUNNER.invoke(app, ["ledger", "--check", str(stale)]).exit_code == 0
    stale.write_text(stale.read_text() + "more\n")
    result = RUNNER.invoke(app, ["ledger", "--check", str(stale)])
    assert str(result.exception) == f"{stale} is stale: kvdrive ledger --write {stale}"
    wrong = [dataclasses.replace(c, ours=lambda: (0.7,)) if c.key == "HIL-18" else c for c in hilos.CLAIMS]
    monkeypatch.setitem(page.PAPERS, "HILOS", tuple(wrong))
    result = RUNNER.invoke(app, ["ledger"])
    assert str(result.exception) == "HIL-18 is 65 % off: say why in its `differs`"


def test_a_reason_for_a_difference_that_is_gone_fails():
    entry = evaluate(Claim("X", "here", "ten", (10,), ours=lambda: (10.1,), differs="it is eleven here"))
    assert entry.unexplained == "X is 1 % off: remove its `differs`"


def test_the_totals_count_predictions_and_measurements_as_agreement_and_nothing_else():
    verdicts = {
        "predicted": Claim("A", "here", "ten", (10,), kind=Kind.modelled, ours=lambda: (10,)),
        "measured": Claim("B", "here", "ten", (10,), kind=Kind.measured, ours=lambda: (10,)),
        "arithmetic": Claim("C", "here", "ten", (10,), ours=lambda: (10,)),
        "input": Claim("AS-05", "here", "ten", (0.36,), "s", Kind.modelled, lambda: (stated.PREFILL_SECONDS.value,)),
        "differs": Claim("D", "here", "ten", (10,), kind=Kind.measured, ours=lambda: (11,)),
        "open": Claim("E", "here", "ten", kind=Kind.measured, missing="a benchmark"),
        "no value": Claim("F", "here", "ten", kind=Kind.hardware, missing="a card"),
    }
    rows = [evaluate(claim) for claim in verdicts.values()]
    assert [entry.verdict for entry in rows] == list(verdicts)
    assert page.totals(rows) == (
        "2 of 7 claims agree (1 predicted and 1 measured); 1 arithmetic, 1 input, 1 differs, 1 open, 1 no value"
    )
    assert f"**{page.totals(rows)}.**" in page.page({"a paper": rows})
    assert "| all | 1 | 1 | 1 | 1 | 1 | 1 | 1 | 1 of 1 |" in page.page({"a paper": rows})


def test_what_reads_its_own_number_or_is_measured_is_no_prediction():
    def of(ours, kind=Kind.modelled):
        return evaluate(Claim("AS-05", "here", "ten", (0.36,), kind=kind, ours=lambda: (ours(),)))

    told, near, far = of(lambda: stated.PREFILL_SECONDS.value), of(lambda: 0.4), of(lambda: 0.5)
    assert [(entry.independent, entry.near) for entry in (told, near, far)] == [(0, 0), (1, 1), (1, 0)]
    assert not of(lambda: 0.4, Kind.measured).independent
    assert near.verdict is Verdict.differs


def test_a_claim_over_a_range_has_the_worst_setting():
    settings = [(10.0, 1.0), (9.8, 1.3), (10.1, 0.9)]
    entry = evaluate(Claim("X", "here", "ten and one", (10, 1), settings=lambda: settings))
    assert (entry.values, entry.error) == ((9.8, 1.3), pytest.approx(0.3))


def test_a_percentage_is_compared_by_the_smaller_of_itself_and_what_it_leaves():
    def error(ours, paper, unit="%"):
        return evaluate(Claim("X", "here", "so much", (paper,), unit, ours=lambda: (ours,))).error

    assert error(97, 94) == pytest.approx(0.5)
    assert error(7, 6) == pytest.approx(1 / 6)
    assert error(97, 94, "points") == pytest.approx(3 / 94)


def test_no_claim_has_a_tolerance_of_its_own():
    assert not {"bound", "tolerance", "expected"} & {field.name for field in dataclasses.fields(Claim)}
    assert evaluate(Claim("X", "here", "hundred", (100,), ours=lambda: (105,))).verdict is Verdict.arithmetic
    assert evaluate(Claim("X", "here", "hundred", (100,), ours=lambda: (105.1,))).verdict is Verdict.differs


@pytest.mark.usefixtures("without_replays")
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
    assert (entry.verdict is Verdict.differs) == (error > 0.05)


def test_as_many_values_as_the_paper_has():
    with pytest.raises(ValueError, match="X: 1 values of our own for 2 of the paper"):
        evaluate(Claim("X", "here", "two", (1, 2), ours=lambda: (1,)))


def test_values_of_kvdrive_eval_come_from_its_page():
    assert evaluated("mini", 2048, "exact").bytes_read == 1.0
    assert evaluated("mini", 2048, "sparf", "1/8").perplexity != evaluated("mini", 2048, "local", "1/8").perplexity
    with pytest.raises(ValueError, match=r"no row of mini, 7 tokens, exact 1: make bench SUITE=quality"):
        evaluated("mini", 7, "exact")


def test_without_its_page_a_value_of_kvdrive_eval_is_open(tmp_path, monkeypatch):
    """A wheel holds no docs/."""
    monkeypatch.setattr("kvdrive.study.evaluated.ROOT", tmp_path)
    entry = evaluate(Claim("X", "here", "one", (1,), ours=lambda: (evaluated("mini", 2048, "exact").bytes_read,)))
    assert (entry.values, entry.verdict) == ((), Verdict.open)
