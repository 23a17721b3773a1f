"""An option that would be ignored, and a place that cannot be written, are refused before any work begins."""

import json

import pytest
from typer.testing import CliRunner

from kvdrive._native import Drive
from kvdrive.cli.main import app
from kvdrive.cli.paths import output_file, output_folder
from kvdrive.config.text import check_effects
from kvdrive.errors import InputError

RUNNER = CliRunner()


def refused(arguments):
    """The sentence that refuses a command. No model is loaded: there is none of this name."""
    result = RUNNER.invoke(app, [str(part) for part in arguments])
    assert isinstance(result.exception, InputError), result.output
    return str(result.exception)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ("generate --prompt a --prompt-file FILE", "--prompt and --prompt-file exclude each other"),
        ("generate --prompt - --prompt -", "give --prompt - once"),
        ("generate --prompt a --attention groups", "--attention groups reads everything without a ratio"),
        ("generate --prompt a --attention sparf", "--attention sparf reads everything without a ratio"),
        ("serve --attention local", "--attention local reads everything without a ratio"),
        ("generate --prompt a --attention groups --unread 0.1", "reads everything without a ratio"),
        ("generate --prompt a --ratio 1/8", "--ratio goes with a policy other than exact"),
        ("generate --prompt a --hot 1M", "--hot goes with policy groups or auto"),
        ("generate --prompt a --index memory", "--index goes with policy groups or auto"),
        ("generate --prompt a --overflow-ratio 0.3", "--overflow-ratio goes with --overflow trim"),
        ("generate --prompt a --weights-memory 1G", "--weights-memory goes with --weights flash"),
        ("generate --prompt a --weights-window 9", "--weights-window goes with --weights flash"),
        ("chat --weights-cache lru", "--weights-cache goes with --weights flash"),
        ("batch FILE --out out --look-ahead on", "--look-ahead goes with --weights flash"),
        ("generate --prompt a --active drive --memory 1G", "--memory goes with --active memory or auto"),
        ("generate --prompt a --target tcp://127.0.0.1:1 --engine hls", "--engine goes with a drive in this process"),
        ("generate --prompt a --mini-batches 2", "--mini-batches 2 needs as many sequences"),
        ("serve --idle 0 --session-days 3", "--session-days goes with --idle above 0"),
        ("serve --idle 0 --eviction fifo", "--eviction goes with --idle above 0"),
        ("serve --open-metrics", "--open-metrics goes with --key or --keys"),
        ("serve --key a --keys FILE", "--key (or KVDRIVE_API_KEY) and --keys exclude each other"),
        ("serve --keys FILE --tenant a", "--tenant is for a server with one key"),
        ("eval --ratios 1/4", "--ratios goes with a policy other than exact"),
        ("eval --units 64", "--units goes with policy groups"),
        ("eval --policies exact,sparf --unread-limits 0.1", "--unread-limits goes with policy groups"),
        ("eval --hot 1M", "--hot goes with policy groups"),
        ("replay sharegpt --requests 5", "--requests goes with the file of a trace"),
        ("replay sharegpt --stretch 2", "--stretch goes with the file of a trace"),
        ("replay FILE --conversations 5", "--conversations goes with a generated trace"),
        ("replay FILE --recompute-cut", "--recompute-cut goes with a generated trace"),
        ("plan --model mini --hardware here --flop-factor 2", "leave --flop-factor out"),
        ("figures --predictions --paper hilos", "leave --paper out"),
        ("doctor --model mini --drive a", "leave --drive and --report out"),
        ("drive serve FILE --socket a --hosts FILE", "--hosts and --buffers go with --nvme-tcp"),
        ("drive serve FILE --socket a --buffers 2M", "--hosts and --buffers go with --nvme-tcp"),
        ("drive conformance tcp://127.0.0.1:1 --engine hls", "leave --engine out"),
    ],
)
def test_an_option_without_an_effect_is_refused(arguments, sentence, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    file = tmp_path / "file"
    file.write_text(json.dumps({"prompt": "a"}) + "\n")
    given = [str(file) if part == "FILE" else part for part in arguments.split()]
    command = given[0]
    if command in ("generate", "chat", "batch", "serve", "run", "eval"):
        given += ["--model", "nowhere"]
    assert sentence in refused(given)


def test_the_options_of_a_workload_do_not_go_with_a_file(tmp_path):
    Drive(tmp_path / "drive.kv", "fast", 1, 1 << 26)
    arguments = ["drive", "trace", tmp_path / "drive.kv", "--layers", 3, "--out", tmp_path / "trace.json"]
    assert "leave the options of --workload out" in refused(arguments)


@pytest.mark.parametrize(
    "arguments",
    [
        "generate --model nowhere --prompt a --report PLACE",
        "generate --model nowhere --prompt a --drive PLACE",
        "run --model nowhere --report PLACE",
        "eval --model nowhere --report PLACE",
        "chat --model nowhere --drive PLACE",
        "serve --model nowhere --drive PLACE",
        "replay sharegpt --report PLACE",
        "figures --report PLACE",
        "ledger --write PLACE",
        "doctor --report PLACE",
        "batch FILE --model nowhere --out PLACE",
        "convert --model nowhere --weights-file PLACE",
        "drive conformance emulator --report PLACE",
        "drive trace --workload exact --out PLACE",
        "drive kv get FILE key PLACE",
        "sessions export FILE talk PLACE",
        "kernel run argtopk --in FILE --out PLACE",
    ],
)
@pytest.mark.parametrize("place", ["/proc/nope", "FILE/inside"])
def test_a_place_that_cannot_be_written_is_said_first(arguments, place, tmp_path, monkeypatch):
    """Root may write to /proc, says its mode; it cannot."""
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "file"
    file.write_text(json.dumps({"prompt": "a"}) + "\n")
    place = place.replace("FILE", str(file))
    given = arguments.replace("FILE", str(file)).replace("PLACE", place).split()
    assert f"cannot write to {place}" in refused(given)


def test_looking_whether_a_place_can_be_written_leaves_nothing(tmp_path):
    there = tmp_path / "there.json"
    there.write_text("kept")
    for place in (tmp_path, tmp_path / "a/b"):
        assert output_folder(place) == place
    for place in (there, tmp_path / "new.json"):
        assert output_file(place) == place
    assert [path.name for path in tmp_path.iterdir()] == ["there.json"]
    assert there.read_text() == "kept"
    for place in (tmp_path / "no/new.json", tmp_path):
        with pytest.raises(InputError, match="cannot write to"):
            output_file(place)


def test_the_default_of_an_option_is_no_wish():
    check_effects(["hot_bytes"], {"hot": "0"}, {"attention": "exact"})
    check_effects(["hot_bytes"], {"hot": "1M"}, {"attention": "groups"})
    with pytest.raises(InputError, match="`hot_bytes` goes with"):
        check_effects(["hot_bytes"], {"hot": "1M"}, {"attention": "exact"})
