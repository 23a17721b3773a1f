"""The planner: what it says follows from bytes and rates."""

import dataclasses
import json

import pytest
from typer.testing import CliRunner

from kvdrive.cli.main import app
from kvdrive.cli.plan import _shape
from kvdrive.errors import InputError
from kvdrive.perf import shapes
from kvdrive.perf.plan import plan
from kvdrive.perf.systems import SYSTEMS

SMART = SYSTEMS["a100-smartssd"]
RUNNER = CliRunner()


def test_attention_takes_as_long_as_the_drives_read():
    found = plan(shapes.OPT_66B, SMART, 32768, 16, 4, alpha=0.0)
    assert found.parts[1].seconds == pytest.approx(shapes.OPT_66B.kv_bytes(16, 32768) / (4 * 3e9))
    assert found.parts[1].bound == "drives"
    twice = plan(shapes.OPT_66B, SMART, 32768, 16, 8, alpha=0.0)
    assert twice.parts[1].seconds == pytest.approx(found.parts[1].seconds / 2)


def test_x_cache_helps_one_kv_head_per_query_head_only():
    assert plan(shapes.OPT_66B, SMART, 32768, 16, 16).alpha == 0.5  # 48 GB/s in the drives, 26 over the link
    found = plan(shapes.LLAMA_70B, SMART, 32768, 16, 16)
    assert (found.alpha, found.reason) == (0, "X of a token is 4 times its K and V")
    assert plan(shapes.LLAMA_70B, SMART, 32768, 16, 16, alpha=0.5).reason == "asked for; 0 is faster"


def test_weights_come_from_the_host_where_the_processor_cannot_hold_them():
    small, large = plan(shapes.MISTRAL_7B, SMART, 4096, 1, 1), plan(shapes.OPT_66B, SMART, 4096, 1, 1)
    assert (small.weights_on, large.weights_on) == ("processor", "host")
    assert large.parts[0].seconds == pytest.approx(shapes.OPT_66B.weight_bytes / 26e9)


