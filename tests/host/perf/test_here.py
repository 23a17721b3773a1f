"""Plans for this machine: steps follow from measured layers; what was measured is kept and shared."""

import itertools
import json

import pytest
import torch
from small_models import CONFIGS, random_model
from typer.testing import CliRunner

from kvdrive.cli.main import app
from kvdrive.errors import InputError
from kvdrive.kvcache import drive_rates
from kvdrive.kvcache.drive_rates import Line
from kvdrive.kvcache.xcache import measured as xcache_rates
from kvdrive.kvcache.xcache.measured import Measured
from kvdrive.perf import here, stored_rates
from kvdrive.perf.here import Asked, Here, plan_here
from kvdrive.perf.shapes import ModelShape
from kvdrive.plugins.transformers import attach
from kvdrive.targets.opening import DriveOptions
from kvdrive.targets.slowed import SlowedTarget

RUNNER = CliRunner()
SMALL_OPT = ModelShape("small", 2, 64, 256, 2, 2, vocabulary=128)


def test_rates_are_kept_by_their_class_and_key(tmp_path):
    file = tmp_path / "folder/rates.json"
    rates = Measured(Line(1, 2), Line(3, 4), Line(5, 6), Line(7, 8), True)
    stored_rates.StoredRates(file).put("a", rates)
    stored_rates.StoredRates(file).put("b", Line(1, 2))
    assert stored_rates.StoredRates(file).get("a", Measured) == rates
    assert stored_rates.StoredRates(file).get("a", Line) is None
    assert stored_rates.StoredRates(file).get("c", Line) is None
    assert stored_rates.StoredRates(file, anew=True).get("a", Measured) is None
    assert stored_rates.StoredRates(None).get("a", Measured) is None
    file.write_text("{damaged")
    assert stored_rates.StoredRates(file).get("a", Measured) is None


def test_the_oldest_rates_leave(tmp_path, monkeypatch):
    monkeypatch.setattr(stored_rates, "_MOST", 2)
    known = stored_rates.StoredRates(tmp_path / "rates.json")
    for name in "abac":
        known.put(name, Line(1, 2))
    assert list(json.loads((tmp_path / "rates.json").read_text())) == ["a", "c"]


def test_a_step_is_its_layers_and_their_attention():
    """At the context of the measurement a step is what was measured, whatever its attention is."""
    attention = Measured(Line(2, 1), Line(1, 3), Line(0, 5), Line(0, 7), True)
    found = Here(Line(100, 50), attention, 8, "", "a drive")
    assert sum(part.seconds for part in found.parts(4, here.SHORT, 3, 0)) == 100 + 4 * 50
    model, attended = found.parts(4, 1000, 3, 1)
    assert model.seconds == 100 + 4 * (50 - 3 * (2 + here.SHORT))
    assert attended.seconds == 4 * (2 * (2 + 1000) + 1 + 15 * 1000)


def test_a_processor_beside_the_drives_does_not_wait_for_them():
    """A GPU: it rebuilds K and V while the drives attend, and each part says what bounds it."""
    attention = Measured(Line(2, 1), Line(1, 3), Line(0, 5), Line(0, 7), False)
    model, attended = Here(Line(100, 50), attention, 8, "", "a drive").parts(4, 1000, 3, 1)
    assert attended.seconds == 4 * max(2 * (2 + 1000) + 1 + 3 * 1000, 1 + 15 * 1000)
    assert (model.bound, attended.bound) == ("processor", "drives")


def test_rates_of_a_device_are_not_those_of_the_processor(monkeypatch):
    here_alone = stored_rates.fingerprint()
    assert stored_rates.fingerprint(torch.device("cpu")) == here_alone
    assert stored_rates.fingerprint(torch.device("meta")) == here_alone + ", meta"


def test_a_device_that_torch_does_not_have_is_refused():
    result = RUNNER.invoke(app, ["plan", "--model", "mini", "--hardware", "here", "--device", "cuda:77"])
    assert isinstance(result.exception, InputError)
    assert "torch has no device 'cuda:77' here" in str(result.exception)


