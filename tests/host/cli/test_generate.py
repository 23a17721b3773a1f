"""`kvdrive generate` on a checkpoint folder: text, comparison, numbers, report, and errors for bad input."""

import json
import re
import shutil
import sys
from itertools import pairwise

import forked
import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer
from typer.testing import CliRunner

from kvdrive import abi
from kvdrive.cli.main import app
from kvdrive.errors import InputError, TargetError

RUNNER = CliRunner()
PROMPTS = ("The drive keeps the keys and the values of every token, and the host", "Ein Gruß aus München")


@pytest.fixture
def generate(checkpoint, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))

    def call(*arguments):
        return RUNNER.invoke(app, ["generate", "--model", str(checkpoint), "--threads", "1", *map(str, arguments)])

    return call


def stock(checkpoint, prompt, new_tokens, **options):
    model, tokenizer = AutoModelForCausalLM.from_pretrained(checkpoint), AutoTokenizer.from_pretrained(checkpoint)
    ids = torch.tensor([tokenizer(prompt)["input_ids"]])
    out = model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=new_tokens, pad_token_id=0, **options)
    return out[0, ids.shape[1] :].tolist()


@pytest.mark.parametrize("engine", ["fast", "hls"])
def test_text_on_stdout_equals_transformers(generate, checkpoint, engine):
    result = generate("--prompt", PROMPTS[0], "--max-new-tokens", 24, "--engine", engine, "--check", "--ignore-stop")
    assert result.exit_code == 0, result.output
    expected = stock(checkpoint, PROMPTS[0], 24, do_sample=False, eos_token_id=-1)
    assert len(set(expected)) > 4
    assert result.stdout == AutoTokenizer.from_pretrained(checkpoint).decode(expected, skip_special_tokens=True) + "\n"
    assert "tokens identical to transformers: 24/24" in result.stderr


def test_without_a_prompt_the_model_is_asked_for_what_stands_far_back():
    result = RUNNER.invoke(app, ["generate", "--threads", "1", "--prompt-tokens", "1000"])
    assert result.exit_code == 0, result.output
    assert re.fullmatch(r"# What is the pass key\? The pass key is \d{5}\.\n", result.stdout)
    about, verdict = result.stderr.splitlines()
    assert re.fullmatch(r"1,000 tokens of .*, with a pass key in a comment", about)
    assert re.match(r"the answer, \d{5}, stands \d+ tokens back: found; first token after ", verdict)


def test_the_table_is_shown_if_wanted(generate):
    few = ["--prompt", PROMPTS[0], "--max-new-tokens", 3]
    short, long = (generate(*few, *more).stderr for more in ([], ["--verbose"]))
    assert re.fullmatch(r"first token after [\d.]+ s, 3 tokens, [\d.]+ a second\n", short)
    assert "read inside the drive" in long


def test_a_batch_of_prompts_of_different_lengths(generate, checkpoint):
    arguments = [part for prompt in PROMPTS for part in ("--prompt", prompt)]
    result = generate(*arguments, "--batch", 3, "--max-new-tokens", 12, "--ignore-stop", "--check", "--json")
    assert result.exit_code == 0, result.output
    report = json.loads(result.stdout)
    assert report["check"] == {"identical": 36, "total": 36, "difference": None, "ties": 0}
    assert report["tokens"][0] == report["tokens"][2] == stock(checkpoint, PROMPTS[0], 12, eos_token_id=-1)
    assert report["tokens"][1] == stock(checkpoint, PROMPTS[1], 12, eos_token_id=-1)
    assert report["prompts"][0] != report["prompts"][1]


