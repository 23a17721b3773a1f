"""A conversation on the page in a headless browser: type, stream, stop, reload, restart of the server, key, phone."""

import json
import socket
import threading
from contextlib import suppress

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
NOTE = "[...document.querySelectorAll('.assistant .note')].at(-1).textContent"
STATUS = "document.getElementById('status').textContent"
IDLE = "!document.getElementById('send').hidden && document.getElementById('log').getAttribute('aria-busy') === 'false'"
RENDERED = "document.querySelectorAll('.plain').length === 0"  # answers are plain text until the server has sent HTML
BUSY = "document.getElementById('send').hidden"
READY = "document.getElementById('model').textContent !== ''"
TITLES = "[...document.querySelectorAll('#conversations .open b')].map((one) => one.textContent)"
LONG = "late The drive keeps the keys and the values"  # whose answer does not end by itself
HOSTILE = "<img src=x onerror=\"document.title='broken'\"> <b>bold</b>"
MARKDOWN = """# Keys and values

They stay on the **drive**. See [this](javascript:alert(1)) and ![this](https://example.org/seen.png).

```python
def read(page):
    return page  # of 4 KiB
```

| bytes | where |
|---|---|
| 4096 | flash |

<script>document.title = 'broken'</script>
<img src=x onerror="document.title='broken'">
"""


class Relay:
    """Stands between the page and a server, and loses their connections when it is told to."""

    def __init__(self, port):
        self._to = ("127.0.0.1", port)
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.address = f"http://127.0.0.1:{self._listening.getsockname()[1]}"
        self._open, self._is_cut = [], False
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self):
        self._is_cut = True
        for one in self._open:
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)

    def mend(self):
        self._is_cut = False

    def _accept(self):
        with suppress(OSError):
            while True:
                near, _ = self._listening.accept()
                if self._is_cut:
                    near.close()
                    continue
                far = socket.create_connection(self._to)
                self._open += [near, far]
                for ends in ((near, far), (far, near)):
                    threading.Thread(target=self._pass_on, args=ends, daemon=True).start()

    def _pass_on(self, one, other):
        with suppress(OSError):
            while piece := one.recv(1 << 16):
                other.sendall(piece)
        for end in (one, other):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.cut()
        self._listening.close()
        for one in self._open:
            one.close()


@pytest.fixture
def page():
    with browser.Browser(browser.program()) as found:
        yield found
        assert found.errors == []


@pytest.fixture(scope="module")
def server(checkpoint, tmp_path_factory):
    """One server without a key, whose context is short, so that answers end."""
    server = serve(checkpoint, tmp_path_factory.mktemp("served"), "--max-tokens", 400)
    yield server
    server.close()


def serve(checkpoint, folder, *options, **fields):
    return Server(checkpoint, folder, "--drive", folder / "drives", *options, **fields)


def begin(page, server, tokens=12, **options):
    """Open the page in a window of a desk; answers have so many of the likeliest tokens."""
    page.resize(1280, 800)
    page.open(str(server.client.base_url))
    limit(page, tokens, **options)
    page.open(str(server.client.base_url))
    page.wait(READY)


def limit(page, tokens, **options):
    found = {"max_tokens": tokens, "temperature": 0} | options
    page.value(f"localStorage.setItem('kvdrive.options', {json.dumps(json.dumps(found))})")


def ask(page, text):
    before = page.value(ANSWERS)
    page.value("document.getElementById('question').focus()")
    page.type(text)
    page.press("Enter")
    page.wait(f"{ANSWERS} === {before + 1}")


def click(page, what):
    page.value(f"document.querySelector({json.dumps(what)}).click()")


def press(page, name, place=-1):
    """Click a button by what it says."""
    page.value(
        f"[...document.querySelectorAll('button')].filter((one) => one.textContent === '{name}').at({place}).click()"
    )


def port_of(server):
    return str(server.client.base_url).rsplit(":", 1)[-1].strip("/")


