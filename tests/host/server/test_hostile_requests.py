"""No input ends in a 500 or a traceback: known ones, mutated bytes, and requests made from the schema."""

import json
import logging
import random
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings
from served_here import SLOTS, STATUS, ServedHere, refusals

from kvdrive.server.connections import Patience

SEED = 20261126
# so that answers are short and few, and none is late, which is a 504
BOUNDED = {
    "max_tokens": 2,
    "max_completion_tokens": 2,
    "max_output_tokens": 2,
    "n": 2,
    "best_of": 2,
    "deadline_seconds": 60,
}


@pytest.fixture(scope="module")
def server(checkpoint, tmp_path_factory):
    server = ServedHere(checkpoint, tmp_path_factory.mktemp("drives"), patience=Patience(64, headers=0.3, body=0.3))
    yield server
    server.close()


@pytest.fixture(autouse=True)
def no_tracebacks(caplog):
    with caplog.at_level(logging.WARNING):
        yield
    assert not [record for record in caplog.get_records("call") if record.exc_info]


def ask(server, method, path, **options):
    response = server.client.request(method, path, **options)
    error = response.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    return response.status_code, error["code"]


def test_numbers_of_sessions_beyond_64_bits_do_not_exist(server):
    for number in (2**63, "9" * 5000, "\u0663", "-1", "1.0", "0x1"):
        assert ask(server, "DELETE", f"/v1/sessions/{number}") == (404, "session_not_found")


@pytest.mark.parametrize("number", [SLOTS, 10**20, "9" * 5000, "-1", "x", "\u0660"])
@pytest.mark.parametrize("action", ["save", "restore", "erase"])
def test_slots_that_there_are_not_are_refused(server, number, action):
    answer = ask(server, "POST", f"/slots/{number}?action={action}", json={"filename": "a"})
    assert answer == (404, "slot_not_found")


def test_a_slot_takes_its_own_fields_only(server):
    path = "/slots/0?action=save"
    assert ask(server, "POST", path, content=b"[" * 2000 + b"]" * 2000) == (400, "invalid_json")
    assert ask(server, "POST", path, content=b" " * 5000) == (413, "body_too_large")
    assert ask(server, "POST", path, json={"filename": "a", "name": "b"}) == (400, "unknown_parameter")
    assert ask(server, "POST", "/slots/0?action=copy", json={"filename": "a"}) == (400, "invalid_value")


def test_a_query_parameter_that_a_path_does_not_know_is_refused(server):
    assert ask(server, "GET", "/v1/sessions?tenant=other") == (400, "unknown_parameter")
    assert ask(server, "POST", "/slots/0?action=erase&force=1") == (400, "unknown_parameter")


