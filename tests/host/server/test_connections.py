"""Deadlines of connections, and places that idle ones do not keep. The application here only counts a body's bytes."""

import asyncio
import json
import threading
from contextlib import suppress

import pytest
from served_here import STATUS, Listening, received, refusals

from kvdrive.server.connections import Patience

REQUEST = b"POST / HTTP/1.1\r\nHost: here\r\nContent-Length: 3\r\n\r\nabc"
LARGE = 32 << 20  # more than the buffers of a connection hold


class App:
    """Answers with the number of bytes that it got; `held` requests to /wait wait for `go`; /large is LARGE."""

    def __init__(self):
        self.gone, self.done = threading.Event(), threading.Event()
        self.held = threading.Semaphore(0)
        self.go = threading.Event()

    async def __call__(self, scope, receive, send):
        if scope["type"] == "lifespan":
            while (message := await receive())["type"] != "lifespan.shutdown":
                await send({"type": message["type"] + ".complete"})
            return await send({"type": "lifespan.shutdown.complete"})
        count, more = 0, True
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                return self.gone.set()
            count, more = count + len(message["body"]), message["more_body"]
        if scope["path"] == "/wait":
            self.held.release()
            await asyncio.to_thread(self.go.wait)
        body = bytes(LARGE) if scope["path"] == "/large" else str(count).encode()
        headers = [(b"content-length", str(len(body)).encode())]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        for at in range(0, len(body), 1 << 20):
            await send({"type": "http.response.body", "body": body[at : at + (1 << 20)], "more_body": True})
        await send({"type": "http.response.body", "body": b""})
        return self.done.set()


@pytest.fixture
def listen():
    opened = []

    def start(**patience):
        app = App()
        opened.append((app, Listening(app, Patience(**{"places": 4, "headers": 30, "body": 30} | patience))))
        return opened[-1]

    yield start
    for app, listening in opened:
        app.go.set()
        listening.close()


def ask(listening):
    return listening.exchange(REQUEST.replace(b"Host", b"Connection: close\r\nHost"))


def test_idle_connections_shut_nobody_out(listen):
    _, listening = listen()
    idle = [listening.connect() for _ in range(200)]
    assert ask(listening).endswith(b"\r\n\r\n3")
    for one in idle[:190]:
        assert received(one) == b""  # it made room
    assert len(listening.server.server_state.connections) <= 4
    for one in idle:
        one.close()


def test_a_request_that_is_being_answered_keeps_its_place(listen):
    app, listening = listen()
    busy = [listening.connect() for _ in range(4)]
    for one in busy:
        one.sendall(REQUEST.replace(b"POST /", b"POST /wait"))
    for _ in busy:
        assert app.held.acquire(timeout=30)
    refused = listening.exchange(REQUEST)
    assert STATUS.match(refused)[1] == b"503"
    assert refusals(refused)[0]["code"] == "busy"
    app.go.set()
    for one in busy:
        assert STATUS.match(one.recv(1 << 16))[1] == b"200"
        one.close()


def test_the_one_that_waits_longest_makes_room_first(listen):
    _, listening = listen()
    old, *others = [listening.connect() for _ in range(4)]
    assert ask(listening).endswith(b"\r\n\r\n3")
    assert received(old) == b""
    others[0].sendall(REQUEST)
    assert STATUS.match(others[0].recv(1 << 16))[1] == b"200"
    for one in others:
        one.close()


@pytest.mark.parametrize(
    ("patience", "sent"),
    [
        ({"headers": 0.2}, b"POST / HTTP/1.1\r\nHost: he"),
        ({"body": 0.2}, REQUEST[:-1]),
        ({"body": 0.2}, b"POST / HTTP/1.1\r\nHost: here\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nab"),
    ],
)
def test_a_request_that_does_not_arrive_is_said_so(listen, patience, sent):
    app, listening = listen(**patience)
    answer = listening.exchange(sent)
    assert STATUS.match(answer)[1] == b"408"
    assert refusals(answer)[0]["code"] == "request_timeout"
    assert "body" not in patience or app.gone.wait(30)


def test_a_connection_that_asks_nothing_is_closed(listen):
    _, listening = listen(headers=0.2)
    assert listening.exchange(b"") == b""


def test_more_bytes_do_not_extend_a_deadline(listen):
    _, listening = listen(headers=0.3)
    with listening.connect() as connection:
        sender = threading.Event()

        def drip():
            with suppress(OSError):
                connection.sendall(b"GET / HTTP/1.1\r\n")
                while not sender.wait(0.05):
                    connection.sendall(b"X-Header: a\r\n")

        thread = threading.Thread(target=drip)
        thread.start()
        answer = received(connection)
        sender.set()
        thread.join()
    assert answer == b"" or STATUS.match(answer)[1] == b"408"  # a reset may overtake the answer


def test_a_client_that_takes_nothing_is_dropped(listen):
    app, listening = listen(taking=0.2)
    with listening.connect() as connection:
        connection.sendall(b"GET /large HTTP/1.1\r\nHost: here\r\n\r\n")
        assert app.done.wait(30)  # the application is told that nobody listens
        assert len(received(connection)) < LARGE


@pytest.mark.parametrize(
    "sent",
    [
        b"\x00\x01\x02\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\nContent-Length: 8\r\n\r\n",
        b"GET / HTTP/1.1\r\n" + b"X-Header: a\r\n" * 10_000 + b"\r\n",
    ],
)
def test_what_is_no_http_is_refused_in_openais_format(listen, sent, caplog):
    _, listening = listen()
    answer = listening.exchange(sent)
    if answer:  # a reset may overtake the answer where much was sent
        assert STATUS.match(answer)[1] == b"400"
        assert refusals(answer)[0]["code"] == "invalid_request"
        assert json.loads(answer.partition(b"\r\n\r\n")[2])["error"]["type"] == "invalid_request_error"
    assert not [record for record in caplog.records if record.exc_info]
