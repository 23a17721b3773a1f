"""The page at `/` and the endpoints that it needs, without a browser. `test_page_in_browser.py` uses it."""

import json
import re

import pytest
from server_process import PROMPT, Server

WHERE_TEXT_BECOMES_ELEMENTS = "markup.js"


@pytest.fixture(scope="module")
def server(checkpoint, tmp_path_factory):
    folder = tmp_path_factory.mktemp("page")
    server = Server(checkpoint, folder, "--drive", folder / "drives", key="secret")
    yield server
    server.close()


@pytest.fixture(scope="module")
def files(server):
    """The texts of the page's files by their names: what it names, and what these import."""
    found, wanted = {}, re.findall(r'(?:src|href)="page/([^"]+)"', server.client.get("/").text)
    while wanted:
        name = wanted.pop()
        if name not in found:
            file = server.client.get(f"/page/{name}")
            assert file.status_code == 200, name
            assert file.headers["x-content-type-options"] == "nosniff"
            found[name] = file.text
            wanted += re.findall(r'(?:from|import) "\./([^"]+)"', file.text)
    return found


def authorised(server):
    return {"Authorization": "Bearer secret"}


def scripts(files):
    return {name: text for name, text in files.items() if name.endswith(".js")}


def test_the_page_loads_nothing_from_outside(server, files):
    """It needs no key, because it holds no data. The policy lets no inline script run, and no text become elements."""
    html = server.client.get("/")
    policy = html.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "require-trusted-types-for 'script'; trusted-types rendered" in policy
    assert "unsafe" not in policy
    assert "http" not in policy
    assert all(link.startswith("page/") for link in re.findall(r'(?:src|href)="([^"#]+)"', html.text))
    for text in (html.text, *files.values()):
        assert not re.search(r"https?://(?!www\.w3\.org/2000/svg)", text)
    assert not re.search(r"<script(?! src)|\son\w+=|style=", html.text)


def test_only_one_file_makes_elements_of_a_text(files):
    makes = re.compile(
        r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|DOMParser|setHTML|createPolicy"
    )
    assert [name for name, text in scripts(files).items() if makes.search(text)] == [WHERE_TEXT_BECOMES_ELEMENTS]
    assert files[WHERE_TEXT_BECOMES_ELEMENTS].count("innerHTML") == 1


def test_the_page_has_only_the_files_that_it_uses(server, files):
    for name in ("other.js", "index.html", "../page.py", "%2e%2e/page.py", "main.js/"):
        assert server.client.get(f"/page/{name}").status_code == 404
    assert len(files) > 15


def test_every_field_of_the_page_has_a_name_for_readers(server, files):
    html = server.client.get("/").text
    labelled = set(re.findall(r'<label for="([\w-]+)"', html))
    fields = re.findall(r"<(?:textarea|input|select)[^>]*>", html)
    named = {re.search(r'id="([\w-]+)"', one)[1] for one in fields if "aria-label=" not in one}
    assert named == labelled
    ids = re.findall(r'\bid="([\w-]+)"', html)
    assert len(ids) == len(set(ids))
    for text in scripts(files).values():
        assert set(re.findall(r'byId\("([\w-]+)"\)', text)) <= set(ids)
    for one in re.findall(r'aria-(?:controls|labelledby|describedby)="([\w -]+)"', html):
        assert set(one.split()) <= set(ids)


@pytest.mark.parametrize("path", ["/v1/stats", "/v1/sessions", "/v1/answers/some-answer"])
def test_data_wants_the_key(server, path):
    assert server.client.get(path).status_code == 401
    assert server.client.get(path, headers=authorised(server)).status_code in (200, 404)


def test_markdown_is_rendered_for_who_has_the_key(server):
    sent = {"texts": ["*a*", "", "<script>"]}
    assert server.client.post("/render", json=sent).status_code == 401
    answer = server.client.post("/render", json=sent, headers=authorised(server))
    assert answer.json() == {"html": ["<p><em>a</em></p>\n", "", "<p>&lt;script&gt;</p>\n"]}


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
    assert after["sessions"]["stored"] == 1
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
