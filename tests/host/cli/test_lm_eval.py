"""`kvdrive lm-eval`: the harness gets all arguments unchanged, and finds the model `kvdrive`."""

import json
import os
import subprocess
import sys

import pytest

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


def lm_eval(arguments, path):
    command = [sys.executable, "-m", "kvdrive", "lm-eval", *arguments]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(path), os.environ.get("PYTHONPATH", "")])}
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)


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
