"""The papers' figures: numbers, pictures and page belong together and are current."""

import json
from pathlib import Path

import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.text import Text
from pairs import some_quick
from typer.testing import CliRunner

from kvdrive.cli.main import app
from kvdrive.study import draw, figure
from kvdrive.study import figures_page as page
from kvdrive.study.attention_store import figures as cached
from kvdrive.study.claims_page import PAPERS as CLAIMS
from kvdrive.study.figure import Chart, Figure, Origin, Paper, Published, Series, Style
from kvdrive.study.hilos import figures as hilos
from kvdrive.study.instinfer import figures as instinfer
from kvdrive.study.predictions import _gpus, _nodes, _splits, predictions

pytestmark = pytest.mark.xdist_group("claims")  # what one test computes is kept for the others

DOCS = Path(__file__).resolve().parents[3] / "docs/results"
FOLDER = DOCS / "papers"
RUNNER = CliRunner()


def stored(name):
    return json.loads((FOLDER / f"{name}.json").read_text())


def as_stored(content):
    return json.loads(json.dumps(content))


@pytest.mark.parametrize("name", some_quick(page.PAPERS, ["instinfer", "llm-in-a-flash"]))
def test_numbers_are_current(name):
    assert as_stored(figure.record(page.PAPERS[name]())) == stored(name), f"kvdrive figures --report {FOLDER}"


@pytest.mark.parametrize(
    ("name", "module", "long"), [("hilos", hilos, {"10"}), ("cachedattention", cached, {"23", "24"})]
)
def test_numbers_without_sweeps_and_replays_are_current(name, module, long):
    assert long < module.FIGURES.keys()
    found = [draws() for number, draws in module.FIGURES.items() if number not in long]
    kept = [one for one in stored(name)["figures"] if one["number"] not in long]
    assert as_stored(figure.record(Paper(name, name, found)))["figures"] == kept


@pytest.mark.slow
def test_predictions_are_current():
    assert as_stored(page.predicted(predictions())) == json.loads((FOLDER / page.PREDICTIONS).read_text())


def test_predictions_of_other_machines_are_current():
    """Of heads that are split, and of GPUs and hosts: the others sweep contexts and shares."""
    found = [one for source in (_splits, _gpus, _nodes) for one in source()]
    kept = json.loads((FOLDER / page.PREDICTIONS).read_text())
    assert [one for one in kept if one in as_stored(page.predicted(found))] == as_stored(page.predicted(found))


@pytest.mark.parametrize("name", page.PAPERS)
def test_pictures_show_the_numbers_and_are_small(name):
    for one in stored(name)["figures"]:
        path = FOLDER / f"{one['key']}.png"
        assert draw.stored_digest(path) == draw.digest(one), f"{path.name}: kvdrive figures --report {FOLDER}"
        assert path.stat().st_size < 80_000


def marks(record):
    """What the axes of a drawn figure say of where their values are from."""
    return [axes.get_ylabel().rpartition("\n")[2] for axes in draw.drawn(record).axes]


@pytest.mark.parametrize("name", page.PAPERS)
def test_every_picture_says_where_its_values_are_from(name):
    for one in stored(name)["figures"]:
        said = marks(one)
        assert said == [f"({chart['origin']})" for chart in one["charts"]]
        assert {mark.strip("()") for mark in said} <= set(Origin)


def test_only_what_is_not_modelled_says_so():
    charts = [
        (one["key"], c["origin"]) for name in page.PAPERS for one in stored(name)["figures"] for c in one["charts"]
    ]
    assert [chart for chart in charts if chart[1] != Origin.modelled] == [
        ("instinfer-16", Origin.simulated),
        ("hilos-2", Origin.arithmetic),
        ("hilos-4", Origin.arithmetic),
        ("hilos-12", Origin.simulated),
    ]
    assert len(charts) > 40