def test_the_report_counts_what_the_drive_did(generate, tmp_path):
    text = tmp_path / "prompt.txt"
    text.write_text(" ".join(PROMPTS * 4))
    folder = tmp_path / "report"
    new = 9
    options = [
        "--max-new-tokens",
        new,
        "--prompt-tokens",
        130,
        "--report",
        folder,
        "--ignore-stop",
        "--preset",
        "zn540",
    ]
    result = generate("--prompt-file", text, *options)
    assert result.exit_code == 0, result.output
    report = json.loads((folder / "report.json").read_text())
    layers, kv_heads, head_dim = (report["model"][name] for name in ("layers", "kv_heads", "head_dim"))
    assert report["prompts"] == [130]
    decode, prefill = report["counted"]["decode"], report["counted"]["prefill"]
    assert decode["attention_jobs"] == (new - 1) * layers * kv_heads
    assert prefill["pages_written"] == 2 * layers * kv_heads * (130 // (abi.PAGE_BYTES // (2 * head_dim)))
    row = 2 * 2 * head_dim * layers * kv_heads  # K and V of one token
    assert decode["inside_bytes"] == (new - 1) * row * 130  # the new tokens are pending
    assert report["writeback"]["pending_tokens"] == new - 1
    assert report["writeback"]["bytes_sent"] == 130 * row
    assert prefill["host_bytes"] > 130 * row
    assert decode["host_bytes"] < decode["inside_bytes"]
    assert report["modelled"]["device_ns_per_token"] > 0
    assert report["options"]["preset"] == "zn540"
    assert len(report["steps"]) == new
    for name in ("bytes.png", "times.png"):
        assert (folder / name).read_bytes().startswith(b"\x89PNG")


def test_the_report_says_what_policy_groups_left_unread(generate, tmp_path):
    text = tmp_path / "prompt.txt"
    text.write_text(" ".join(PROMPTS * 6))
    options = ["--max-new-tokens", 9, "--prompt-tokens", 200, "--ignore-stop", "--json"]
    groups = ["--attention", "groups", "--ratio", "1/4", "--unit", 16]
    result = generate("--prompt-file", text, *options, *groups)
    assert result.exit_code == 0, result.output
    report = json.loads(result.stdout)
    unread = report["writeback"]["unread"]
    assert unread["steps"] == 8
    assert 0 < unread["mean"] <= unread["worst"] < 1
    exact = json.loads(generate("--prompt-file", text, *options).stdout)
    assert exact["writeback"]["unread"] is None
    assert report["counted"]["decode"]["inside_bytes"] < exact["counted"]["decode"]["inside_bytes"]


def test_a_unit_belongs_to_policy_groups(generate):
    result = generate("--prompt", PROMPTS[0], "--attention", "sparf", "--ratio", "1/4", "--unit", 16)
    assert isinstance(result.exception, InputError)
    assert "no parameter unit" in str(result.exception)


def test_two_drives_on_one_disk_have_one_timeline_and_count_once(generate, tmp_path):
    options = ["--target", "cpu", "--drives", 2, "--max-new-tokens", 3, "--ignore-stop"]
    result = generate("--prompt", PROMPTS[0], "--report", tmp_path, *options)
    assert result.exit_code == 0, result.output
    report = json.loads((tmp_path / "report.json").read_text())
    (kinds,) = report["disk"].values()
    assert list(kinds) == ["attention", "weights", "ahead", "background"]
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    names = [event["args"]["name"] for event in events if event["name"] == "process_name"]
    assert [name for name in names if "disk" in name] == ["drive 0: disk (wall time)"]


def test_the_timeline_has_a_clock_for_the_host_and_one_for_the_drive(generate, tmp_path):
    result = generate("--prompt", PROMPTS[0], "--max-new-tokens", 4, "--report", tmp_path, "--ignore-stop")
    assert result.exit_code == 0, result.output
    timeline = json.loads((tmp_path / "trace.json").read_text())
    events = timeline["traceEvents"]
    names = {event["pid"]: event["args"]["name"] for event in events if event["name"] == "process_name"}
    inside = {pid: name for pid, name in names.items() if pid not in (1, 2)}
    assert {names[1], names[2]} == {"host (wall time)", "drive (modelled time)"}
    assert set(inside.values()) >= {f"drive: {kind} (modelled device time)" for kind in ("PCIe", "engine", "queue")}
    jobs = [
        event for event in events if event["ph"] == "X" and inside.get(event["pid"], "").startswith("drive: engine (")
    ]
    assert len(jobs) == json.loads((tmp_path / "report.json").read_text())["counted"]["decode"]["attention_jobs"]
    spans = [event for event in events if event["ph"] == "X" and event["pid"] not in inside]
    steps = [(event["pid"], event["name"]) for event in spans if event["tid"] == 1]
    assert steps == [(pid, name) for pid in (1, 2) for name in ("prefill", "token 1", "token 2", "token 3")]
    assert sum(event["name"].startswith("layer") for event in spans) == 4 * 2
    commands = [event["name"] for event in spans if event["tid"] == 3]
    assert sum(name == "ATTN_SUBMIT" for name in commands) == 3 * 2  # steps, layers; with the fetch of the result
    assert all(event["dur"] > 0 for event in spans)
    device = [event for event in spans if event["pid"] == 2]
    for before, after in pairwise(device):
        assert before["ts"] + before["dur"] == pytest.approx(after["ts"])
    decode = device[1]["ts"], device[-1]["ts"] + device[-1]["dur"]
    assert all(decode[0] <= job["ts"] and job["ts"] + job["dur"] <= decode[1] for job in jobs)
    covers = timeline["otherData"]
    assert list(covers) == [
        "host, wall time",
        "drive, modelled device time",
        "inside drive 0, modelled device time",
    ]
    assert covers["drive, modelled device time"] == f"0.000 to {decode[1] / 1e3:,.3f} ms (steps)"
    count = sum(event["ph"] == "X" and event["pid"] in inside for event in events)
    assert covers["inside drive 0, modelled device time"].endswith(f" ms ({count:,} of {count:,} events)")
    for clock, covered in covers.items():
        assert f"timeline ({clock}): {covered}\n" in result.stderr


def test_mini_batches_have_tracks_of_their_own(generate, tmp_path):
    arguments = ["--prompt", PROMPTS[0], "--batch", 3, "--max-new-tokens", 4, "--ignore-stop", "--json"]
    one = generate(*arguments)
    two = generate(*arguments, "--mini-batches", 2, "--report", tmp_path)
    assert two.exit_code == 0, two.output
    assert json.loads(two.stdout)["tokens"] == json.loads(one.stdout)["tokens"]
    assert json.loads(two.stdout)["options"]["mini_batches"] == 2
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    tracks = {event["args"]["name"]: event["tid"] for event in events if event["name"] == "thread_name"}
    layers = [event["tid"] for event in events if event["ph"] == "X" and event["name"].startswith("layer ")]
    assert layers.count(tracks["layers"]) == (1 + 3) * 2  # the prefill and three steps of two layers
    assert layers.count(tracks["layers of mini-batch 2"]) == 3 * 2


def test_sampling_repeats_with_its_seed(generate):
    def sampled(seed):
        options = ["--temperature", 1.5, "--top-k", 50, "--top-p", 0.9, "--seed", seed]
        result = generate("--prompt", PROMPTS[0], "--max-new-tokens", 16, "--json", *options)
        assert result.exit_code == 0, result.output
        return json.loads(result.stdout)["tokens"]

    assert sampled(3) == sampled(3)
    assert sampled(3) != sampled(4)


def test_generation_ends_at_the_stop_token(checkpoint, generate, tmp_path):
    free = stock(checkpoint, PROMPTS[0], 16, do_sample=False, eos_token_id=-1)
    stop = free[5]
    copy = tmp_path / "copy"
    copy.mkdir()
    for file in checkpoint.iterdir():
        (copy / file.name).write_bytes(file.read_bytes())
    settings = json.loads((copy / "generation_config.json").read_text())
    (copy / "generation_config.json").write_text(json.dumps(settings | {"eos_token_id": stop}))
    result = generate("--model", copy, "--prompt", PROMPTS[0], "--max-new-tokens", 16, "--json", "--check")
    assert result.exit_code == 0, result.output
    report = json.loads(result.stdout)
    assert report["tokens"] == [free[: free.index(stop) + 1]]
    assert report["check"]["identical"] == report["check"]["total"] == free.index(stop) + 1


def test_prompts_come_from_stdin(checkpoint, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    arguments = ["generate", "--model", str(checkpoint), "--prompt", "-", "--max-new-tokens", "3", "--json"]
    result = RUNNER.invoke(app, arguments, input=PROMPTS[1])
    assert result.exit_code == 0, result.output
    assert not list((tmp_path / "kvdrive").iterdir())  # the drive's temporary folder is gone


def test_neither_drives_nor_spill_interval_change_a_bit(generate):
    def tokens(*options):
        result = generate("--prompt", PROMPTS[0], "--max-new-tokens", 24, "--ignore-stop", "--json", *options)
        assert result.exit_code == 0, result.output
        report = json.loads(result.stdout)
        return report["tokens"], report["writeback"]

    one, written = tokens("--spill", 1)
    three, delayed = tokens("--spill", 8, "--drives", 3, "--on-failure", "recompute")
    assert one == three
    assert written["writes"] == 24 * 2  # layers
    assert delayed["writes"] < written["writes"] / 3


@pytest.mark.parametrize("policy", ["sparf", "sparq", "h2o", "local"])
def test_policies_read_less(generate, policy):
    prompt = " ".join(PROMPTS * 4)
    options = ["--prompt", prompt, "--max-new-tokens", 6, "--ignore-stop", "--json", "--attention", policy]
    result = generate(*options, "--ratio", "1/8", "--check")
    assert result.exit_code == 0, result.output  # a different text is no error
    report = json.loads(result.stdout)
    assert report["options"]["attention"] == policy
    assert report["options"]["ratio"] == "1/8"
    assert report["check"]["total"] == 6


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        (["--batch", 2], InputError, "no prompt"),
        (["--prompt", ""], InputError, "prompt is empty"),
        (["--prompt-file", "missing.txt"], InputError, "cannot read the prompt missing.txt"),
        (["--prompt", "x", "--model", "nowhere"], InputError, "no checkpoint in 'nowhere'"),
        (["--prompt", "x", "--max-new-tokens", 4096], InputError, "exceed the 4096 positions"),
        (["--prompt", "x", "--check", "--temperature", 1], InputError, "leave --temperature out"),
        (["--prompt", "x", "--prompt", "y", "--batch", 1], InputError, "--batch 1 is less than the 2 prompts"),
        (["--prompt", "x", "--ratio", "1/8"], InputError, "--ratio goes with a policy other than exact"),
        (["--prompt", "x", "--attention", "sparf", "--ratio", "8"], InputError, "outside (0, 1]"),
        (["--prompt", "x", "--preset", "floppy"], TargetError, "unknown preset 'floppy'"),
    ],
)
def test_bad_input_is_one_sentence(generate, arguments, error, message):
    result = generate(*arguments)
    assert isinstance(result.exception, error), result.output
    assert message in str(result.exception)
    assert "\n" not in str(result.exception)


