"""`kvdrive calibrate`: which ratios it chooses, what it measures, and how it goes on after a stop."""

import json
from fractions import Fraction

import numpy as np
import pytest
from pairs import some_quick
from typer.testing import CliRunner

from kvdrive.cli.main import app
from kvdrive.errors import InputError
from kvdrive.eval import head_ratios, library, sweep
from kvdrive.eval.head_ratios import RATIOS, Limits, Rater, choose, prices, steps_of
from kvdrive.eval.points import Point, Way
from kvdrive.eval.sweep import questions
from kvdrive.policies.auto import Auto
from kvdrive.policies.choice import limit_of

HALF, QUARTER, EIGHTH, SIXTEENTH = (Fraction(1, share) for share in (2, 4, 8, 16))
BYTES = {Fraction(1): 1000, HALF: 580, QUARTER: 330, EIGHTH: 210, SIXTEENTH: 150}
HEADS = 2 * 2  # of the small models: layers, KV heads


def text_of(tokens, seed=3):
    return np.random.default_rng(seed).integers(2, 250, tokens)


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


# ---- the order of steps ----


def test_steps_are_ordered_by_divergence_per_saved_byte():
    costs = {HALF: 0.0042, QUARTER: 0.0142, EIGHTH: 0.05, SIXTEENTH: 0.2}
    cheap = {ratio: cost / 100 for ratio, cost in costs.items()}
    steps = steps_of({(0, 0): costs, (3, 1): cheap}, BYTES.get)
    taken = [(step.layer, step.ratio) for step in steps]
    assert taken == [
        (3, HALF), (3, QUARTER), (3, EIGHTH), (0, HALF), (3, SIXTEENTH), (0, QUARTER), (0, EIGHTH), (0, SIXTEENTH),
    ]  # fmt: skip
    assert steps[0].price == pytest.approx(0.000042 / 420)


def test_ratios_that_do_not_pay_are_left_out():
    """1/2 is dearer than 1/8 here, so no head stops at it; 1/16 saves most and costs least."""
    steps = steps_of({(0, 0): {HALF: 0.03, QUARTER: 0.01, EIGHTH: 0.02}}, BYTES.get)
    assert [step.ratio for step in steps] == [QUARTER, EIGHTH]
    (only,) = steps_of({(0, 0): {HALF: 0.03, SIXTEENTH: 0.01}}, BYTES.get)
    assert only.ratio == SIXTEENTH


def test_a_ratio_that_saves_nothing_is_no_step():
    assert steps_of({(0, 0): {HALF: 0.0}}, lambda ratio: 100) == []


# ---- the search ----


class Sums:
    """Stands for a model whose divergence is the sum of its heads', and notes what was measured."""

    kv_format = "f16"

    def __init__(self, each):
        self.each, self.measured = each, []

    def ratios(self, others):
        return others

    def measure(self, others):
        self.measured.append(len(others))
        return Point("auto", "", "drive", kl=sum(self.each[place] for place in others))


def made_up_steps(count):
    return [head_ratios.Step(float(place), place, 0, HALF) for place in range(count)]


@pytest.mark.parametrize("limit", ["0.5", "7.5", "36.1", "1000"])
def test_as_many_steps_are_taken_as_the_limit_allows(limit):
    steps = made_up_steps(20)
    rater = Sums({(place, 0): float(place) + 0.1 for place in range(20)})
    ratios, point = choose(rater, steps, limit)
    most = max(n for n in range(21) if sum(place + 0.1 for place in range(n)) < float(limit))
    assert len(ratios) == most
    assert point.kl < float(limit)
    assert len(rater.measured) <= 7


def test_a_limit_that_nothing_meets_is_said():
    with pytest.raises(InputError, match=r"no head can read less with a KL below 0\.01"):
        choose(Sums({(0, 0): 1.0}), made_up_steps(1), "0.01")
    rater = Sums({})
    rater.kv_format, rater.measure = "int4", lambda ratios: Point("auto", "", "drive", kl=0.05)
    with pytest.raises(InputError, match=r"K and V in int4 alone have a KL of 0\.0500, not below 0\.01"):
        choose(rater, made_up_steps(1), "0.01")


# ---- with a model ----


def asked(windows=2):
    return questions([text_of(208, seed) for seed in range(windows)], 8, [])