def outside(record):
    """Texts and legends of a drawn figure that reach beyond it."""
    canvas = draw.drawn(record)
    renderer = FigureCanvasAgg(canvas).get_renderer()
    canvas.draw(renderer)
    texts = [text for text in canvas.findobj(Text) if text.get_text() and text.get_visible()]
    found = [(text.get_text(), text.get_window_extent(renderer)) for text in texts]
    found += [("legend", axes.get_legend().get_window_extent(renderer)) for axes in canvas.axes]
    width, height = canvas.bbox.width, canvas.bbox.height
    return [name for name, box in found if box.x0 < 0 or box.y0 < 0 or box.x1 > width or box.y1 > height]


@pytest.mark.parametrize("name", page.PAPERS)
def test_no_label_is_clipped(name):
    for one in stored(name)["figures"]:
        assert outside(one) == [], one["key"]


def test_a_clipped_label_is_noticed(monkeypatch):
    record = stored("hilos")["figures"][0]
    monkeypatch.setattr(draw, "_LEFT", 0.3)
    assert any("arithmetic" in text for text in outside(record))


def test_a_picture_that_does_not_say_is_noticed(monkeypatch):
    record = stored("ssd-paged")["figures"][0]
    monkeypatch.setattr("matplotlib.axes.Axes.set_ylabel", lambda *_, **__: None)
    assert not {mark.strip("()") for mark in marks(record)} & set(Origin)


def test_the_page_is_current_and_shows_every_picture():
    text = page.page([stored(name) for name in page.PAPERS], json.loads((FOLDER / page.PREDICTIONS).read_text()))
    assert (DOCS / "papers.md").read_text() == text
    assert {path.name for path in FOLDER.glob("*.png")} == {
        f"{one['key']}.png" for name in page.PAPERS for one in stored(name)["figures"]
    }
    assert all(path.name in text for path in FOLDER.glob("*.png"))
    assert sum(path.stat().st_size for path in FOLDER.iterdir()) < 2_500_000


def test_published_values_are_those_of_claims():
    claims = {claim.key: claim for paper in CLAIMS.values() for claim in paper}
    for name in page.PAPERS:
        for one in stored(name)["figures"]:
            for chart in one["charts"]:
                for point in chart["published"]:
                    assert point["claim"] in claims
                    assert point["x"] is None or point["x"] in chart["places"]
                    assert point["series"] in ("", *(series["name"] for series in chart["series"]))


def test_every_figure_has_as_many_values_as_places_and_a_paragraph():
    for name in page.PAPERS:
        for one in stored(name)["figures"]:
            assert len(one["compared"]) > 60
            for chart in one["charts"]:
                assert chart["y"]
                assert all(len(series["values"]) == len(chart["places"]) for series in chart["series"])


def test_a_figure_is_drawn_in_each_style(tmp_path):
    charts = [
        Chart(
            style,
            "x",
            "y, a unit",
            ["a", "b"] if style is not Style.lines else [1024, 2048],
            [Series("one", [1.0, None]), Series("two", [2.0, -1.0])],
            [Published(3, "X", "there"), Published(1, "X", "here", "a" if style is not Style.lines else 1024, "one")],
            style,
            "x" if style is Style.lines else "",
        )
        for style in Style
    ]
    paper = Paper("p", "P", [Figure("p-1", "1", "drawn", charts, "Well.")])
    record = page.write_paper(tmp_path, paper)
    picture = tmp_path / "p-1.png"
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert draw.stored_digest(picture) == draw.digest(record["figures"][0])
    record["figures"][0]["compared"] = "Badly."
    assert draw.stored_digest(picture) != draw.digest(record["figures"][0])


def test_the_command_draws_one_paper(tmp_path):
    result = RUNNER.invoke(app, ["figures", "--paper", "llm-in-a-flash", "--report", str(tmp_path / "papers")])
    assert result.exit_code == 0
    assert result.output == "LLM in a flash: 3 figures\n"
    assert len(list((tmp_path / "papers").glob("*.png"))) == 3


def test_flexgen_runs_out_of_memory_where_the_paper_says():
    assert instinfer.flexgen_batch() == 64
    assert instinfer.flexgen(128) is None
