"""`kvdrive lm-eval`: the harness gets all arguments unchanged, and finds the model `kvdrive`."""

import json
import os
import sys
from pathlib import Path

import forked
import pytest

MINI = Path(__file__).resolve().parents[3] / "models/mini"
ARGUMENTS = [
    "--model", "kvdrive", "--model_args", "pretrained=a b,engine=hls", "-T", "--limit=3", "run", "--tasks", "x,y",
    "--help", "-h", "--check_integrity", "--tasks", "z", "--", "",
]  # fmt: skip

# A replacement of the harness, for machines where it is not installed. It prints its arguments.
HARNESS = {
    "lm_eval/__init__.py": "",
    "lm_eval/__main__.py": """
import json, sys
from lm_eval.api.registry import MODELS
def cli_evaluate():
    print(json.dumps([sys.argv, sorted(MODELS)]))
    sys.exit(3)
""",
    "lm_eval/api/__init__.py": "",
    "lm_eval/api/registry.py": """
MODELS = {}
def register_model(name):
    return lambda model: MODELS.setdefault(name, model)
""",
    "lm_eval/models/__init__.py": "",
    "lm_eval/models/huggingface.py": "class HFLM: pass\n",
}


# A task of the harness: multiple choice over two sentences, and greedy decoding after them.
SENTENCES = [
    {"text": "The sun rises in the", "choices": [" east", " west"], "answer": 0},
    {"text": "One and one is", "choices": [" two", " three and more"], "answer": 0},
]
TASK = """
dataset_path: json
dataset_kwargs: {{data_files: {{test: {data}}}}}
test_split: test
doc_to_text: "{{{{text}}}}"
target_delimiter: ""
"""
CHOICE = """
task: choice
output_type: multiple_choice
doc_to_choice: "{{choices}}"
doc_to_target: "{{answer}}"
metric_list: [{metric: acc}]
"""
DECODING = """
task: decoding
output_type: generate_until
doc_to_target: "{{choices[answer]}}"
generation_kwargs: {until: ["###"], max_gen_toks: 6, do_sample: false}
metric_list: [{metric: exact_match}]
"""


def lm_eval(arguments, path):
    command = [sys.executable, "-m", "kvdrive", "lm-eval", *arguments]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(path), os.environ.get("PYTHONPATH", "")])}
    return forked.run(command, env=environment, capture_output=True, text=True, timeout=900)


def test_all_arguments_reach_the_harness(tmp_path):
    for name, text in HARNESS.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    done = lm_eval(ARGUMENTS, tmp_path)
    assert done.returncode == 3, done.stderr
    assert json.loads(done.stdout) == [["lm_eval", *ARGUMENTS], ["kvdrive"]]


def test_the_harness_itself_explains_its_options(tmp_path):
    pytest.importorskip("lm_eval", reason="lm-eval is not installed: pip install 'kvdrive[eval]'")
    done = lm_eval(["--help"], tmp_path)
    assert done.returncode == 0
    assert "usage: lm-eval" in done.stdout or "usage: lm_eval" in done.stdout


def test_without_the_harness_one_sentence_says_what_to_install(tmp_path):
    (tmp_path / "lm_eval").mkdir()
    (tmp_path / "lm_eval/__init__.py").write_text("raise ImportError\n")
    done = lm_eval(["--model", "kvdrive"], tmp_path)
    assert (done.returncode, done.stderr) == (2, "kvdrive: lm-eval is not installed: pip install 'kvdrive[eval]'\n")


@pytest.mark.slow
def test_a_task_gives_the_answers_of_the_harness_own_model(tmp_path):
    """Log likelihoods within the rounding of K and V, the same decoded text. `run` may be written or not."""
    pytest.importorskip("lm_eval", reason="lm-eval is not installed: pip install 'kvdrive[eval]'")
    data = tmp_path / "sentences.jsonl"
    data.write_text("".join(json.dumps(sentence) + "\n" for sentence in SENTENCES))
    for name, task in (("choice", CHOICE), ("decoding", DECODING)):
        (tmp_path / f"{name}.yaml").write_text(TASK.format(data=data) + task)
    answers = {}
    for model, begin in (("kvdrive", []), ("hf", ["run"])):
        arguments = [*begin, "--model", model, "--model_args", f"pretrained={MINI},dtype=float32"]
        arguments += ["--tasks", "choice,decoding", "--include_path", str(tmp_path)]
        arguments += ["--log_samples", "--output_path", str(tmp_path / model)]
        done = lm_eval([*arguments, "--device", "cpu", "--batch_size", "1"], tmp_path)
        assert done.returncode == 0, done.stderr
        files = sorted((tmp_path / model).rglob("samples_*.jsonl"))
        samples = [json.loads(line) for file in files for line in file.read_text().splitlines()]
        answers[model] = [answer for sample in samples for (answer,) in sample["resps"]]
    ours, theirs = ([answer for answer in answers[model] if len(answer) == 2] for model in ("kvdrive", "hf"))
    assert len(ours) == len(theirs) == 4
    for (our, our_greedy), (their, their_greedy) in zip(ours, theirs, strict=True):
        assert float(our) == pytest.approx(float(their), rel=1e-3)
        assert our_greedy == their_greedy
    texts = [[answer for answer in answers[model] if isinstance(answer, str)] for model in ("kvdrive", "hf")]
    assert texts[0] == texts[1]
    assert len(texts[0]) == 2
