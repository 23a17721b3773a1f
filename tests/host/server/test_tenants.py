"""Each key belongs to a tenant, whose prompts, sessions, names and slots no other tenant sees or changes."""

import pytest
from served_here import ServedHere
from server_process import Server

from kvdrive.errors import InputError
from kvdrive.generation.sampling import Sampling
from kvdrive.server.errors import ApiError
from kvdrive.server.jobs import End, Job, Limits, Prompt, QueueFull, next_job
from kvdrive.server.metrics import Metrics
from kvdrive.server.scheduler import Scheduler
from kvdrive.server.tenants import Tenants, read_keys

KEYS = [("key-of-alice", "alice"), ("new-key-of-alice", "alice"), ("key-of-bob", "bob")]
ALICE, AGAIN, BOB = (key for key, _ in KEYS)
PROMPT = "The drive keeps the keys and the values"


ON_DRIVES = pytest.mark.parametrize("server", ["drive", "memory"], indirect=True)
ANYWHERE = pytest.mark.parametrize("server", ["drive", "memory", "process"], indirect=True)


@pytest.fixture(scope="module")
def server(request, checkpoint, tmp_path_factory):
    """Sessions attended to on the drive, loaded into memory, and finished sequences that are stored in the process."""
    where, kept = ("drive", False) if request.param == "process" else (request.param, True)
    folder = tmp_path_factory.mktemp("drives")
    server = ServedHere(checkpoint, folder, tenants=Tenants(KEYS), active=where, keep=kept)
    yield server
    server.close()


def cached(answer):
    return answer.json()["usage"]["prompt_tokens_details"]["cached_tokens"]


def counts(server):
    """The counts of /v1/stats and /metrics that depend on which prefixes were found, by name."""
    stats = server.client.get("/v1/stats", headers=headers(BOB)).json()
    lines = server.client.get("/metrics", headers=headers(BOB)).text.splitlines()
    found = {
        line.rpartition(" ")[0]: float(line.rpartition(" ")[2])
        for line in lines
        if line.startswith("kvdrive_resumes_total")
    }
    found |= {name: stats[name] for name in ("prompt_tokens", "cached_tokens")}
    sessions = stats["sessions"] or {}
    return found | {name: sessions.get(name, 0) for name in ("lookups", "hits", "hit_tokens", "loads", "attends")}


def headers(key):
    return {"Authorization": f"Bearer {key}"}


def names(server, key):
    listed = server.client.get("/v1/sessions", headers=headers(key)).json()["data"]
    return [one["name"] for one in listed]


@ANYWHERE
def test_cached_tokens_tell_nothing_of_the_prompts_of_others(server):
    prompt = "cached " + PROMPT
    before = server.client.get("/v1/stats", headers=headers(BOB)).json()["cached_tokens"]
    assert cached(server.complete(ALICE, prompt=prompt, max_tokens=1)) == 0
    assert cached(server.complete(BOB, prompt=prompt, max_tokens=1)) == 0
    after = server.client.get("/v1/stats", headers=headers(BOB)).json()["cached_tokens"]
    assert after == before
    again = server.complete(AGAIN, prompt=prompt, max_tokens=1)  # another key of the same tenant
    assert cached(again) > 0 or again.json()["kvdrive"]["resume"] == "recompute"


@ANYWHERE
def test_counts_over_all_tenants_are_the_same_whether_prompts_of_two_are_alike(server):
    """What one tenant reads in /v1/stats and /metrics after a guess says nothing of another one's prompts."""
    right, wrong = ("violet " + PROMPT, "orange " + PROMPT)
    server.complete(ALICE, prompt=right, max_tokens=1)

    def counted(prompt):
        before = counts(server)
        answer = server.complete(BOB, prompt=prompt, max_tokens=1)
        return answer.json()["usage"], {name: value - before[name] for name, value in counts(server).items()}

    assert counted(right) == counted(wrong)