def test_the_limit_that_does_not_fit_is_blamed(server):
    """The answer of a request is bounded by the field that the client sent."""
    chat = {"model": "tiny", "messages": [{"role": "user", "content": "x"}]}
    for path, body, param in (
        ("completions", {"prompt": "x", "max_tokens": 10**30}, "max_tokens"),
        ("completions", {"prompt": "x", "max_tokens": 64}, "max_tokens"),
        ("completions", {"prompt": [1] * 50}, "max_tokens"),
        ("completions", {"prompt": [1] * 64, "max_tokens": 1}, "prompt"),
        ("completions", {"prompt": [[1], [1] * 64], "max_tokens": 1}, "prompt"),
        ("chat/completions", chat | {"max_tokens": 64}, "max_tokens"),
        ("chat/completions", chat | {"max_completion_tokens": 64}, "max_completion_tokens"),
        ("chat/completions", chat | {"messages": [{"role": "user", "content": "x y z " * 40}]}, "messages"),
    ):
        response = server.client.post(f"/v1/{path}", json={"model": "tiny"} | body)
        error = response.json()["error"]
        assert (response.status_code, error["param"], error["code"]) == (400, param, "context_length_exceeded"), error
    said = server.complete(prompt=[1] * 10, max_tokens=99).json()["error"]["message"]
    assert said == "max_tokens is too large: the prompt has 10 tokens, and the context holds 64, so send 54 at most"


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Host": "localhost"}, 200),
        ({"Host": "LOCALHOST:80"}, 200),
        ({"Host": "127.8.0.1:80"}, 200),
        ({"Host": "[::1]:80"}, 200),
        ({"Origin": "http://[::1]:80"}, 200),
        ({"Host": "example.org"}, 403),
        ({"Host": "localhost.example.org"}, 403),
        ({"Host": "localhost:80@example.org"}, 400),
        ({"Host": "example.org/localhost"}, 400),
        ({"Host": "localhost:"}, 400),
        ({"Host": "localhost:port"}, 400),
        ({"Host": "localhost\\example.org"}, 400),
        ({"Host": "[::1"}, 400),
        ({"Host": ""}, 400),
        ({"Origin": "http://[::1"}, 403),
        ({"Origin": "http://localhost:port"}, 403),
        ({"Origin": "http://localhost@example.org"}, 403),
        ({"Origin": "http://example.org#localhost"}, 403),
        ({"Origin": "localhost"}, 403),
        ({"Origin": "null"}, 403),
        ({"Origin": "//"}, 403),
    ],
)
def test_only_what_is_surely_this_machine_is_answered(server, headers, status):
    """/health as well: it names the model."""
    for path in ("/v1/models", "/health", "/"):
        sent = {"Host": "localhost", "Connection": "close"} | headers
        lines = "".join(f"{name}: {value}\r\n" for name, value in sent.items())
        answer = server.exchange(f"GET {path} HTTP/1.1\r\n{lines}\r\n".encode())
        assert int(STATUS.match(answer)[1]) == status
        refusals(answer)


def test_a_request_without_host_is_refused(server):
    assert STATUS.match(server.exchange(b"GET /health HTTP/1.0\r\n\r\n"))[1] == b"400"


def test_a_path_with_a_slash_too_many_is_not_redirected(server):
    """A redirection would repeat a Host that nobody has checked."""
    answer = server.exchange(b"POST /v1/completions/ HTTP/1.1\r\nHost: example.org\r\nContent-Length: 0\r\n\r\n")
    assert STATUS.match(answer)[1] == b"404"
    assert b"example.org" not in answer


def test_a_client_that_leaves_while_it_sends_is_no_fault(server):
    head = b"POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\n{"
    for path in (b"/v1/completions", b"/v1/chat/completions", b"/slots/0?action=save"):
        with server.connect() as connection:
            connection.sendall(head % path)
    gone = 'kvdrive_requests_total{path="/slots/{slot}",status="499"}'
    while gone not in server.client.get("/metrics").text:
        pass  # the server has noticed all of them
    assert server.client.get("/health").json()["running"] == 0


def test_a_fault_of_the_server_has_the_same_format_and_a_traceback_in_the_log(server, monkeypatch, caplog):
    def broken(work):
        raise RuntimeError("broken")

    monkeypatch.setattr(server.scheduler, "with_sessions", broken)
    assert ask(server, "GET", "/v1/sessions") == (500, "internal_error")
    while not [record for record in caplog.records if record.exc_info]:
        time.sleep(0.01)  # the answer is sent before the error is logged
    caplog.clear()


def post(path, body):
    sent = json.dumps(body).encode()
    head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: {len(sent)}\r\n\r\n"
    return head.encode() + sent