def import_file(page, talks):
    """Give the page a file of conversations."""
    sent = json.dumps(json.dumps({"kind": "kvdrive conversations", "version": 1, "conversations": talks}))
    page.value(
        f"(() => {{ const files = new DataTransfer(); files.items.add(new File([{sent}], 'talks.json'));"
        "const field = document.getElementById('file'); field.files = files.files;"
        "field.dispatchEvent(new Event('change')); })()"
    )


def talk(name, *texts):
    """A conversation of a file: questions and answers."""
    nodes, before = [], ""
    for place, text in enumerate(texts):
        nodes.append(
            {"id": f"m-{place}", "parent": before, "role": "assistant" if place % 2 else "user", "content": text,
             "session": name}
        )  # fmt: skip
        before = f"m-{place}"
    return {"id": name, "title": texts[0], "options": {}, "nodes": nodes, "leaf": before}


def test_a_conversation_survives_reload_and_restart_and_is_stopped(checkpoint, tmp_path, page):
    server = serve(checkpoint, tmp_path, "--max-tokens", 16_000)
    begin(page, server)
    assert page.value("document.activeElement.id") == "question"
    ask(page, f"The drive keeps {HOSTILE}")
    page.wait(IDLE)
    assert page.value("document.querySelector('.user .text').textContent").endswith(HOSTILE)
    assert page.value("document.title").startswith("The drive keeps <img")
    assert page.value("document.querySelectorAll('#log img, #log b:not(.empty b), #conversations img').length") == 0
    page.wait(RENDERED)
    first = page.value(LAST)

    page.command("Page.reload")
    page.wait(f"document.readyState === 'complete' && {READY} && {ANSWERS} === 1 && {LAST} !== '' && {RENDERED}")
    assert page.value(LAST) == first
    page.wait("document.querySelector('li.chosen .where')?.textContent === 'on the drive'")
    assert "tokens" in page.value("document.querySelector('li.chosen .quiet').textContent")

    server.close()
    page.wait(f"{STATUS}.startsWith('The server does not answer') && !document.getElementById('try-now').hidden")
    server = serve(checkpoint, tmp_path, "--max-tokens", 16_000, "--port", port_of(server))
    click(page, "#try-now")
    page.wait(f"{STATUS} === '' && document.getElementById('try-now').hidden")
    assert page.value(ANSWERS) == 1
    ask(page, "And then?")
    page.wait(IDLE)
    assert server.metric("kvdrive_cached_prompt_tokens_total") > 20
    assert server.metric("kvdrive_sessions_hits_total") == 1

    click(page, "#new")
    option(page, max_tokens=3000)
    ask(page, LONG)
    page.wait(f"{LAST}.length > 20")  # it streams
    assert page.value(BUSY)
    page.press("Escape")
    page.wait(IDLE)
    assert page.value(STATUS) == "Stopped."
    assert "You stopped it." in page.value(NOTE)
    server.wait_for("kvdrive_sequences_running", 0)
    assert server.metric("kvdrive_generated_tokens_total") < 3000
    server.close()


def option(page, **fields):
    """Change options of the conversation in their dialog."""
    click(page, "#options")
    for name, value in fields.items():
        page.value(f"document.getElementById('{name}').value = {json.dumps(value)}")
    click(page, "#options-form button[value=save]")


def test_an_answer_goes_on_while_the_page_is_loaded_again(checkpoint, tmp_path, page):
    server = serve(checkpoint, tmp_path, "--max-tokens", 16_000)
    begin(page, server, 600)
    ask(page, LONG)
    page.wait(f"{LAST}.length > 20")
    begun = page.value(LAST)
    page.command("Page.reload")
    page.wait(f"document.readyState === 'complete' && {READY} && {ANSWERS} === 1 && {BUSY}")
    page.wait(IDLE)
    assert page.value(LAST).strip().startswith(begun.strip()[:20])
    assert "600 tokens" in page.value(NOTE)
    assert server.metric("kvdrive_generated_tokens_total") == 600
    assert server.metric("kvdrive_cancelled_requests_total") == 0
    server.close()


