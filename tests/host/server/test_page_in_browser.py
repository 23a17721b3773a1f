"""A conversation on the page in a headless browser: type, stream, stop, reload, restart of the server, key, phone."""

import pytest
from server_process import Server

import browser

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        browser.program() is None, reason="no Chromium on this machine: scripts/system_packages.sh page installs one"
    ),
]
ANSWERS = "document.querySelectorAll('.assistant .text').length"
LAST = "[...document.querySelectorAll('.assistant .text')].at(-1).textContent"
NOTE = "[...document.querySelectorAll('.assistant .quiet')].at(-1).textContent"
IDLE = "!document.getElementById('send').hidden && !running"
BUSY = "document.getElementById('send').hidden"
READY = "model !== null"
HOSTILE = "<img src=x onerror=\"document.title='broken'\"> <b>bold</b>"


@pytest.fixture
def page():
    with browser.Browser(browser.program()) as found:
        yield found
        assert found.errors == []


@pytest.fixture(scope="module")
def server(checkpoint, tmp_path_factory):
    """One server without a key, whose context is short, so that answers end."""
    server = serve(checkpoint, tmp_path_factory.mktemp("served"), "--max-tokens", 200)
    yield server
    server.close()


def ask(page, text):
    before = page.value(ANSWERS)
    page.value("document.getElementById('question').focus()")
    page.type(text)
    page.press("Enter")
    page.wait(f"{ANSWERS} === {before + 1}")


def serve(checkpoint, folder, *options, **fields):
    return Server(checkpoint, folder, "--drive", folder / "drives", *options, **fields)


def limit(page, tokens):
    """The most likely tokens, at most so many."""
    page.value(f"document.getElementById('most').value = {tokens}")
    page.value("document.getElementById('heat').value = 0")


def test_a_conversation_survives_reload_and_restart_and_is_stopped(checkpoint, tmp_path, page):
    server = serve(checkpoint, tmp_path, "--max-tokens", 16_000)
    port = str(server.client.base_url).rsplit(":", 1)[-1].strip("/")
    page.resize(1280, 800)
    page.open(f"http://127.0.0.1:{port}/")
    page.wait(READY)
    assert page.value("document.activeElement.id") == "question"
    limit(page, 12)
    ask(page, f"The drive keeps {HOSTILE}")
    page.wait(IDLE)
    assert page.value("document.querySelector('.user .text').textContent").endswith(HOSTILE)
    assert page.value("document.title") == "kvdrive"
    assert page.value("document.querySelectorAll('#log img, #log b:not(.empty b), #conversations img').length") == 0
    first = page.value(LAST)

    page.command("Page.reload")
    page.wait(f"document.readyState === 'complete' && {READY} && {ANSWERS} === 1")
    assert page.value(LAST) == first
    page.wait("document.querySelector('li.chosen .where')?.textContent === 'flash'")
    assert "tokens" in page.value("document.querySelector('li.chosen .quiet').textContent")

    server.close()
    page.wait("document.getElementById('status').textContent.startsWith('The server does not answer')")
    server = serve(checkpoint, tmp_path, "--max-tokens", 16_000, "--port", port)
    page.wait("document.getElementById('status').textContent === ''")
    assert page.value(ANSWERS) == 1
    limit(page, 8)
    ask(page, "And then?")
    page.wait(IDLE)
    assert server.metric("kvdrive_cached_prompt_tokens_total") > 20
    assert server.metric("kvdrive_sessions_hits_total") == 1

    limit(page, 3000)
    ask(page, "And so on?")
    page.wait(f"{LAST}.length > 20")  # it streams
    assert page.value(BUSY)
    page.press("Escape")
    page.wait(IDLE)
    assert page.value("document.getElementById('status').textContent") == "Stopped."
    server.wait_for("kvdrive_sequences_running", 0)
    assert server.metric("kvdrive_generated_tokens_total") < 3000

    page.value("document.querySelector('li.chosen .drop').click()")
    page.wait("document.querySelectorAll('#conversations li').length === 0")
    server.wait_for("kvdrive_sessions_stored", 0)
    assert page.value(ANSWERS) == 0
    server.close()


def test_a_whole_answer_says_what_was_found(server, page):
    page.open(str(server.client.base_url))
    page.wait(READY)
    ask(page, "Say something short.")
    page.wait(IDLE)
    assert page.value(NOTE).startswith("0 of ")
    assert "prompt tokens were on the drive" in page.value(NOTE)
    page.wait("document.getElementById('generated').textContent !== '0'")
    page.wait("document.getElementById('kept').textContent === '1'")


def test_the_key_is_asked_for_and_stays_in_the_tab(checkpoint, tmp_path, page):
    server = serve(checkpoint, tmp_path, key="secret")
    page.open(str(server.client.base_url))
    for key in ("wrong", "secret"):
        page.wait("document.getElementById('key-dialog').open && document.activeElement.id === 'key'")
        page.type(key)
        page.press("Enter")
    page.wait(READY)
    assert not page.value("document.getElementById('key-dialog').open")
    assert page.value("Object.values(localStorage).join().includes('secret')") is False
    assert page.value("sessionStorage.getItem('kvdrive.key')") == "secret"
    server.close()


def test_a_phone_shows_everything_without_scrolling_sideways(server, page):
    page.resize(360, 640)
    page.open(str(server.client.base_url))
    page.wait(READY)
    assert page.value("document.documentElement.scrollWidth <= 360")
    for name in ("list", "figures"):
        assert page.value(f"getComputedStyle(document.getElementById('{name}')).display") == "none"
        page.value(f"document.getElementById('show-{name}').click()")
        assert page.value(f"document.getElementById('show-{name}').getAttribute('aria-expanded')") == "true"
        assert page.value(f"getComputedStyle(document.getElementById('{name}')).display") == "block"
        assert page.value("document.documentElement.scrollWidth <= 360")
        page.press("Escape")
        assert page.value(f"getComputedStyle(document.getElementById('{name}')).display") == "none"


def test_everything_is_reached_by_tab_in_the_order_of_the_page(server, page):
    page.resize(1280, 800)
    page.open(str(server.client.base_url))
    page.wait(READY)
    page.value("document.querySelector('.skip').focus()")
    reached = []
    for _ in range(5):
        page.press("Tab")
        reached.append(page.value("document.activeElement.id || document.activeElement.className"))
    assert reached == ["new", "log", "question", "send", "most"]
