"""Pages of other origins: refused, unless the owner has named their origin."""

import pytest
from served_here import ServedHere

from kvdrive.errors import InputError
from kvdrive.server.local import check_origin

NAMED, OTHER = "https://app.example", "https://other.example"


@pytest.fixture(scope="module")
def server(checkpoint, tmp_path_factory):
    server = ServedHere(checkpoint, tmp_path_factory.mktemp("drives"), origins=(NAMED,))
    yield server
    server.close()


def ask(server, origin):
    body = {"model": "tiny", "prompt": "Rain?", "max_tokens": 1}
    return server.client.post("/v1/completions", json=body, headers={"Origin": origin})


def preflight(server, origin, method="POST"):
    wanted = {
        "Access-Control-Request-Method": method,
        "Access-Control-Request-Headers": "authorization, x-stainless-os",
    }
    return server.client.options("/v1/completions", headers={"Origin": origin, **wanted})


def test_a_named_origin_may_ask_and_its_browser_is_told_so(server):
    assert preflight(server, NAMED).status_code == 200
    answer = ask(server, NAMED)
    assert (answer.status_code, answer.headers["access-control-allow-origin"]) == (200, NAMED)
    assert "access-control-allow-credentials" not in answer.headers


def test_another_origin_may_not(server):
    assert preflight(server, OTHER).status_code == 400
    answer = ask(server, OTHER)
    assert (answer.status_code, answer.json()["error"]["code"]) == (403, "not_local")
    assert "access-control-allow-origin" not in answer.headers
    assert preflight(server, NAMED, "PUT").status_code == 400


@pytest.mark.parametrize(
    "origin", ["*", "null", "app.example", "https://app.example/", "https://App.example", "ftp://a"]
)
def test_what_no_browser_sends_as_an_origin_is_refused(origin):
    with pytest.raises(InputError, match="write it as"):
        check_origin(origin)


@pytest.mark.parametrize("origin", ["http://localhost:3000", "https://app.example", "http://[::1]:80"])
def test_what_browsers_send_is_taken(origin):
    check_origin(origin)