@ANYWHERE
def test_choices_share_the_prompt_of_their_own_tenant(server):
    """It is found, unless computing it again is faster. Of other prompts, it has a few first letters at most."""
    for key in (ALICE, BOB):
        answer = server.complete(key, prompt="choices " + PROMPT, n=2, max_tokens=2)
        assert cached(answer) < 5
        assert answer.json()["choices"][1]["kvdrive"]["resume"] != "none"


@ANYWHERE
def test_statistics_have_numbers_and_names_of_the_server_only(server):
    server.complete(ALICE, prompt="secret words", max_tokens=1, user="a-user", session="a-name")
    seen = [server.client.get(path, headers=headers(BOB)).text for path in ("/v1/stats", "/metrics")]
    for text in ("secret", "a-user", "a-name", "alice", "bob", ALICE, AGAIN, BOB):
        assert not any(text in one for one in seen)


@ON_DRIVES
def test_names_of_sessions_are_each_tenants_own(server):
    texts = {key: f"{key} {PROMPT}" for key in (ALICE, BOB)}
    for key, text in texts.items():
        assert server.complete(key, prompt=text, max_tokens=2, session="talk").status_code == 200
    for key in texts:
        assert names(server, key).count("talk") == 1
    assert server.client.delete("/v1/sessions/talk", headers=headers(BOB)).json()["deleted"]
    assert names(server, ALICE).count("talk") == 1
    assert server.client.delete("/v1/sessions/talk", headers=headers(BOB)).status_code == 404


@ON_DRIVES
def test_numbers_of_sessions_are_no_way_to_those_of_others(server):
    number = server.complete(ALICE, prompt="number " + PROMPT, max_tokens=2).json()["kvdrive"]["session"]
    path = f"/v1/sessions/{number}"
    assert server.client.delete(path, headers=headers(BOB)).json()["error"]["code"] == "session_not_found"
    assert server.client.delete(path, headers=headers(AGAIN)).json()["deleted"]


@ON_DRIVES
def test_slots_hold_each_tenants_own_sessions(server):

    def slot(key, action, name="mine"):
        path = f"/slots/0?action={action}"
        return server.client.post(path, json={"filename": name}, headers=headers(key))

    def ask(key):
        return server.complete(key, prompt=f"slot {key} {PROMPT}", max_tokens=2).json()["kvdrive"]["session"]

    slot(BOB, "erase")
    ask(ALICE)
    for action in ("save", "erase"):
        assert slot(BOB, action).json()["error"]["code"] == "session_not_found"
    assert slot(ALICE, "save").json()["filename"] == "mine"
    assert slot(BOB, "restore").json()["error"]["code"] == "session_not_found"
    assert ask(BOB) is not None
    assert slot(BOB, "save").json()["filename"] == "mine"
    ask(ALICE)
    taken = slot(ALICE, "save")
    assert (taken.status_code, taken.json()["error"]["code"]) == (409, "session_unavailable")
    for key in (ALICE, BOB):
        assert slot(key, "restore").json()["n_restored"] > 0
        assert names(server, key).count("mine") == 1


@ANYWHERE
def test_a_key_is_needed_for_all_that_belongs_to_somebody(server):
    for method, path in (
        ("GET", "/v1/sessions"),
        ("POST", "/v1/completions"),
        ("POST", "/slots/0"),
        ("GET", "/metrics"),
    ):
        for sent in ({}, headers("key-of-eve"), {"Authorization": ALICE}):
            answer = server.client.request(method, path, headers=sent)
            assert (answer.status_code, answer.json()["error"]["code"]) == (401, "invalid_api_key")
    assert server.client.get("/health").json() == {"status": "ok"}


def job(tenant):
    return Job([1], 1, Sampling(), lambda event: None, tenant=tenant)


def test_the_next_request_is_of_the_tenant_that_has_the_fewest_running():
    alice, bob = [job("alice") for _ in range(4)], [job("bob") for _ in range(2)]
    waiting, running, order = [*alice, *bob], [], []
    while waiting:
        running.append(next_job(waiting, running))
        waiting.remove(running[-1])
        order.append(running[-1])
    assert order == [alice[0], bob[0], alice[1], bob[1], alice[2], alice[3]]