def test_an_answer_is_joined_again_when_the_connection_was_lost(checkpoint, tmp_path, page):
    server = serve(checkpoint, tmp_path, "--max-tokens", 16_000)
    with Relay(int(port_of(server))) as relay:
        page.open(relay.address)
        limit(page, 600)
        page.open(relay.address)
        page.wait(READY)
        ask(page, LONG)
        page.wait(f"{LAST}.length > 5")
        relay.cut()
        page.wait(f"{STATUS}.startsWith('The connection is lost')")
        relay.mend()
        page.wait(f"{IDLE} && {NOTE}.startsWith('600 tokens')")
    assert server.metric("kvdrive_generated_tokens_total") == 600
    server.close()


def test_a_server_that_has_lost_the_answer_says_so_and_it_is_asked_for_again(checkpoint, tmp_path, page):
    server = serve(checkpoint, tmp_path, "--max-tokens", 16_000)
    begin(page, server, 3000)
    ask(page, LONG)
    page.wait(f"{LAST}.length > 20")
    server.kill()
    page.wait(f"{STATUS}.startsWith('The connection is lost')")
    server = serve(checkpoint, tmp_path, "--max-tokens", 16_000, "--port", port_of(server))
    page.wait(IDLE)
    assert "has forgotten the rest" in page.value(NOTE)
    option(page, max_tokens=5)
    press(page, "Try again")
    page.wait(f"{ANSWERS} === 1 && {IDLE} && {NOTE}.includes('5 tokens')")
    server.close()


def test_markdown_is_shown_rendered_and_harmless(server, page):
    begin(page, server)
    import_file(page, [talk("chat-markdown", "How does it look?", MARKDOWN)])
    page.wait("document.querySelector('.assistant h3')?.textContent === 'Keys and values'")
    assert page.value("document.querySelector('.code-head span').textContent") == "python"
    assert page.value("document.querySelector('.code pre .k').textContent") == "def"
    assert page.value("document.querySelectorAll('.wide td').length") == 2
    assert page.value("document.querySelectorAll('#log img, #log script, .text [onerror]').length") == 0
    assert page.value("[...document.querySelectorAll('.text a')].map((one) => one.href)") == [
        "https://example.org/seen.png"
    ]
    assert page.value("document.title").startswith("How does it look?")
    refused = "(() => { try { document.body.innerHTML = '<b>x</b>'; } catch (error) { return error.name; } })()"
    assert page.value(refused) == "TypeError"  # only what the server has rendered becomes elements
    page.errors.clear()  # that was one


def test_answers_and_code_are_copied(server, page):
    begin(page, server)
    page.command("Browser.grantPermissions", permissions=["clipboardReadWrite", "clipboardSanitizedWrite"])
    import_file(page, [talk("chat-copied", "Code?", "```python\nx = 1\n```")])
    page.wait("document.querySelector('.code-head button') !== null")
    for what, copied in ((".code-head button", "x = 1\n"), (".assistant .tools button", "```python\nx = 1\n```")):
        click(page, what)
        page.wait(f"document.querySelector('{what}').textContent === 'Copied'")
        assert page.value("navigator.clipboard.readText()") == copied


