"""Answers that go on without a reader, are read again from their beginning, are stopped, and do not stay for ever."""

import asyncio
import json

import pytest
from served_here import ServedHere
from transformers import AutoTokenizer

from kvdrive.generation.sampling import Sampling
from kvdrive.server.errors import ApiError
from kvdrive.server.generation import Generation
from kvdrive.server.jobs import End, Job, Prompt, Token
from kvdrive.server.kept_answers import KeptAnswers
from kvdrive.server.tenants import Tenants

ASK = [{"role": "user", "content": "The drive keeps"}]
LONG = [
    {"role": "user", "content": "late The drive keeps the keys and the values"}
]  # whose answer does not end by itself
KEYS = {"alice": "key-of-alice", "bob": "key-of-bob"}


@pytest.fixture(scope="module")
def server(checkpoint, tmp_path_factory):
    tenants = Tenants([(key, name) for name, key in KEYS.items()])
    server = ServedHere(checkpoint, tmp_path_factory.mktemp("drives"), context=4096, tenants=tenants)
    yield server
    server.close()


def headers(who="alice"):
    return {"Authorization": f"Bearer {KEYS[who]}"}


def begin(server, name, messages=ASK, who="alice", **fields):
    sent = {"model": "tiny", "messages": messages, "temperature": 0, "max_tokens": 12} | fields
    return server.client.post(f"/v1/answers/{name}", json=sent, headers=headers(who))


def events(response):
    for line in response.iter_lines():
        if line:
            yield json.loads(line.removeprefix("data: "))


def reading(server, name, who="alice"):
    return server.client.stream("GET", f"/v1/answers/{name}", headers=headers(who))


def read(server, name, who="alice"):
    """The text, and the end."""
    with reading(server, name, who) as response:
        assert response.headers["content-type"].startswith("text/event-stream")
        *pieces, end = list(events(response))
    return "".join(one["text"] for one in pieces), end


def remove(server, name, who="alice"):
    return server.client.delete(f"/v1/answers/{name}", headers=headers(who))


def error(response):
    return response.status_code, response.json()["error"]["code"]


def test_an_answer_is_the_chats_and_says_what_the_drive_had(server):
    assert begin(server, "first-answer", session="chat-one").json() == {"id": "first-answer", "object": "answer"}
    text, end = read(server, "first-answer")
    sent = {"model": "tiny", "messages": ASK, "temperature": 0, "max_tokens": 12}
    whole = server.client.post("/v1/chat/completions", json=sent, headers=headers()).json()
    assert text == whole["choices"][0]["message"]["content"] != ""
    assert end["end"] == whole["choices"][0]["finish_reason"]
    assert end["usage"]["completion_tokens"] == whole["usage"]["completion_tokens"]
    assert end["kvdrive"]["kv_uri"] == "kvdrive:chat-one"
    assert end["kvdrive"]["found_bytes"] == 0
    assert 0 <= end["seconds"]["first"] <= end["seconds"]["all"]

    again = [*ASK, {"role": "assistant", "content": text}, {"role": "user", "content": "And?"}]
    begin(server, "second-answer", again, session="chat-one")
    _, end = read(server, "second-answer")
    found = end["usage"]["prompt_tokens_details"]["cached_tokens"]
    assert found > 0
    assert end["kvdrive"]["found_bytes"] == found * server.model.bytes_per_token


def test_an_answer_is_read_again_as_often_as_wanted(server):
    begin(server, "read-again")
    first = read(server, "read-again")
    assert read(server, "read-again") == first
    assert remove(server, "read-again").json() == {"id": "read-again", "object": "answer", "deleted": True}
    with reading(server, "read-again") as response:
        response.read()
        assert error(response) == (404, "answer_not_found")


def test_an_answer_goes_on_when_its_reader_leaves_and_is_joined_from_its_beginning(server):
    begin(server, "left-alone", LONG, max_tokens=200)
    with reading(server, "left-alone") as response:
        begun = next(events(response))["text"]
    with reading(server, "left-alone") as one, reading(server, "left-alone") as other:
        texts = []
        for response in (one, other):
            *pieces, end = list(events(response))
            assert end["usage"]["completion_tokens"] == 200
            texts.append("".join(piece["text"] for piece in pieces))
    assert texts[0] == texts[1]
    assert texts[0].startswith(begun)
    assert server.metric("kvdrive_cancelled_requests_total") == 0


def test_an_answer_is_stopped_and_its_session_stays(server):
    begin(server, "stop-this", LONG, max_tokens=4000, session="chat-stop")
    with reading(server, "stop-this") as response:
        found = events(response)
        next(found)
        assert remove(server, "stop-this").status_code == 200
        *_, end = found
    assert end["end"] == "stopped"
    assert end["usage"]["completion_tokens"] < 4000
    names = [one["name"] for one in server.client.get("/v1/sessions", headers=headers()).json()["data"]]
    assert "chat-stop" in names
    assert error(remove(server, "stop-this")) == (404, "answer_not_found")


