"""Conversations of `kvdrive serve` outlive the server: found after SIGKILL and SIGTERM, named, listed, removed."""

import json
import shutil
from dataclasses import asdict

import pytest
import torch
from served_here import ServedHere
from server_process import PROMPT, Server
from transformers import AutoModelForCausalLM, AutoTokenizer
from typer.testing import CliRunner

from kvdrive.cli.main import app
from kvdrive.prefix.options import Bounds, SessionOptions
from kvdrive.prefix.rates import Rates

LONG = " ".join([PROMPT] * 3)
ATTENDING_PAYS = Rates(1, 0, 1, 0, 1, 1, 0, 0, 0)  # measured ones depend on what else this machine does


@pytest.fixture
def serve(checkpoint, tmp_path):
    servers = []

    def start(*options, folder="drives", model=checkpoint, rates=ATTENDING_PAYS):
        for measured in (tmp_path / folder).glob("*.costs") if rates else ():  # a first server finds no history
            measured.write_text(json.dumps(dict.fromkeys(json.loads(measured.read_text()), asdict(rates))))
        servers.append(Server(model, tmp_path, "--drive", tmp_path / folder, *options))
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
        servers[0].scheduler.with_sessions(lambda store: setattr(store.costs, "rates", ATTENDING_PAYS)).result(30)
        return servers[0]

    yield start
    for server in servers:
        server.close()


def kill(server):
    server.kill()
    server.process.stdout.close()
    server.client.close()


def ask(server, prompt, tokens=12, **fields):
    answer = server.complete(prompt=prompt, max_tokens=tokens, **fields).json()
    usage = answer["usage"]
    return answer["choices"][0]["text"], usage["prompt_tokens_details"]["cached_tokens"], answer


@pytest.mark.slow
def test_sequences_in_memory_survive_kill_9_as_well(serve):
    options = ("--active", "memory", "--memory", "64M", "--concurrency", "1")
    server = serve(*options)
    first, cached, answer = ask(server, LONG, session="talk")
    assert (cached, answer["kvdrive"]["resume"]) == (0, "none")
    kill(server)

    server = serve(*options, rates=None)
    _, cached, answer = ask(server, LONG + first, session="talk")
    way = answer["kvdrive"]["resume"]
    assert way in ("load", "attend", "recompute")  # as the rates of this machine say
    assert (cached > 0) == (way != "recompute")
    assert server.metric(f"kvdrive_sessions_{way}s_total") == 1
    assert server.metric("kvdrive_sessions_hits_total") == 1
    assert (server.metric("kvdrive_sessions_loaded_bytes_total") > 0) == (way == "load")
    assert server.close() in (0, -15, 143)


def test_a_conversation_survives_kill_9(serve, checkpoint):
    server = serve()
    first, cached, answer = ask(server, LONG, session="talk")
    assert (cached, answer["kvdrive"]["resume"]) == (0, "none")
    assert answer["kvdrive"]["kv_uri"] == "kvdrive:talk"
    prompt_tokens = answer["usage"]["prompt_tokens"]
    kill(server)

    server = serve()
    listed = server.client.get("/v1/sessions").json()["data"]
    assert [(one["name"], one["tokens"], one["open"]) for one in listed] == [("talk", prompt_tokens + 11, False)]
    second, cached, answer = ask(server, LONG + first, kv_uri="kvdrive:talk")
    assert prompt_tokens - 4 < cached < answer["usage"]["prompt_tokens"]
    assert answer["kvdrive"]["resume"] == "attend"
    _, shared, _ = ask(server, LONG + " Another end.")  # another conversation with the same beginning
    assert shared > prompt_tokens - 8
    assert server.metric("kvdrive_sessions_hits_total") == 2
    assert server.metric("kvdrive_sessions_stored") == 2
    assert server.metric("kvdrive_sessions_bytes_written_total") > 0
    assert server.metric("kvdrive_resumes_total") == 2
    assert (first, second) == (stock(checkpoint, LONG), stock(checkpoint, LONG + first))


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
    """The session's tokens are not those that the tokenizer makes of its text, as after sampling."""
    tokenizer = AutoTokenizer.from_pretrained(checkpoint)
    letters = [token for letter in LONG for token in tokenizer(letter)["input_ids"]]
    server = serve_here()
    server.complete(prompt=letters, max_tokens=1, session="talk")
    _, cached, _ = ask(server, LONG + " And more.")
    assert cached < 20  # without the name tokens are compared
    _, cached, answer = ask(server, LONG + " And more.", session="talk")
    assert cached == len(letters)
    assert answer["usage"]["prompt_tokens"] > len(letters)
    assert answer["kvdrive"]["resume"] == "attend"
    chat = {"model": "tiny", "messages": [{"role": "user", "content": LONG}], "max_tokens": 2, "session": "new"}
    assert server.client.post("/v1/chat/completions", json=chat).status_code == 200