def test_an_edited_question_is_a_branch_that_the_drive_forks(server, page):
    begin(page, server, 6)
    ask(page, "The drive keeps the keys and the values of every token.")
    page.wait(f"{IDLE} && {RENDERED}")
    first = page.value(LAST)
    ask(page, "What does the host do?")
    page.wait(IDLE)
    press(page, "Edit")
    assert page.value("document.activeElement.value") == "What does the host do?"
    page.value("document.activeElement.value = 'What does the drive do?'")
    page.press("Enter")
    page.wait(f"{IDLE} && document.querySelectorAll('.user .text')[1]?.textContent === 'What does the drive do?'")
    note = page.value("document.querySelectorAll('.user .note')[1].textContent")
    assert note.startswith("A fork on the drive: it shares ")
    assert page.value("document.querySelector('li.chosen').textContent").endswith("2 branches")
    page.wait(f"{ANSWERS} === 2 && {RENDERED}")
    assert page.value("document.querySelector('.assistant .text').textContent") == first

    click(page, "[aria-label='Previous question']")
    page.wait("document.querySelectorAll('.user .text')[1].textContent === 'What does the host do?'")
    assert page.value("document.activeElement.closest('.message').textContent").startswith("What does the host do?")
    page.wait("document.querySelectorAll('.branches span')[0].textContent === 'Branch 1 of 2'")
    names = [one["name"] for one in server.client.get("/v1/sessions").json()["data"]]
    own = page.value("location.hash.slice(1)")
    assert {own, f"{own}.2"} <= set(names)


def test_an_answer_is_generated_anew_beside_the_first_one(server, page):
    begin(page, server, 6, temperature=1)
    ask(page, "Tell me about flash.")
    page.wait(IDLE)
    press(page, "Regenerate")
    page.wait(f"{IDLE} && document.querySelector('.assistant .branches span')?.textContent === 'Branch 2 of 2'")
    assert page.value(ANSWERS) == 1
    click(page, "[aria-label='Previous answer']")
    page.wait("document.querySelector('.assistant .branches span').textContent === 'Branch 1 of 2'")


def test_options_reach_the_server_and_stay(server, page):
    begin(page, server, 5)
    option(page, system="Answer briefly.", max_tokens=4, seed=7)
    before = server.metric("kvdrive_prompt_tokens_total")
    ask(page, "Hello?")
    page.wait(IDLE)
    assert "4 tokens" in page.value(NOTE)
    with_system = server.metric("kvdrive_prompt_tokens_total")
    page.command("Page.reload")
    page.wait(f"document.readyState === 'complete' && {READY} && {ANSWERS} === 1")
    click(page, "#options")
    assert page.value("document.getElementById('system').value") == "Answer briefly."
    assert page.value("document.getElementById('seed').value") == "7"
    page.press("Escape")
    click(page, "#new")
    ask(page, "Hello?")
    page.wait(IDLE)
    assert server.metric("kvdrive_prompt_tokens_total") - with_system < with_system - before  # this one has none
    option(page, temperature=9)
    assert page.value("document.getElementById('options-dialog').open")  # it is refused in the field


def test_a_conversation_is_renamed_deleted_and_taken_back(checkpoint, tmp_path, page):
    server = serve(checkpoint, tmp_path)
    begin(page, server, 4)
    ask(page, "Name three rivers.")
    page.wait(IDLE)
    click(page, "#rename")
    assert page.value("document.activeElement.id") == "new-title"
    page.type("Rivers")
    page.press("Enter")
    page.wait(f"{TITLES}[0] === 'Rivers' && document.getElementById('title').textContent === 'Rivers'")
    page.wait("document.querySelector('li.chosen .where') !== null")

    click(page, "#delete")
    page.wait(f"{TITLES}.length === 0 && document.activeElement.id === 'undo-button'")
    assert page.value("document.getElementById('undo-text').textContent") == "“Rivers” is deleted."
    assert server.metric("kvdrive_sessions_stored") > 0
    page.press("Enter")
    page.wait(f"{TITLES}[0] === 'Rivers' && {ANSWERS} === 1")

    click(page, "#delete")
    page.wait(f"{TITLES}.length === 0")
    page.command("Page.reload")  # which ends the time for second thoughts
    page.wait(f"document.readyState === 'complete' && {READY}")
    server.wait_for("kvdrive_sessions_stored", 0)
    page.wait(f"{TITLES}.length === 0")
    server.close()