@pytest.mark.parametrize("kv_format", some_quick(["f16", "int8", "fp8"], ["int8"]))
def test_the_stored_divergence_is_that_of_an_evaluation(model, target, kv_format):
    """The whole choice is measured at once: `sweep` measures the same, in a cache of its own, prefilled anew."""
    rater = Rater(model, asked(), 16, kv_format, {})
    with rater.on_drive(target):
        prices_sum = prices(rater)
        limit = limit_of(str(0.4 * sum(max(costs.values()) for costs in prices_sum.values()) + 0.001))
        (found,) = head_ratios.calibrate(rater, Limits([limit]), "ab").values()
    assert found.kl < float(limit)
    ways = [Way(Auto(kl=limit, choice=found), kv_format), Way(sweep.make_policy("exact"))]
    auto, exact = sweep.sweep(model, target, ways, asked())
    assert (auto.kl, auto.kl_error) == (found.kl, found.kl_error)
    assert auto.bytes_read == pytest.approx(found.of_exact * exact.bytes_read, rel=0.02)
    assert 0 < auto.bytes_read < exact.bytes_read
    assert (found.text.context, found.text.windows, found.text.targets) == (200, 2, 8)


def test_a_larger_limit_reads_no_more(model, target):
    rater = Rater(model, asked(), 16, "f16", {})
    with rater.on_drive(target):
        top = max(max(costs.values()) for costs in prices(rater).values())
        limits = [limit_of(str(share * top)) for share in (0.5, 2, 100)]
        found = list(head_ratios.calibrate(rater, Limits(limits), "ab").values())
    assert [one.of_exact for one in found] == sorted((one.of_exact for one in found), reverse=True)
    assert found[-1].of_exact < found[0].of_exact


def test_measurements_are_not_made_twice(model, target):
    known, count = {}, []
    for turn in range(2):
        rater = Rater(model, asked(), 16, "f16", known, lambda: count.append(1))
        before = target.stats().attention_jobs
        with rater.on_drive(target):
            exact_jobs = target.stats().attention_jobs - before
            prices(rater)
        jobs = target.stats().attention_jobs - before
        assert (jobs == exact_jobs) == (turn == 1)
    assert len(known) == 2 * (1 + HEADS * len(RATIOS))
    assert len(count) == 2 * len(known)


def test_heads_that_the_time_does_not_allow_stay_exact(model, target):
    rater, ticks = Rater(model, asked(1), 16, "f16", {}), iter(range(100))
    with rater.on_drive(target):
        found = prices(rater, seconds=4, clock=lambda: next(ticks))
        steps = steps_of(found, rater.bytes_of_head)
        ratios, _ = choose(rater, steps, "1000")
    assert list(found) == [(0, 0), (0, 1), (1, 0)]  # at the first of the ratios
    assert ratios == ((EIGHTH, EIGHTH), (EIGHTH, Fraction(1)))


def test_a_ratio_that_time_did_not_allow_is_measured_by_the_next_run(model, target, monkeypatch):
    """Measurements of a run that stopped before 1/2, the last ratio, stay valid: only those at 1/2 are added."""
    known, computed = {}, []
    rate = head_ratios.rate_question
    monkeypatch.setattr(head_ratios, "rate_question", lambda *arguments: computed.append(1) or rate(*arguments))
    assert RATIOS[-1] == Fraction(1, 2)
    found = []
    for measured, answers in ((RATIOS[:-1], known), (RATIOS, known), (RATIOS, {})):
        monkeypatch.setattr(head_ratios, "RATIOS", measured)
        rater, before = Rater(model, asked(1), 16, "f16", answers), len(computed)
        with rater.on_drive(target):
            found.append((prices(rater), len(computed) - before))
    assert [count for _, count in found] == [2 + HEADS * 3, 1 + HEADS, 2 + HEADS * 4]  # with exact attention
    assert found[1][0] == found[2][0]
    assert all(found[1][0][head].keys() - costs.keys() == {RATIOS[-1]} for head, costs in found[0][0].items())


# ---- the command ----


def run(byte_checkpoint, *more):
    chosen = {
        "model": byte_checkpoint, "text": byte_checkpoint / "text.txt", "threads": 1, "windows": 1, "targets": 4,
        "context": 300, "unit": 16, "kl": "0.5,100",
    }  # fmt: skip
    options = [str(part) for name, value in chosen.items() for part in (f"--{name}", value)]
    return CliRunner().invoke(app, ["calibrate", *options, *more])


