"""`--session-memory` in the server: the next turn loads its history from memory, another tenant finds nothing."""

from contextlib import closing

from attached_drives import LOADING_PAYS
from served_here import ServedHere

from kvdrive.server.tenants import Tenants

TEXT = "The drive keeps the keys and the values of every token. "


def served(checkpoint, folder, **options):
    found = ServedHere(checkpoint, folder, active="memory", session_memory=1 << 28, context=256, **options)
    found.scheduler.with_sessions(lambda store: setattr(store.costs, "rates", LOADING_PAYS)).result(30)
    return closing(found)


def counts(server):
    """Loads, those from memory, and copies there."""

    def of_store(store):
        return store.stats.loads, store.stats.memory_hits, len(store.memory)

    return server.scheduler.with_sessions(of_store).result(30)


def test_the_next_turn_is_loaded_from_memory_and_after_a_restart_from_the_drive(checkpoint, tmp_path):
    with served(checkpoint, tmp_path) as server:
        first = server.complete(prompt=TEXT, max_tokens=8).json()
        assert first["kvdrive"]["resume"] == "none"
        assert counts(server) == (0, 0, 1)
        question = TEXT + first["choices"][0]["text"]
        second = server.complete(prompt=question, max_tokens=8).json()
        assert second["kvdrive"]["resume"] == "load"
        assert counts(server)[:2] == (1, 1)
    with served(checkpoint, tmp_path) as server:
        again = server.complete(prompt=question, max_tokens=8).json()
        assert again["choices"][0]["text"] == second["choices"][0]["text"]
        assert again["kvdrive"]["resume"] == "load"
        assert counts(server)[:2] == (1, 0)


def test_another_tenant_loads_nothing(checkpoint, tmp_path):
    with served(checkpoint, tmp_path, tenants=Tenants([("one", "a"), ("two", "b")])) as server:
        server.complete("one", prompt=TEXT, max_tokens=4)
        assert server.complete("two", prompt=TEXT, max_tokens=4).json()["kvdrive"]["resume"] == "none"
        assert server.complete("one", prompt=TEXT, max_tokens=4).json()["kvdrive"]["resume"] == "load"
        assert counts(server)[:2] == (1, 1)
