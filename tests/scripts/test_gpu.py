"""The check with a GPU as the host: its dry run on a CPU, its count of copies, and its page."""

import json
import time
from functools import partial

import pytest
import torch

from gpu import check, models, parts, paths
from gpu.copies import copies_of
from gpu.run import SMALL, Run
from kvdrive.perf import here
from pages import gpu as page


@pytest.fixture
def run(tmp_path):
    return Run(torch.device("cpu"), SMALL, tmp_path / "check.json", 600)


def test_the_dry_run_compares_tokens_and_fills_the_page(run):
    run.part("machine", lambda: parts.machine(run), 60)
    run.part("link", lambda: parts.link(run), 60)
    run.part("tokens/llama/bf16", lambda: parts.tokens(run, "llama", torch.bfloat16), 60)
    run.part("first_token", lambda: parts.first_token(run), 60)
    run.part("decode", lambda: parts.decode(run), 60)
    assert run.failed() == []
    found = json.loads(run.out.read_text())
    assert found == run.results
    tokens = found["tokens"]["llama"]["bf16"]
    assert tokens["identical"] == tokens["total"] == SMALL.new_tokens
    written = found["first_token"]["contenders"]["kvdrive emulator"]["writeback"]["bytes_sent"]
    assert written == SMALL.first_token * models.load("llama", torch.bfloat16, run.device, True).shape.bytes_per_token
    shown = page.measured([run.out])
    assert f"| {SMALL.contexts[-1]} | kvdrive memory |" in shown
    assert "failed" not in shown


def test_the_dry_run_takes_every_other_path(run):
    for name in ("identity", "direct", "codes", "blocks", "load", "inputs", "mini_batches"):
        run.part(name, partial(getattr(paths, name), run), 60)
    assert run.failed() == []
    found = run.results
    assert (found["direct"]["how"], found["direct"]["same"]) == ("host", True)
    assert all(one["same_bytes"] and one["same_arrived"] for one in found["codes"].values())
    assert set(found["codes"]) == {"int8", "int4", "fp8"}
    assert found["blocks"]["host"]["same"]
    assert found["blocks"]["direct"]["same"]
    assert found["load"]["same_logits"]
    assert (
        found["load"]["bytes"]
        == SMALL.loaded * models.load("llama", torch.bfloat16, run.device, True).shape.bytes_per_token
    )
    assert found["inputs"]["identical"] == found["inputs"]["total"] == SMALL.new_tokens
    assert found["inputs"]["statistics"]["tokens_rebuilt"] > 0
    assert found["mini_batches"]["same_logits"]
    shown = page.measured([finished(run)])
    for words in ("K and V loaded", "K and V in int4", "rebuilt", "mini-batches", "a file and the device"):
        assert words in shown


@pytest.mark.slow  # vLLM takes half a minute for each engine
def test_the_dry_run_asks_vllm_where_it_is(run):
    run.seconds = 900
    run.part("vllm", partial(paths.vllm, run), 800)
    assert run.failed() == []
    found = run.results["vllm"]
    if not found["available"]:
        pytest.skip(found["reason"])
    assert all(found[config]["same"] for config in ("none", "ssd", "tier"))
    assert [found[config]["cached"][1] for config in ("ssd", "tier")] == [[384] * 2] * 2


def finished(run):
    """The file of a run, with the part that every page begins with."""
    run.part("machine", partial(parts.machine, run), 60)
    return run.out


def test_steps_are_compared_with_the_plan(run, monkeypatch):
    monkeypatch.setattr(here, "_STEPS", 1)
    run.results["decode"] = {str(SMALL.contexts[0]): {"kvdrive cpu": {"ms": 12.5}}}
    run.part("expected", partial(paths.expected, run), 120)
    assert run.failed() == []
    first, last = (run.results["expected"]["steps"][str(context)] for context in SMALL.contexts)
    assert first["measured_ms"] == 12.5
    assert first["measured_over_expected"] == round(12.5 / (first["model_ms"] + first["attention_ms"]), 2)
    assert "measured_ms" not in last


def test_every_family_and_precision_is_checked(run, monkeypatch):
    of_paths = ("identity", "direct", "codes", "blocks", "load", "inputs", "mini_batches", "expected", "vllm")
    for module, names in ((parts, ("machine", "link", "tokens", "first_token", "decode")), (paths, of_paths)):
        for name in names:
            monkeypatch.setattr(module, name, lambda *_: {})
    check.check(run)
    assert run.results.keys() >= {"link", "first_token", "decode", *of_paths}
    assert set(run.results["tokens"]) == {models.SHIPPED, *models.FAMILIES}
    assert all(set(found) == set(check.PRECISIONS) for found in run.results["tokens"].values())


def test_a_part_that_fails_or_takes_too_long_leaves_its_error_and_the_others(run):
    run.part("bad", lambda: 1 // 0, 60)
    run.part("long", lambda: time.sleep(600), 0.01)
    run.part("good", lambda: 3, 60)
    run.seconds = 0
    run.part("late", lambda: 3, 60)
    found = json.loads(run.out.read_text())
    assert found["bad"]["error"].startswith("ZeroDivisionError")
    assert found["long"]["error"].startswith("TimeoutError")
    assert found["good"] == 3
    assert run.failed() == ["bad", "long", "late"]


def copy(name, begin, length, size):
    return {"cat": "gpu_memcpy", "name": f"Memcpy {name}", "ts": begin, "dur": length, "args": {"bytes": size}}


def kernel(begin, length):
    return {"cat": "kernel", "name": "product", "ts": begin, "dur": length}


def test_bytes_count_as_hidden_while_a_kernel_runs():
    events = [
        kernel(0, 10), kernel(5, 10), kernel(30, 10), {"cat": "cpu_op", "name": "add", "ts": 0, "dur": 99},
        copy("DtoH (Device -> Pinned)", 10, 10, 100),  # half of it
        copy("DtoH (Device -> Pageable)", 20, 5, 40),  # none
        copy("DtoH (Device -> Pinned)", 12, 20, 200),  # 3 us before the first end, 2 us behind the next begin
        copy("HtoD (Pinned -> Device)", 31, 4, 64),  # all
    ]  # fmt: skip
    found = copies_of(events)
    assert found["DtoH"] | {"milliseconds": 0} == {
        "count": 3, "bytes": 340, "hidden_bytes": 100, "pageable_bytes": 40, "milliseconds": 0,
    }  # fmt: skip
    assert found["HtoD"]["hidden_bytes"] == 64
    assert found["kernel_ms"] == pytest.approx(0.025)


def test_without_results_the_page_says_that_there_are_none():
    assert page.measured([]) == page.NONE