def test_the_command_calibrates_and_generate_uses_it(byte_checkpoint):
    done = run(byte_checkpoint, "--json")
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    assert list(found) == ["0.5", "100"]
    assert all(one["kl"] < float(limit) for limit, one in found.items())
    assert {share for row in found["100"]["ratios"] for share in row} == {"1/16"}
    prompt = ["--model", str(byte_checkpoint), "--prompt-file", str(byte_checkpoint / "text.txt")]
    command = ["generate", *prompt, "--prompt-tokens", "300", "--max-new-tokens", "3", "--threads", "1", "--json"]
    done = CliRunner().invoke(app, [*command, "--attention", "auto:100"])
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["options"]["attention"] == "auto:100"
    assert json.loads(done.stdout)["writeback"]["unread"]["mean"] > 0
    done = CliRunner().invoke(app, [*command, "--attention", "auto:7"])
    assert "those for 0.5, 100 are there: `kvdrive calibrate --kl 7` finds them" in str(done.exception)


def test_the_table_names_the_option_to_use(byte_checkpoint):
    done = run(byte_checkpoint)
    assert done.exit_code == 0, done.output
    assert "auto:0.5" in done.stdout
    assert "written: " in done.stderr


def test_an_evaluation_compares_it(byte_checkpoint, tmp_path):
    command = ["eval", "--model", str(byte_checkpoint), "--text", str(byte_checkpoint / "text.txt"), "--report"]
    command += [str(tmp_path / "out"), "--threads", "1", "--windows", "1", "--targets", "4", "--cases", "0"]
    command += ["--contexts", "300", "--policies", "exact,groups,auto:100", "--ratios", "1/2,1/4", "--json"]
    done = CliRunner().invoke(app, command)
    assert isinstance(done.exception, InputError)
    assert "`kvdrive calibrate --kl 100` finds them" in str(done.exception)
    assert run(byte_checkpoint).exit_code == 0
    done = CliRunner().invoke(app, command)
    assert done.exit_code == 0, done.output
    points = json.loads(done.stdout)["points"]
    named = [("exact", "1"), ("groups", "1/2"), ("groups", "1/4"), ("auto", "KL 100")]
    assert [(point["policy"], point["ratio"]) for point in points] == named
    assert points[3]["bytes_read"] < points[2]["bytes_read"]


def test_a_stopped_command_goes_on(byte_checkpoint, monkeypatch):
    rate, left = head_ratios.rate_question, iter(range(9))

    def some(*arguments):
        if next(left, None) is None:
            raise KeyboardInterrupt
        return rate(*arguments)

    with monkeypatch.context() as patched:
        patched.setattr(head_ratios, "rate_question", some)
        done = run(byte_checkpoint)
    assert "what was measured is kept, and the same command goes on with it" in str(done.exception)
    computed = []
    monkeypatch.setattr(head_ratios, "rate_question", lambda *arguments: computed.append(1) or rate(*arguments))
    done = run(byte_checkpoint, "--kl", "100", "--json")
    assert done.exit_code == 0, done.output
    rest = 1 + HEADS * len(RATIOS) - 8
    assert len(computed) == 1 + rest + 5  # the reference again, what was not measured, and the search among 16 steps
    done = run(byte_checkpoint, "--kl", "100,50", "--json")
    assert len(computed) == 1 + rest + 5 + 1, "for another limit, the reference only"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--unit", "48"], "no unit of 48 tokens"),
        (["--kl", "0"], "limit of the KL divergence above 0"),
        (["--context", "2000"], "exceed the 1024 positions"),
        (["--kv-format", "int4", "--kl", "1e-9"], "K and V in int4 alone have a KL of"),
    ],
)
def test_bad_options_are_one_sentence(byte_checkpoint, options, message):
    done = run(byte_checkpoint, *options)
    assert isinstance(done.exception, InputError)
    assert message in str(done.exception)


def test_the_texts_of_eval_and_calibrate_differ():
    ours = {module.name for module in library.calibration_modules()}
    assert ours
    assert not ours & {module.name for module in library.held_out_modules()}