def test_conversations_are_found_by_title_and_text(server, page):
    begin(page, server)
    import_file(page, [talk("chat-a", "Rivers of Europe", "The Danube."), talk("chat-b", "Mountains", "The Alps.")])
    page.wait(f"{TITLES}.length === 2")
    for words, titles in (("danube", ["Rivers of Europe"]), ("mount", ["Mountains"]), ("the ", 2), ("desert", [])):
        page.value(f"document.getElementById('search').value = '{words}'")
        page.value("document.getElementById('search').dispatchEvent(new Event('input'))")
        found = page.value(TITLES)
        assert (len(found) if isinstance(titles, int) else found) == titles
    assert page.value("document.getElementById('found').textContent") == "0 of 2 have it."


def test_what_is_exported_is_imported_again(server, page, tmp_path):
    begin(page, server, 4)
    ask(page, "Name three rivers.")
    page.wait(IDLE)
    page.command("Browser.setDownloadBehavior", behavior="allow", downloadPath=str(tmp_path))
    click(page, "#export")
    file = tmp_path / "Name-three-rivers.json"
    page.wait(f"{STATUS}.startsWith('1 exported')")
    while not file.exists():
        page.value("new Promise((done) => setTimeout(done, 20))")
    document = json.loads(file.read_text())
    (exported,) = document["conversations"]
    assert [one["role"] for one in exported["nodes"]] == ["user", "assistant"]
    assert exported["nodes"][0]["content"] == "Name three rivers."
    import_file(page, document["conversations"])
    page.wait(f"{TITLES}.length === 2 && {STATUS} === '1 imported.'")
    assert page.value("location.hash.slice(1)") != exported["id"]  # one with that name is here already
    assert page.value(ANSWERS) == 1


@pytest.mark.parametrize(
    "change",
    [
        {"id": "agent"},
        {"title": 5},
        {"nodes": []},
        {"leaf": "m-9"},
        {"options": {"temperature": "hot"}},
        {"options": {"other": 1}},
        {"nodes": [{"id": "m-0", "parent": "m-1", "role": "user", "content": "x", "session": "chat-x"}]},
        {"nodes": [{"id": "m-0", "parent": "", "role": "system", "content": "x", "session": "chat-x"}]},
        {"nodes": [{"id": "m-0", "parent": "", "role": "user", "content": "x", "session": "agent"}]},
    ],
)
def test_a_file_that_is_no_export_changes_nothing(server, page, change):
    begin(page, server)
    import_file(page, [talk("chat-y", "fine", "x"), talk("chat-x", "a", "b") | change])
    page.wait(f"{STATUS}.includes('nothing was imported')")
    assert page.value(TITLES) == []


def test_sessions_of_other_programs_stand_apart_and_are_taken_back(checkpoint, tmp_path, page):
    server = serve(checkpoint, tmp_path)
    server.complete(prompt="The drive keeps the keys and the values of", max_tokens=4, session="agent")
    begin(page, server)
    page.wait("!document.getElementById('foreign').hidden")
    assert page.value(TITLES) == []
    assert not page.value("document.getElementById('foreign').open")
    click(page, "[aria-label='Remove agent']")
    page.wait("document.getElementById('foreign').hidden")
    click(page, "#undo-button")
    page.wait("!document.getElementById('foreign').hidden")
    click(page, "[aria-label='Remove agent']")
    import_file(page, [talk("chat-a", "a", "b")])
    page.wait(f"{TITLES}.length === 1")
    click(page, "#delete")  # the one before is gone for good now
    server.wait_for("kvdrive_sessions_stored", 0)
    server.close()


def test_a_whole_answer_says_in_words_what_the_drive_had(checkpoint, tmp_path, page):
    server = serve(checkpoint, tmp_path, "--max-tokens", 400)  # whose drive is empty
    begin(page, server)
    ask(page, "The drive keeps the keys and the values of every token.")
    page.wait(IDLE)
    assert "the drive had none of them yet" in page.value(NOTE)
    assert "a second, the first after" in page.value(NOTE)
    ask(page, "And the host?")
    page.wait(IDLE)
    assert "The drive had " in page.value(NOTE)
    assert "so the model read only " in page.value(NOTE)
    page.wait("document.getElementById('remembered').textContent.includes('were on the drive')")
    assert "travelled between it and the computer" in page.value("document.getElementById('travelled').textContent")
    assert "on the drive" in page.value("document.getElementById('kept').textContent")
    server.close()