def test_weights_of_more_than_100_billion_parameters_come_from_the_drives():
    """A layer ahead, at the drives' rate or the link's; the drives attend in turns with that."""
    few, many = (plan(shapes.OPT_175B, SMART, 32768, 16, drives, alpha=0.0) for drives in (4, 16))
    assert (few.weights_on, many.weights_on) == ("drives", "drives")
    assert few.parts[0].seconds == pytest.approx(shapes.OPT_175B.weight_bytes / (4 * 3e9))
    assert many.parts[0].seconds == pytest.approx(shapes.OPT_175B.weight_bytes / 26e9)
    assert few.overlapped == few.step
    assert few.weights_rate_needed == pytest.approx(few.weights_read / (few.step - few.parts[0].seconds))
    assert few.drives_needed == -(-(shapes.OPT_175B.kv_bytes(16, 32768) + shapes.OPT_175B.weight_bytes) // int(3.84e12))
    output = RUNNER.invoke(app, ["plan", "--model", "opt-175b"]).output
    size = f"{shapes.OPT_175B.weight_bytes / 1e9:.1f} GB"
    assert f"weights: {size} on the drives; a step reads {size} at 12.00 GB/s; at " in output
    row = json.loads(RUNNER.invoke(app, ["plan", "--model", "opt-175b", "--json"]).output)
    assert (row["weights"]["on"], row["weights"]["bytes_per_s"]) == ("drives", 12e9)


def test_a_batch_reads_each_expert_that_some_token_chooses():
    one, many = (plan(shapes.GLAM_143B, SMART, 4096, batch, 16) for batch in (1, 64))
    everything = shapes.GLAM_143B.weight_bytes
    assert one.weights_read == shapes.GLAM_143B.active_weight_bytes
    assert 0.8 * everything < many.weights_read < everything


def test_drives_that_are_too_few_are_said_first():
    found = plan(shapes.OPT_175B, SMART, 131072, 64, 2, alpha=0.0)
    stored = shapes.OPT_175B.kv_bytes(64, 131072) + shapes.OPT_175B.weight_bytes
    assert found.drives_needed == -(-stored // int(3.84e12))
    assert found.advice == f"weights, K and V need {found.drives_needed} drives"


def test_endurance_counts_what_a_step_writes():
    found = plan(shapes.OPT_66B, SMART, 32768, 16, 4, alpha=0.0)
    a_step = shapes.OPT_66B.kv_bytes(16, 1) / 4
    assert found.years == pytest.approx(7.008e15 / a_step * found.step / (365 * 86400))


def test_flop_of_rebuilding_decide_where_the_processor_is_slow():
    """With the paper's 2 FLOP for both projections, half as fast a processor takes the same share."""
    slow, slower = (dataclasses.replace(SMART, flops=SMART.flops / factor) for factor in (100, 200))

    def attention(system, flop):
        return plan(shapes.OPT_66B, system, 32768, 16, 64, 0.5, flop).parts[1]

    assert attention(slow, 4.0) == attention(slower, 2.0)
    assert attention(slow, 4.0).bound == "processor"
    assert attention(slow, 2.0).seconds < attention(slow, 4.0).seconds
    assert RUNNER.invoke(app, ["plan", "--model", "opt-13b", "--flop-factor", "2"]).exit_code == 0


def test_the_batch_is_limited_by_what_the_processor_holds_of_each_sequence():
    found = plan(shapes.OPT_13B, SMART, 32768, 16, 16, alpha=0.0)
    each = shapes.OPT_13B.kv_bytes(1, found.interval)
    assert found.batch_limit == int((40e9 - shapes.OPT_13B.weight_bytes) / each)
    rebuilt = plan(shapes.OPT_13B, SMART, 32768, 16, 16, alpha=1.0)
    assert rebuilt.batch_limit < found.batch_limit  # K and V of two layers of each sequence
    beyond = plan(shapes.OPT_13B, SMART, 32768, rebuilt.batch_limit + 1, 64, alpha=1.0)
    assert beyond.advice.startswith(f"the processor's memory holds what {rebuilt.batch_limit} sequences need")


def test_gpus_add_their_rates_and_pay_for_their_sums():
    one, four = (plan(shapes.MISTRAL_7B, SMART.of_gpus(gpus), 32768, 16, 8) for gpus in (1, 4))
    assert SMART.of_gpus(1) is SMART
    assert four.parts[0].seconds == pytest.approx(one.parts[0].seconds / 4)
    assert four.parts[1] == one.parts[1]  # the drives attend
    assert four.parts[2].seconds == pytest.approx(one.parts[2].seconds / 4)
    vector = 16 * shapes.MISTRAL_7B.hidden * 2
    sums = 2 * shapes.MISTRAL_7B.layers * (10e-6 + 2 * 3 / 4 * vector / 26e9)
    assert (four.parts[3].name, four.parts[3].seconds) == ("sums over GPUs", pytest.approx(sums))
    assert four.system.processor == "4 x A100 40 GB"
    large = [plan(shapes.OPT_66B, SMART.of_gpus(gpus), 4096, 1, 1).weights_on for gpus in (1, 4)]
    assert large == ["host", "processor"]
    output = RUNNER.invoke(app, ["plan", "--model", "mistral-7b", "--gpus", "4"]).output
    assert "4 x A100 40 GB with 4 SmartSSD" in output
    assert "sums over GPUs" in output


def test_json_has_the_parts_and_the_label():
    row = json.loads(RUNNER.invoke(app, ["plan", "--model", "opt-13b", "--context", "64K", "--json"]).output)
    assert (row["tokens"], row["label"], len(row["parts"])) == (65536, "modelled", 3)
    assert row["tokens_per_s"] == pytest.approx(16 / sum(part["seconds"] for part in row["parts"]))
    model, *others = (part["seconds"] for part in row["parts"])
    assert row["overlapped_s"] == pytest.approx(max(2 * model, sum(others)))
    assert row["overlapped_s"] < row["step_s"]  # two mini-batches
    assert "ms with --mini-batches 2" in RUNNER.invoke(app, ["plan", "--model", "opt-13b", "--context", "64K"]).output
    alone = plan(shapes.OPT_13B, SMART, 65536, 1, 16)
    assert alone.overlapped == alone.step
    output = RUNNER.invoke(app, ["plan", "--model", "opt-13b", "--batch", "1"]).output
    assert "tokens/s)\n" in output


def test_a_checkpoint_is_measured_by_its_configuration():
    mini = _shape("mini")
    assert mini.gated
    assert mini.heads % mini.kv_heads == 0
    assert RUNNER.invoke(app, ["plan", "--model", "mini"]).exit_code == 0


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--hardware", "abacus"], "there is no hardware 'abacus': choose one of "),
        (["--context", "0"], "a context has at least one token"),
    ],
)
def test_wrong_options_are_one_sentence(options, sentence):
    result = RUNNER.invoke(app, ["plan", "--model", "opt-13b", *options])
    assert isinstance(result.exception, InputError)
    assert str(result.exception).startswith(sentence)


def test_every_system_has_sources():
    for system in SYSTEMS.values():
        for part in (system, system.drive):
            assert part.source.startswith(("published: ", "paper: "))
        assert all(value >= 0 for value in dataclasses.asdict(system).values() if isinstance(value, float))