def test_a_name_is_one_answers_and_a_refused_request_takes_none(server):
    assert error(begin(server, "taken-name", temperature=9)) == (400, "invalid_value")
    assert begin(server, "taken-name").status_code == 200
    assert error(begin(server, "taken-name")) == (409, "answer_exists")
    for name in ("short", "x" * 65, "with.a.point"):
        assert error(begin(server, name)) == (400, "invalid_value")
    assert error(begin(server, "with-tools", tools=[])) == (400, "unknown_parameter")


def test_tenants_do_not_see_each_others_answers(server):
    begin(server, "mine-alone")
    assert error(remove(server, "mine-alone", "bob")) == (404, "answer_not_found")
    assert begin(server, "mine-alone", [{"role": "user", "content": "x"}], "bob").status_code == 200
    assert (
        read(server, "mine-alone")[1]["usage"]["prompt_tokens"]
        > read(server, "mine-alone", "bob")[1]["usage"]["prompt_tokens"]
    )
    assert server.client.get("/v1/answers/mine-alone").status_code == 401


def test_a_failure_is_the_end_of_an_answer(server):
    begin(server, "in-use-one", LONG, max_tokens=4000, session="chat-busy")
    with reading(server, "in-use-one") as response:
        next(events(response))
        begin(server, "in-use-two", LONG, session="chat-busy")
        assert read(server, "in-use-two")[1]["error"]["code"] == "session_unavailable"
    remove(server, "in-use-one")


# ---- bounds ----


@pytest.fixture(scope="module")
def tokenizer(checkpoint):
    return AutoTokenizer.from_pretrained(checkpoint)


def generation(tokenizer, text=""):
    """A generation that is fed by hand: its job, its events."""
    events = asyncio.Queue()
    job = Job([1], 9, Sampling(), lambda event: None)
    events.put_nowait(Prompt(0))
    for number in tokenizer.encode(text, add_special_tokens=False):
        events.put_nowait(Token(number))
    return Generation(job, events, tokenizer), job, events


async def ended(answers, tokenizer, name, text):
    made, _, events = generation(tokenizer, text)
    answers.start("", name, made)
    events.put_nowait(End())
    await answers.get("", name).ended
    await asyncio.sleep(0)  # what follows an end


def names(answers):
    return [name for name in "abcdef" if name in answers._kept[""]]


def test_the_oldest_answers_make_room_by_number_and_by_size(tokenizer):
    async def work():
        answers = KeptAnswers(1, most=3, characters=40)
        running, _, events = generation(tokenizer, "x")
        answers.start("", "f", running)
        for name in "abcd":
            await ended(answers, tokenizer, name, "drive")
        assert names(answers) == ["b", "c", "d", "f"]  # a running one is none of them
        await ended(answers, tokenizer, "e", "the drive keeps the keys and so on")
        assert names(answers) == ["d", "e", "f"]
        events.put_nowait(End())
        await answers.get("", "f").ended

    asyncio.run(work())


def test_an_answer_that_nobody_reads_is_stopped(tokenizer):
    async def work():
        answers = KeptAnswers(1, patience=0.01)
        made, job, events = generation(tokenizer, "drive")
        answers.start("", "a", made)
        while not job.cancelled.is_set():
            await asyncio.sleep(0)
        events.put_nowait(End())
        *_, last = [event async for event in answers.get("", "a").events()]
        assert json.loads(last.removeprefix("data: "))["end"] == "unread"

    asyncio.run(work())


def test_an_answer_that_somebody_reads_goes_on(tokenizer):
    """Its time without readers begins anew when the last one leaves."""

    async def work():
        answers = KeptAnswers(1, patience=0.01)
        made, job, events = generation(tokenizer, "drive")
        answers.start("", "a", made)
        reader = answers.get("", "a").events()
        await anext(reader)
        waiting = asyncio.ensure_future(anext(reader))
        await asyncio.wait([waiting], timeout=0.05)
        assert not job.cancelled.is_set()
        waiting.cancel()
        await asyncio.wait([waiting])
        while not job.cancelled.is_set():
            await asyncio.sleep(0)
        events.put_nowait(End())

    asyncio.run(work())


def test_an_answer_is_forgotten_after_a_while(tokenizer):
    async def work():
        answers = KeptAnswers(1, seconds=0)
        await ended(answers, tokenizer, "a", "drive")
        while names(answers):
            await asyncio.sleep(0)
        with pytest.raises(ApiError, match="ask again"):
            answers.get("", "a")

    asyncio.run(work())