def asked(tokens=1000, share=None):
    return Asked(here.config_of(SMALL_OPT), SMALL_OPT, tokens, 2, share)


def test_a_plan_measures_once(tmp_path, monkeypatch):
    seconds = itertools.count(1)  # more for more tokens, which are measured later

    def medians(works, clock, rounds):
        for work in works:
            work()
        return [float(next(seconds)) for work in works]

    for module in (drive_rates, xcache_rates):
        monkeypatch.setattr(module, "medians", medians)
    options = DriveOptions(target="cpu", folder=tmp_path, capacity_bytes=1 << 28)
    first = plan_here(asked(share=0.5), options)
    assert (first.alpha, len(first.parts), first.overlapped) == (0.5, 2, first.step)
    assert first.system.drive.rate > 0
    assert first.system.link > 0
    assert first.system.flops > 0

    def measured(*arguments):
        raise AssertionError

    monkeypatch.setattr(here, "_steps", measured)
    monkeypatch.setattr(drive_rates, "_measure", measured)
    assert plan_here(asked(share=0.5), options).parts == first.parts
    with pytest.raises(AssertionError):
        plan_here(asked(), options, stored_rates.of_this_machine(anew=True))


def test_x_cache_and_stored_sessions_share_the_rates_of_the_drives(target, monkeypatch):
    model = random_model(CONFIGS["opt"]).to(torch.bfloat16)
    with attach(model, target, xcache=1.0) as attached:
        rates = attached.rates.attention()

    def measured(*arguments):
        raise AssertionError

    monkeypatch.setattr(drive_rates, "_measure", measured)
    with attach(model, target) as attached:
        assert attached.rates.attention().attend == rates.attend
        assert attached.rates.resuming().attend_pair == pytest.approx(
            model.config.num_hidden_layers * rates.attend.at(2048) / 2048
        )
    for other in (SlowedTarget(target, 2), target):
        options = {"kv_format": "int8"} if other is target else {}
        with attach(model, other, **options) as attached, pytest.raises(AssertionError):
            attached.rates.attention()


def test_other_formats_are_measured_as_they_are_stored(target):
    model = random_model(CONFIGS["llama"]).to(torch.bfloat16)
    with attach(model, target, kv_format="int4") as attached:
        assert attached.rates.attention().attend.at(4096) > 0
    assert target._drive.sessions() == []


def test_the_command_plans_this_machine(monkeypatch):
    result = RUNNER.invoke(app, ["plan", "--model", "mini", "--hardware", "here", "--context", "2K", "--json"])
    row = json.loads(result.output)
    assert (row["hardware"], row["label"], row["drives"]) == ("here", "from measured layers", 1)
    assert row["alpha_reason"].startswith("X of a token is")
    assert row["step_s"] == pytest.approx(sum(part["seconds"] for part in row["parts"]))
    shown = RUNNER.invoke(app, ["plan", "--model", "mini", "--hardware", "here", "--context", "2K"]).output
    assert "from measured layers" in shown
    assert "on the cores that do everything here" in shown


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--hardware", "here", "--drives", "2"], "--hardware here plans one drive: leave --drives out"),
        (["--hardware", "here", "--gpus", "2"], "--hardware here plans one device: leave --gpus out"),
        (["--measure"], "--drive, --device and --measure go with --hardware here: other hardware is not measured"),
        (
            ["--device", "cuda"],
            "--drive, --device and --measure go with --hardware here: other hardware is not measured",
        ),
    ],
)
def test_options_that_do_not_go_together_are_one_sentence(options, sentence):
    result = RUNNER.invoke(app, ["plan", "--model", "opt-13b", *options])
    assert isinstance(result.exception, InputError)
    assert str(result.exception) == sentence


def test_layers_that_do_not_fit_are_refused(monkeypatch):
    monkeypatch.setattr(here, "_memory", lambda device: 1e5)
    with pytest.raises(InputError, match="too much to measure them here"):
        here.sample(here.config_of(SMALL_OPT), 2)
