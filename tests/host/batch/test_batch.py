"""`kvdrive batch` in one process: every prompt is answered once, as `generate` would, and a stopped batch continues."""

import json

import pytest
from typer.testing import CliRunner

from kvdrive.batch.files import Answers, read_prompts
from kvdrive.cli.main import app
from kvdrive.errors import InputError
from kvdrive.generation import checkpoints
from kvdrive.generation.batches import batch
from kvdrive.generation.generate import greedy

TEXTS = ["The drive keeps", "All keys", "and the host", "An emoji has"]


@pytest.fixture
def prompts(tmp_path):
    path = tmp_path / "prompts.jsonl"
    lines = [{"prompt": text} for text in TEXTS]
    lines[2]["id"] = "third"
    path.write_text("\n".join(map(json.dumps, lines)) + "\n\n")
    return path


def run(checkpoint, prompts, out, *more):
    arguments = ["batch", prompts, "--out", out, "--model", checkpoint, "--max-new-tokens", 8, "--threads", 1, *more]
    return CliRunner().invoke(app, list(map(str, arguments)))


def lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_every_prompt_is_answered_with_the_tokens_of_transformers(checkpoint, prompts, tmp_path):
    out = tmp_path / "answers.jsonl"
    done = run(checkpoint, prompts, out)
    assert done.exit_code == 0, done.output
    found = lines(out)
    assert [answer["id"] for answer in found] == ["1", "2", "third", "4"]
    loaded = checkpoints.load(str(checkpoint))
    for answer, text in zip(found, TEXTS, strict=True):
        work = batch([loaded.encode(text)], 8)
        stock = greedy(loaded.model, work.ids, 8)[0, work.ids.shape[1] :].tolist()
        assert answer["text"] == loaded.tokenizer.decode(stock, skip_special_tokens=True)
        assert (answer["prompt_tokens"], answer["new_tokens"]) == (work.ids.shape[1], len(stock))


def test_a_stopped_batch_continues_where_it_was(checkpoint, prompts, tmp_path):
    out = tmp_path / "answers.jsonl"
    kept = '{"id": "2", "text": "kept"}\n'
    out.write_text(kept + '{"id": "third", "te')  # killed in the middle of a line
    assert run(checkpoint, prompts, out).exit_code == 0
    assert out.read_text().startswith(kept)
    assert sorted(answer["id"] for answer in lines(out)) == ["1", "2", "4", "third"]
    before = out.read_text()
    assert run(checkpoint, prompts, out).exit_code == 0  # nothing is left to do
    assert out.read_text() == before


def test_an_answer_is_written_once(tmp_path):
    with Answers(tmp_path / "a.jsonl") as answers:
        assert [answers.write({"id": "1", "text": text}) for text in ("a", "b")] == [True, False]
        assert lines(tmp_path / "a.jsonl") == [{"id": "1", "text": "a"}]  # on disk before the file is closed
        with pytest.raises(InputError, match="another batch writes"):
            Answers(tmp_path / "a.jsonl")


def test_a_prompt_that_is_too_long_is_an_error_in_its_line(checkpoint, tmp_path):
    prompts, out = tmp_path / "p.jsonl", tmp_path / "a.jsonl"
    prompts.write_text(json.dumps({"prompt": "word " * 9000}) + "\n" + json.dumps({"prompt": "short"}) + "\n")
    assert run(checkpoint, prompts, out).exit_code == 0
    long, short = lines(out)
    assert "positions" in long["error"]
    assert short["new_tokens"] == 8 or short["text"] is not None


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "holds no prompt"),
        ("{", "line 1 is no JSON"),
        ('{"text": "x"}', "line 1 has no prompt"),
        ('{"prompt": ""}', "line 1 has no prompt"),
        ("[1]", "line 1 has no prompt"),
        ('{"prompt": "x", "id": 2}\n{"prompt": "y"}', "line 2 has the id 2"),
    ],
)
def test_files_that_hold_no_prompts_are_refused(tmp_path, text, message):
    path = tmp_path / "p.jsonl"
    path.write_text(text)
    with pytest.raises(InputError, match=message):
        read_prompts(path)


def test_a_file_of_something_else_is_not_overwritten(checkpoint, prompts, tmp_path):
    out = tmp_path / "notes.txt"
    out.write_text("my notes\n")
    assert "holds something else" in str(run(checkpoint, prompts, out).exception)
    assert out.read_text() == "my notes\n"


def test_actors_do_not_share_files(checkpoint, prompts, tmp_path):
    done = run(checkpoint, prompts, tmp_path / "a", "--actors", 2, "--drive", tmp_path / "drives")
    assert "serve the drives" in str(done.exception)
    done = run(checkpoint, prompts, tmp_path / "a", "--ray-address", "here")
    assert "goes with --actors" in str(done.exception)