def stock(checkpoint, prompt, new_tokens=12):
    """The text that transformers alone generates."""
    model, tokenizer = AutoModelForCausalLM.from_pretrained(checkpoint), AutoTokenizer.from_pretrained(checkpoint)
    ids = torch.tensor([tokenizer(prompt)["input_ids"]])
    mask = torch.ones_like(ids)
    out = model.generate(ids, attention_mask=mask, max_new_tokens=new_tokens, do_sample=False, pad_token_id=0)
    return tokenizer.decode(out[0, ids.shape[1] :], skip_special_tokens=True)


def test_a_running_answer_is_saved_on_sigterm(serve):
    server = serve()
    request = {"model": "tiny", "prompt": LONG, "max_tokens": 3000, "stream": True, "temperature": 0}
    with server.client.stream("POST", "/v1/completions", json=request) as response:
        lines = response.iter_lines()
        for _ in range(80):
            next(lines)
    server.close()
    server = serve()
    (kept,) = server.client.get("/v1/sessions").json()["data"]
    _, cached, answer = ask(server, LONG)
    assert cached == answer["usage"]["prompt_tokens"] - 1
    assert kept["tokens"] >= cached + 30


def test_slots_save_and_restore(serve_here):
    server = serve_here()
    text, _, answer = ask(server, LONG)
    save = server.client.post("/slots/0?action=save", json={"filename": "saved"}).json()
    assert save["n_saved"] == answer["usage"]["prompt_tokens"] + 11
    server = serve_here()
    restored = server.client.post("/slots/1?action=restore", json={"filename": "saved"}).json()
    assert restored["n_restored"] == save["n_saved"]
    assert ask(server, LONG + text)[1] > answer["usage"]["prompt_tokens"] - 4
    for query, body, status in (
        ("action=restore", {"filename": "nothing"}, 404),
        ("action=save", {"filename": "../x"}, 400),
        ("action=copy", {"filename": "x"}, 400),
        ("action=save", {}, 400),
    ):
        assert server.client.post(f"/slots/3?{query}", json=body).status_code == status
    empty = server.client.post("/slots/3?action=save", json={"filename": "x"})
    assert empty.json()["error"]["code"] == "session_not_found"


def test_sessions_are_removed_and_bounded(serve_here):
    server = serve_here(sessions=SessionOptions(bounds=Bounds(sessions=2), eviction="fifo"))
    for word in ("one", "two", "three"):
        ask(server, f"{word} {LONG}")
    listed = server.client.get("/v1/sessions").json()["data"]
    assert len(listed) == 2
    assert server.metric("kvdrive_sessions_evictions_total") == 1
    assert server.client.delete(f"/v1/sessions/{listed[0]['id']}").json()["deleted"]
    assert server.client.delete("/v1/sessions/nothing").status_code == 404
    assert server.metric("kvdrive_sessions_stored") == 1
    assert server.complete(prompt="x", session="a/b").status_code == 400
    assert server.complete(prompt="x", kv_uri="file:a").status_code == 400


def test_models_refuse_each_others_k_and_v(serve_here, checkpoint, tmp_path):
    """Other weights of the same name and shape, on the same drives: nothing is found, and names are not taken over."""
    server = serve_here()
    ask(server, LONG, session="talk")
    other = shutil.copytree(checkpoint, tmp_path / "other")
    model = AutoModelForCausalLM.from_pretrained(checkpoint)
    with torch.no_grad():
        model.model.layers[1].self_attn.k_proj.weight.mul_(-1.5)
    model.save_pretrained(other)
    server = serve_here(model=other)
    refused = server.complete(prompt=LONG, max_tokens=2, session="talk")
    assert refused.status_code == 409
    assert refused.json()["error"]["code"] == "session_unavailable"
    assert "another model" in refused.json()["error"]["message"]
    text, cached, answer = ask(server, LONG)
    assert (cached, answer["kvdrive"]["resume"]) == (0, "none")
    assert text == stock(other, LONG) != stock(checkpoint, LONG)
    assert server.metric("kvdrive_sessions_hits_total") == 0


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