GOOD = [
    post("/v1/completions", {"model": "tiny", "prompt": "x", "max_tokens": 2, "stop": ["a"], "session": "one"}),
    post("/v1/completions", {"model": "tiny", "prompt": [1, 2], "max_tokens": 2, "stream": True, "temperature": 0.5}),
    post("/v1/chat/completions", {"model": "tiny", "messages": [{"role": "user", "content": "x"}], "max_tokens": 2}),
    post("/slots/0?action=save", {"filename": "two"}),
    post("/v1/answers/an-answer", {"model": "tiny", "messages": [{"role": "user", "content": "x"}], "max_tokens": 2}),
    post("/render", {"texts": ["# *x*", "<script>"]}),
    post("/slots/1?action=erase", {}),
    b"DELETE /v1/sessions/12 HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n",
    b"GET /v1/sessions HTTP/1.1\r\nHost: localhost\r\nOrigin: http://localhost:1\r\nConnection: close\r\n\r\n",
    b"GET /v1/models/tiny HTTP/1.1\r\nHost: [::1]:80\r\nConnection: close\r\n\r\n",
    b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
]
PIECES = [
    *(
        b"\r\n",
        b"\r\n\r\n",
        b"\0",
        b"\xff",
        b"9" * 40,
        b"9" * 5000,
        b"-1",
        b"1e999",
        b"[" * 300,
        b'"',
        b"{",
        b"}",
        b":",
    ),
    *(b" ", b"%", b"%00", b"%ff", b"?", b"#", b"//", b"null", b"\\ud800", b"Host: a\r\n", b"Content-Length: 0\r\n"),
    b"Transfer-Encoding: chunked\r\n",
    b"Expect: 100-continue\r\n",
    b"Upgrade: websocket\r\nConnection: upgrade\r\n",
]


def mutated(chance):
    """A request with some of its bytes changed, removed, repeated or replaced by others that parsers dislike."""
    sent = bytearray(chance.choice(GOOD))
    for _ in range(chance.randint(1, 6)):
        at = chance.randrange(len(sent) + 1)
        end = min(len(sent), at + chance.choice((0, 1, 1, 4, 30)))
        kind = chance.randrange(5)
        if kind == 0:
            sent[at:end] = bytes(chance.randrange(256) for _ in range(end - at))
        elif kind == 1:
            del sent[at:end]
        elif kind == 2:
            sent[at:at] = sent[at:end] * chance.randint(1, 3)
        else:
            sent[at : at if kind == 3 else end] = chance.choice(PIECES)
    return bytes(sent)


def fuzz(server, count, number):
    chance = random.Random(number)
    sent = [mutated(chance) for _ in range(count)]
    with ThreadPoolExecutor(24) as clients:
        answers = list(clients.map(server.exchange, sent))
    statuses = set()
    for request, answer in zip(sent, answers, strict=True):
        found = {int(status) for status in STATUS.findall(answer)}
        assert not {status for status in found if status >= 500}, (request, answer)
        refusals(answer)
        statuses |= found
    assert server.client.get("/health").status_code == 200
    return statuses


def test_mutated_bytes_never_end_in_a_fault(server):
    assert fuzz(server, 400, SEED) >= {200, 400, 404, 408}


@pytest.mark.slow
def test_ten_thousand_mutated_requests_never_end_in_a_fault(server):
    for number in range(10):
        fuzz(server, 1000, SEED + 1 + number)


def conform(server, examples, number):
    import schemathesis  # here, so that workers collect without it
    from schemathesis.checks import not_a_server_error
    from schemathesis.specs.openapi import checks as openapi

    checks = [
        not_a_server_error,
        openapi.status_code_conformance,
        openapi.content_type_conformance,
        openapi.response_schema_conformance,
    ]
    schema = schemathesis.openapi.from_dict(server.client.get("/openapi.json").json())
    schema.config.update(base_url=f"http://127.0.0.1:{server.port}")
    for found in schema.get_all_operations():
        operation = found.ok()
        for mode in schemathesis.GenerationMode:
            if mode.is_negative and not operation.body:
                continue  # nothing can be wrong

            @seed(number)
            @settings(
                max_examples=examples,
                deadline=None,
                database=None,
                phases=[Phase.generate],
                suppress_health_check=list(HealthCheck),
            )
            @given(case=operation.as_strategy(generation_mode=mode))
            def conforms(case):
                if isinstance(case.body, dict):
                    case.body |= {name: BOUNDED[name] for name in case.body.keys() & BOUNDED}
                response = case.call()
                case.validate_response(response, checks=checks)

            conforms()


def test_requests_made_from_the_schema_are_answered_or_refused(server):
    conform(server, 4, SEED)


@pytest.mark.slow
def test_thousands_of_requests_made_from_the_schema_are_answered_or_refused(server):
    conform(server, 150, SEED + 1)
