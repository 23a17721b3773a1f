"""Conversations of `kvdrive serve` outlive the server: found after SIGKILL and SIGTERM, named, listed, removed."""

import shutil
from functools import partial

import pytest
import torch
from served_here import ServedHere
from server_process import Server
from session_scenarios import (
    LONG,
    ask,
    goes_on_with_tokens_of_a_name,
    kill,
    models_refuse_each_other,
    saves_what_runs_on_sigterm,
    sessions_are_removed_and_bounded,
    slots_are_saved_and_restored,
    survives_a_kill,
)
from transformers import AutoModelForCausalLM, AutoTokenizer
from typer.testing import CliRunner

from kvdrive.cli.main import app
from kvdrive.prefix.options import Bounds, SessionOptions


@pytest.fixture
def serve(checkpoint, tmp_path):
    servers = []

    def start(*options, folder="drives", model=checkpoint, measured=False):
        servers.append(Server(model, tmp_path, "--drive", tmp_path / folder, *options, measured=measured))
        return servers[-1]

    yield start
    for server in servers:
        server.kill()


@pytest.fixture
def serve_here(checkpoint, tmp_path):
    """A server in this process, for what needs none of its own."""
    servers = []

    def start(model=checkpoint, **options):
        for earlier in servers:
            earlier.close()
        servers[:] = [ServedHere(model, tmp_path / "drives", context=4096, slots=4, **options)]
        return servers[0]

    yield start
    for server in servers:
        server.close()


@pytest.mark.slow
def test_sequences_in_memory_survive_kill_9_as_well(serve):
    options = ("--active", "memory", "--memory", "64M", "--concurrency", "1")
    server = serve(*options)
    first, cached, answer = ask(server, LONG, session="talk")
    assert (cached, answer["kvdrive"]["resume"]) == (0, "none")
    kill(server)

    server = serve(*options, measured=True)
    _, cached, answer = ask(server, LONG + first, session="talk")
    way = answer["kvdrive"]["resume"]
    assert way in ("load", "attend", "recompute")  # as the rates of this machine say
    assert (cached > 0) == (way != "recompute")
    assert server.metric(f"kvdrive_sessions_{way}s_total") == 1
    assert server.metric("kvdrive_sessions_hits_total") == 1
    assert (server.metric("kvdrive_sessions_loaded_bytes_total") > 0) == (way == "load")
    assert server.close() in (0, -15, 143)


def test_a_conversation_survives_kill_9(serve, checkpoint):
    survives_a_kill(serve, partial(stock, checkpoint))


def test_a_conversation_with_drafted_tokens_survives_kill_9(serve, checkpoint):
    survives_a_kill(partial(serve, "--lookup", 2), partial(stock, checkpoint))


def test_a_conversation_of_a_model_with_windows_survives_the_server(serve_here, hybrid_checkpoint):
    server = serve_here(hybrid_checkpoint)
    first, cached, answer = ask(server, LONG, session="talk")
    assert cached == 0
    prompt_tokens = answer["usage"]["prompt_tokens"]
    server = serve_here(hybrid_checkpoint)
    second, cached, answer = ask(server, LONG + first, session="talk")
    assert cached == prompt_tokens - 4  # the checkpoint before the answer, which the tokenizer spells otherwise
    assert answer["kvdrive"]["resume"] == "attend"
    assert (first, second) == (stock(hybrid_checkpoint, LONG), stock(hybrid_checkpoint, LONG + first))


@pytest.mark.slow
def test_sessions_of_layer_inputs_survive_kill_9(serve, checkpoint):
    """Forced: with grouped queries X is larger than K and V. Prompts are computed in parts, steps are shared."""
    options = ("--xcache", "0.5", "--prefill-chunk", "16")
    server = serve(*options)
    first, _, answer = ask(server, LONG, session="talk")  # the first of two sequences is stored as X
    prompt_tokens = answer["usage"]["prompt_tokens"]
    assert server.metric("kvdrive_prefill_chunks_total") == -(-prompt_tokens // 16)
    kill(server)

    server = serve(*options)
    second, cached, answer = ask(server, LONG + first, session="talk")
    assert cached > prompt_tokens - 4
    assert answer["kvdrive"]["resume"] == "attend"
    assert (first, second) == (stock(checkpoint, LONG), stock(checkpoint, LONG + first))
    server.close()
    server = serve()
    assert ask(server, LONG + first)[1] == 0  # without X-cache nothing can be rebuilt


def test_a_named_session_continues_with_the_tokens_that_it_holds(serve_here, checkpoint):
    tokenizer = AutoTokenizer.from_pretrained(checkpoint)
    letters = [token for letter in LONG for token in tokenizer(letter)["input_ids"]]
    goes_on_with_tokens_of_a_name(serve_here, letters)


def stock(checkpoint, prompt, new_tokens=12):
    """The text that transformers alone generates."""
    model, tokenizer = AutoModelForCausalLM.from_pretrained(checkpoint), AutoTokenizer.from_pretrained(checkpoint)
    ids = torch.tensor([tokenizer(prompt)["input_ids"]])
    mask = torch.ones_like(ids)
    out = model.generate(ids, attention_mask=mask, max_new_tokens=new_tokens, do_sample=False, pad_token_id=0)
    return tokenizer.decode(out[0, ids.shape[1] :], skip_special_tokens=True)


def test_a_running_answer_is_saved_on_sigterm(serve):
    saves_what_runs_on_sigterm(serve)


def test_slots_save_and_restore(serve_here):
    slots_are_saved_and_restored(serve_here)


def test_sessions_are_removed_and_bounded(serve_here):
    bounds = SessionOptions(bounds=Bounds(sessions=2), eviction="fifo")
    sessions_are_removed_and_bounded(serve_here(sessions=bounds))


def test_models_refuse_each_others_k_and_v(serve_here, checkpoint, tmp_path):
    other = shutil.copytree(checkpoint, tmp_path / "other")
    model = AutoModelForCausalLM.from_pretrained(checkpoint)
    with torch.no_grad():
        model.model.layers[1].self_attn.k_proj.weight.mul_(-1.5)
    model.save_pretrained(other)
    models_refuse_each_other(
        serve_here, partial(serve_here, model=other), partial(stock, checkpoint), partial(stock, other)
    )


@pytest.mark.slow
def test_a_server_may_store_nothing(serve):
    server = serve("--idle", 0)
    ask(server, LONG)
    assert ask(server, LONG)[1] == 0
    assert server.client.get("/v1/sessions").status_code == 501


@pytest.mark.slow
def test_the_governor_and_other_tenants(serve):
    server = serve("--daily-writes", "1")
    assert ask(server, LONG)[2]["kvdrive"]["session"] is not None
    assert ask(server, "something else " + LONG)[2]["kvdrive"]["session"] is None
    assert server.metric("kvdrive_sessions_admits_all") == 0
    server.close()
    server = serve("--tenant", "other")
    assert ask(server, LONG)[1] == 0
    assert server.client.get("/v1/sessions").json()["data"][0]["tokens"] > 0


def test_a_bound_that_is_no_size_is_refused(checkpoint):
    done = CliRunner().invoke(app, ["serve", "--model", str(checkpoint), "--port", "0", "--daily-writes", "much"])
    assert done.exit_code != 0