def test_a_wrong_key_is_said_and_the_right_one_stays_in_the_tab(checkpoint, tmp_path, page):
    server = serve(checkpoint, tmp_path, key="secret")
    page.open(str(server.client.base_url))
    asks = "document.getElementById('key-dialog').open && document.activeElement.id === 'key'"
    page.wait(asks)
    assert page.value("document.getElementById('key-wrong').hidden")
    page.type("wrong")
    page.press("Enter")
    page.wait(f"{asks} && document.getElementById('key-wrong').textContent.startsWith('That key is wrong')")
    assert page.value("document.getElementById('key').getAttribute('aria-invalid')") == "true"
    page.type("secret")
    page.press("Enter")
    page.wait(READY)
    assert not page.value("document.getElementById('key-dialog').open")
    assert page.value("Object.values(localStorage).join().includes('secret')") is False
    assert page.value("sessionStorage.getItem('kvdrive.key')") == "secret"
    server.close()


def test_two_tabs_see_each_others_conversations(server, page):
    begin(page, server, 4)
    with page.another() as other:
        other.open(str(server.client.base_url))
        other.wait(READY)
        ask(page, "Name three rivers.")
        page.wait(IDLE)
        other.wait(f"{TITLES}.length === 1")
        click(other, "#conversations .open")
        other.wait(f"{ANSWERS} === 1 && {LAST} !== ''")
        assert other.value(LAST).strip() == page.value(LAST).strip()
        assert other.errors == []


def test_a_phone_shows_everything_without_scrolling_sideways(server, page):
    begin(page, server)
    page.resize(360, 640)
    import_file(page, [talk("chat-phone", "How does it look?", MARKDOWN)])
    page.wait("document.querySelector('.assistant h3') !== null")
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
    begin(page, server)
    page.value("document.querySelector('.skip').focus()")
    reached = []
    while "send" not in reached:
        page.press("Tab")
        reached.append(page.value("document.activeElement.id || document.activeElement.className"))
    reached = [one for one in reached if one != "foreign-title"]  # other tests have asked this server, too
    assert reached == ["new", "search", "export-all", "import", "theme", "options", "log", "question", "send"]


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("width", [1280, 360])
def test_axe_finds_nothing_that_shuts_somebody_out(server, page, dark, width):
    """Rules of WCAG 2.2 A and AA and good practice, on a conversation with branches, and with each dialog open."""
    axe = browser.axe()
    if axe is None:
        pytest.skip("package axe-playwright-python is not installed: make .venv/stamps/page")
    begin(page, server)
    page.resize(width, 800, dark)
    branched = talk("chat-axe", "How does it look?", MARKDOWN)
    branched["nodes"].append(
        {"id": "m-b", "parent": "m-0", "role": "assistant", "content": "Other.", "session": "chat-axe.2"}
    )
    import_file(page, [branched])
    page.wait("document.querySelector('.assistant h3') !== null")
    page.value(axe)
    states = {
        "chat": "0",
        "list": "document.getElementById('show-list').click()",
        "figures": "document.getElementById('show-figures').click()",
        "editing": "[...document.querySelectorAll('button')].find((one) => one.textContent === 'Edit').click()",
        "renaming": "document.getElementById('rename').click()",
        "deleted": "document.getElementById('delete').click()",
        "options": "document.getElementById('options').click()",
    }
    for name, step in states.items():
        page.value(step)
        found = page.value(
            "axe.run(document, {resultTypes: ['violations']}).then((found) => found.violations.map((one) =>"
            "({rule: one.id, why: one.help, where: one.nodes.map((node) => node.html).slice(0, 3)})))"
        )
        assert found == [], (name, found)