@pytest.mark.parametrize(
    ("broken", "message"),
    [
        ("config.json", "transformers cannot read the configuration"),
        ("model.safetensors", "transformers cannot load"),
        ("tokenizer.json", "holds no usable tokenizer"),
        ("no weights", r"holds no \*\.safetensors"),
    ],
)
def test_broken_checkpoints_are_refused_by_name(generate, checkpoint, tmp_path, broken, message):
    for file in checkpoint.iterdir():
        (tmp_path / file.name).write_bytes(b"{" if file.name == broken else file.read_bytes())
    if broken == "no weights":
        (tmp_path / "model.safetensors").unlink()
    result = generate("--model", tmp_path, "--prompt", "x")
    with pytest.raises(InputError, match=message):
        raise result.exception
    assert str(tmp_path) in str(result.exception)
    assert "\n" not in str(result.exception)


def test_prompt_file_of_bytes_is_refused(generate, tmp_path):
    (tmp_path / "bytes").write_bytes(b"\xff\xfe\xff")
    assert "no UTF-8 text" in str(generate("--prompt-file", tmp_path / "bytes").exception)


def test_a_model_whose_layers_all_slide_runs_and_says_that_it_needs_no_drive(checkpoint, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    folder = tmp_path / "sliding"
    shutil.copytree(checkpoint, folder)
    stored = json.loads((folder / "config.json").read_text())
    sliding = {"model_type": "mistral", "architectures": ["MistralForCausalLM"], "sliding_window": 8}
    (folder / "config.json").write_text(json.dumps(stored | sliding))
    options = ["--prompt", PROMPTS[0], "--max-new-tokens", "12", "--ignore-stop", "--check", "--threads", "1"]
    command = [sys.executable, "-m", "kvdrive", "generate", "--model", str(folder), *options]
    result = forked.run(command, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    assert "MistralForCausalLM needs no drive" in result.stderr
    assert "tokens identical to transformers: 12/12" in result.stderr