def test_a_tenant_that_fills_the_queue_shuts_nobody_out():
    """The scheduler is not started, so that nothing leaves the queue."""
    scheduler = Scheduler(None, Limits(100, waiting=2), Metrics())
    for _ in range(2):
        scheduler.submit(job("alice"))
    with pytest.raises(QueueFull):
        scheduler.submit(job("alice"))
    scheduler.submit(job("bob"))
    assert scheduler.load == (3, 0)


def test_choices_of_one_request_wait_as_one_and_for_their_prompt():
    scheduler = Scheduler(None, Limits(100, waiting=2), Metrics())
    leader, follower, other = job("alice"), job("alice"), job("alice")
    follower.leader, follower.ask = leader, leader.ask
    scheduler.submit(leader, follower)
    scheduler.submit(other)
    with pytest.raises(QueueFull):
        scheduler.submit(job("alice"))
    assert scheduler.load == (3, 0)
    assert next_job([leader, follower], []) is leader
    assert next_job([follower, other], []) is other
    assert next_job([follower], []) is None
    leader.tell(Prompt(0))
    assert next_job([follower], []) is follower
    alone, late = job("bob"), job("bob")
    late.leader = alone
    alone.tell(End())
    assert late.may_begin


@pytest.mark.parametrize("scheme", ["Bearer ", "bearer ", "BEARER  "])
def test_the_scheme_is_read_in_any_case(scheme):
    tenants = Tenants(KEYS)
    assert tenants.of(scheme + BOB) == "bob"
    with pytest.raises(ApiError):
        tenants.of(scheme + "key-of-bo")


def test_without_keys_all_are_one_tenant():
    assert Tenants(default="all").of("") == "all"
    assert (Tenants().asks, Tenants(KEYS).asks, Tenants(KEYS).count) == (False, True, 2)


def test_keys_are_read_from_a_file(tmp_path):
    file = tmp_path / "keys"
    file.write_text("# of the office\nalice key-of-alice\n\nalice  new-key-of-alice\nbob\tkey-of-bob\n")
    assert read_keys(file) == KEYS


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "has no key"),
        ("# alice key\n", "has no key"),
        ("alice\n", "line 1: write TENANT KEY"),
        ("a/b key\n", "line 1: write TENANT KEY"),
        ("alice key more\n", "line 1: write TENANT KEY"),
        ("alice schlüssel\n", "line 1: write TENANT KEY"),
        ("alice key\nbob key\n", "line 2: this key has another tenant"),
    ],
)
def test_a_file_of_keys_that_is_unclear_is_refused(tmp_path, text, message):
    file = tmp_path / "keys"
    file.write_text(text)
    with pytest.raises(InputError, match=message):
        read_keys(file)


def test_serve_reads_keys_and_ignores_unknown_fields_when_asked_to(checkpoint, tmp_path):
    """The command's options reach the server: two tenants, and a line in the log for what was ignored."""
    file = tmp_path / "keys"
    file.write_text("".join(f"{tenant} {key}\n" for key, tenant in KEYS))
    file.chmod(0o644)
    server = Server(checkpoint, tmp_path, "--keys", file, "--unknown-fields", "warn", "--open-metrics")
    found = []
    for key in (ALICE, BOB, AGAIN):
        server.client.headers["Authorization"] = f"Bearer {key}"
        answer = server.complete(prompt=PROMPT, max_tokens=2, max_tokns=5)
        found.append((answer.status_code, cached(answer) > 0))
        assert server.complete(prompt=PROMPT, tools=[1]).json()["error"]["param"] == "tools"
    assert found == [(200, False), (200, False), (200, True)]
    assert server.client.get("/v1/models?deep=1").status_code == 200
    server.client.headers["Authorization"] = "Bearer key-of-eve"
    assert server.complete(prompt=PROMPT).status_code == 401
    assert server.client.get("/metrics").status_code == 200
    said = server.said()
    assert f"other users of this machine can read {file}: chmod 600 {file}" in said
    assert said.count("ignored fields of a request that this server does not know: max_tokns") == 3
    assert "ignored the unknown query parameter deep" in said
    server.close()
