"""The page at `/` and the endpoints that it needs, without a browser. `test_page_in_browser.py` uses it."""

import json
import re

import pytest
from server_process import PROMPT, Server


@pytest.fixture(scope="module")
def server(checkpoint, tmp_path_factory):
    folder = tmp_path_factory.mktemp("page")
    server = Server(checkpoint, folder, "--drive", folder / "drives", key="secret")
    yield server
    server.close()


def authorised(server):
    return {"Authorization": "Bearer secret"}


def test_the_page_loads_nothing_from_outside(server):
    """It needs no key, because it holds no data. The policy lets no inline script run."""
    html = server.client.get("/")
    policy = html.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert "http" not in policy
    found = re.findall(r'(?:src|href)="([^"#]+)"', html.text)
    assert sorted(found) == ["icon.svg", "page.css", "page.js"]
    for name in found:
        file = server.client.get(f"/{name}")
        assert file.status_code == 200
        assert file.headers["x-content-type-options"] == "nosniff"
        assert not re.search(r"https?://(?!www\.w3\.org/2000/svg)", file.text)
    assert not re.search(r"<script(?! src)|\son\w+=|style=", html.text)
    script = server.client.get("/page.js").text
    assert not re.search(r"innerHTML|outerHTML|insertAdjacent|document\.write|eval\(|DOMParser", script)


def test_every_field_of_the_page_has_a_name_for_readers(server):
    html = server.client.get("/").text
    labelled = set(re.findall(r'<label for="(\w+)"', html))
    assert set(re.findall(r'<(?:textarea|input) id="(\w+)"', html)) == labelled
    ids = re.findall(r'\bid="([\w-]+)"', html)
    assert len(ids) == len(set(ids))
    assert set(re.findall(r'byId\("([\w-]+)"\)', server.client.get("/page.js").text)) <= set(ids)


@pytest.mark.parametrize("path", ["/v1/stats", "/v1/sessions"])
def test_data_wants_the_key(server, path):
    assert server.client.get(path).status_code == 401
    assert server.client.get(path, headers=authorised(server)).status_code == 200


def test_stats_count_and_the_last_chunk_names_the_session(server):
    """Without include_usage as well. A stop text ends the answer before the model does; its session is stored."""
    headers = authorised(server)
    before = server.client.get("/v1/stats", headers=headers).json()
    request = {"model": "tiny", "prompt": PROMPT, "max_tokens": 9, "temperature": 0, "stream": True, "session": "page"}
    with server.client.stream("POST", "/v1/completions", json=request, headers=headers) as response:
        lines = [line.removeprefix("data: ") for line in response.iter_lines() if line]
    *pieces, closing = [json.loads(line) for line in lines[:-1]]
    assert all("kvdrive" not in piece for piece in pieces)
    assert closing["choices"][0]["finish_reason"] == "length"
    assert closing["kvdrive"]["kv_uri"] == "kvdrive:page"
    assert closing["kvdrive"]["resume"] == "none"
    (kept,) = server.client.get("/v1/sessions", headers=headers).json()["data"]
    assert kept["id"] == closing["kvdrive"]["session"]
    assert (kept["name"], kept["where"], kept["open"]) == ("page", "flash", False)

    after = server.client.get("/v1/stats", headers=headers).json()
    assert after["generated_tokens"] - before["generated_tokens"] == 9
    assert after["tokens_per_second"] > 0
    assert after["read_inside_bytes"] > before["read_inside_bytes"]
    assert after["host_in_bytes"] > before["host_in_bytes"]
    assert after["sessions"]["kept"] == 1
    assert after["sessions"]["bytes_written"] > 0

    text = "".join(piece["choices"][0]["text"] for piece in pieces)
    again = {**request, "session": "again", "stream": False, "stop": text[4:6]}
    stopped = server.client.post("/v1/completions", json=again, headers=headers).json()
    assert stopped["choices"][0]["finish_reason"] == "stop"
    assert stopped["kvdrive"]["session"] is not None


def test_a_session_in_use_is_not_removed(server):
    headers = authorised(server)
    request = {
        "model": "tiny",
        "prompt": "late " + PROMPT,  # which the model does not end by itself
        "max_tokens": 3000,
        "temperature": 0,
        "stream": True,
        "session": "busy",
    }
    with server.client.stream("POST", "/v1/completions", json=request, headers=headers) as response:
        lines = response.iter_lines()
        for _ in range(80):
            next(lines)
        refused = server.client.delete("/v1/sessions/busy", headers=headers)
    assert refused.status_code == 409
    assert "in use" in refused.json()["error"]["message"]


def test_a_deadline_is_an_error_of_the_server_and_keeps_what_was_computed(server):
    headers = authorised(server)
    request = {"model": "tiny", "prompt": "late " + PROMPT, "max_tokens": 4000, "temperature": 0, "session": "late"}
    late = server.client.post("/v1/completions", json=request | {"deadline_seconds": 0.7}, headers=headers)
    assert late.status_code == 504
    assert late.json()["error"]["code"] == "deadline_passed"
    names = [one["name"] for one in server.client.get("/v1/sessions", headers=headers).json()["data"]]
    assert "late" in names
    refused = server.client.post("/v1/completions", json=request | {"deadline_seconds": -1}, headers=headers)
    assert refused.json()["error"]["param"] == "deadline_seconds"
