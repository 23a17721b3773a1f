"""What conversations of a server go through, whichever runtime computes them.

`start` is a function that starts a server on one drive, after the server before has ended; its options are those of
`kvdrive serve`. `said(prompt)` is the answer of twelve tokens that the model gives without a store.
"""

from __future__ import annotations

from server_process import PROMPT

LONG = " ".join([PROMPT] * 3)


def ask(server, prompt, tokens=12, **fields):
    """The text of an answer, how many tokens of its prompt were on the drive, and all of it."""
    answer = server.complete(prompt=prompt, max_tokens=tokens, **fields).json()
    usage = answer["usage"]
    return answer["choices"][0]["text"], usage["prompt_tokens_details"]["cached_tokens"], answer


def kill(server):
    server.kill()
    server.process.stdout.close()
    server.client.close()


def survives_a_kill(start, said):
    """A conversation goes on in the next server; another one with the same beginning finds that."""
    server = start()
    first, cached, answer = ask(server, LONG, session="talk")
    assert (cached, answer["kvdrive"]["resume"]) == (0, "none")
    assert answer["kvdrive"]["kv_uri"] == "kvdrive:talk"
    prompt_tokens = answer["usage"]["prompt_tokens"]
    kill(server)

    server = start()
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
    assert (first, second) == (said(LONG), said(LONG + first))


def goes_on_with_tokens_of_a_name(start, letters):
    """The session's tokens, `letters`, are not those that the tokenizer makes of its text, as after sampling."""
    server = start()
    server.complete(prompt=letters, max_tokens=1, session="talk")
    _, cached, _ = ask(server, LONG + " And more.")
    assert cached < 20  # without the name tokens are compared
    _, cached, answer = ask(server, LONG + " And more.", session="talk")
    assert cached == len(letters)
    assert answer["usage"]["prompt_tokens"] > len(letters)
    assert answer["kvdrive"]["resume"] == "attend"
    chat = {"model": "tiny", "messages": [{"role": "user", "content": LONG}], "max_tokens": 2, "session": "new"}
    assert server.client.post("/v1/chat/completions", json=chat).status_code == 200


def saves_what_runs_on_sigterm(start, new_tokens=3000):
    server = start()
    request = {"model": "tiny", "prompt": LONG, "max_tokens": new_tokens, "stream": True, "temperature": 0}
    with server.client.stream("POST", "/v1/completions", json=request) as response:
        lines = response.iter_lines()
        for _ in range(80):
            next(lines)
    server.close()
    server = start()
    (kept,) = server.client.get("/v1/sessions").json()["data"]
    _, cached, answer = ask(server, LONG)
    assert cached == answer["usage"]["prompt_tokens"] - 1
    assert kept["tokens"] >= cached + 30


def slots_are_saved_and_restored(start):
    server = start()
    text, _, answer = ask(server, LONG)
    save = server.client.post("/slots/0?action=save", json={"filename": "saved"}).json()
    assert save["n_saved"] == answer["usage"]["prompt_tokens"] + 11
    server = start()
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


def sessions_are_removed_and_bounded(server):
    """`server` keeps two sessions, the first ones leave."""
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


def models_refuse_each_other(start, other, said, said_by_other):
    """`other` starts a server of other weights of the same shape: nothing is found, and names are not taken over."""
    ask(start(), LONG, session="talk")
    server = other()
    refused = server.complete(prompt=LONG, max_tokens=2, session="talk")
    assert refused.status_code == 409
    assert refused.json()["error"]["code"] == "session_unavailable"
    assert "another model" in refused.json()["error"]["message"]
    text, cached, answer = ask(server, LONG)
    assert (cached, answer["kvdrive"]["resume"]) == (0, "none")
    assert text == said_by_other(LONG) != said(LONG)
    assert server.metric("kvdrive_sessions_hits_total") == 0
