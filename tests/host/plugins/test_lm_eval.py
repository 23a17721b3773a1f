"""The harness's own command line on a task that lies beside it, exact against the harness's transformers model."""

import json
import math
import os
import subprocess
import sys

import pytest

pytest.importorskip("lm_eval", reason="lm-eval is not installed: pip install 'kvdrive[eval]'")

LINES = [
    ("one two three one two", [" three", " four"], 0),
    ("red green blue red", [" blue", " green"], 1),
    ("a b c d a b c", [" x", " d"], 1),
]


@pytest.fixture
def tasks(tmp_path):
    """Multiple choice, rolling perplexity and generation on three lines of text."""
    folder = tmp_path / "tasks"
    folder.mkdir()
    rows = [{"text": text, "choices": choices, "answer": answer} for text, choices, answer in LINES]
    (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    common = f"dataset_path: json\ndataset_kwargs:\n  data_files:\n    test: {folder}/rows.jsonl\ntest_split: test\n"
    (folder / "choice.yaml").write_text(
        f"task: near_choice\noutput_type: multiple_choice\n{common}"
        'doc_to_text: "{{text}}"\ndoc_to_choice: "{{choices}}"\ndoc_to_target: answer\ntarget_delimiter: ""\n'
        "metric_list:\n  - metric: acc\n"
    )
    (folder / "rolling.yaml").write_text(
        f"task: near_rolling\noutput_type: loglikelihood_rolling\n{common}"
        'doc_to_text: ""\ndoc_to_target: "{{text}}"\nmetric_list:\n  - metric: bits_per_byte\n'
    )
    (folder / "write.yaml").write_text(
        f"task: near_write\noutput_type: generate_until\n{common}"
        'doc_to_text: "{{text}}"\ndoc_to_target: "{{choices[answer]}}"\n'
        "generation_kwargs:\n  until: []\n  max_gen_toks: 6\n  do_sample: false\n"
        "metric_list:\n  - metric: exact_match\n"
    )
    return folder


def evaluate(tasks, out, *model):
    command = [sys.executable, "-m", "kvdrive", "lm-eval", *model, "--include_path", str(tasks), "--log_samples"]
    command += ["--tasks", "near_choice,near_rolling,near_write", "--output_path", str(out)]
    environment = os.environ | {"HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "HF_HOME": str(out.parent / "hf")}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-3000:]
    samples = {}
    for path in out.rglob("samples_*.jsonl"):
        task = path.name.removeprefix("samples_").rsplit("_", 1)[0]
        samples[task] = [json.loads(line)["resps"] for line in path.read_text().splitlines()]
    return samples


def numbers(response):
    """The log likelihoods in nested lists of responses; flags are the strings True and False."""
    if isinstance(response, list):
        return [x for part in response for x in numbers(part)]
    return [] if str(response) in ("True", "False") else [float(response)]


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["fast", "hls"])
def test_exact_attention_gives_the_harness_what_transformers_gives_it(checkpoint, tasks, tmp_path, engine):
    model = ["--model", "kvdrive", "--model_args", f"pretrained={checkpoint},engine={engine},threads=1"]
    ours = evaluate(tasks, tmp_path / "ours", *model)
    stock = evaluate(
        tasks, tmp_path / "stock", "--model", "hf", "--model_args", f"pretrained={checkpoint},dtype=float32",
        "--device", "cpu",
    )  # fmt: skip
    assert set(ours) == {"near_choice", "near_rolling", "near_write"}
    assert ours["near_write"] == stock["near_write"]
    for task in ("near_choice", "near_rolling"):
        mine, theirs = numbers(ours[task]), numbers(stock[task])
        assert len(mine) == len(theirs) > 2
        assert all(math.isclose(a, b, rel_tol=2e-3, abs_tol=2e-3) for a, b in zip(mine, theirs, strict=True))


def test_a_batch_is_refused(checkpoint):
    from kvdrive.errors import InputError
    from kvdrive.plugins.lm_eval import DriveLM

    with pytest.raises(InputError, match="batch_size at 1"):
        DriveLM(str(checkpoint), batch_size=4)


def test_each_policy_rates_a_continuation(checkpoint):
    from kvdrive.plugins.lm_eval import DriveLM

    context, continuation = list(range(40, 140)), [65, 66, 67]
    found = {}
    for attention in ("exact", "sparf", "h2o"):
        model = DriveLM(str(checkpoint), attention=attention, ratio="1" if attention == "exact" else "1/8", threads=1)
        ((found[attention], _),) = model._loglikelihood_tokens([(None, context, continuation)], disable_tqdm=True)
        model.close()
    assert len(set(found.values())) == 3
    assert all(value < 0 for value in found.values())
