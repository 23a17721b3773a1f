"""Stored sessions in memory: how a request continues, what is read for it, and what a fault costs."""

import functools
import subprocess
import threading
from dataclasses import replace

import numpy as np
import pytest
import torch
from attached_drives import LOADING_PAYS
from small_models import SMALL, prompts, random_model
from transformers import LlamaConfig

from kvdrive import abi
from kvdrive.errors import TargetError
from kvdrive.generation.generate import greedy
from kvdrive.kvcache.budget import MemoryOptions
from kvdrive.kvcache.recovery import Recovery
from kvdrive.kvcache.session import Session
from kvdrive.nvme.wire import KvRead
from kvdrive.perf.stored_rates import StoredRates
from kvdrive.plugins.transformers import attach
from kvdrive.prefix.options import SessionOptions
from kvdrive.prefix.rates import Rates
from kvdrive.prefix.request import Request
from kvdrive.prefix.resume import ON_DRIVES, Costs, Turn, estimate, read_buffer
from kvdrive.server.prefix_cache import PrefixCache
from kvdrive.targets.cpu import CpuDrive
from kvdrive.targets.emulator import Emulator
from kvdrive.targets.slowed import SlowedTarget

LAYERS, HEADS, HEAD_DIM = 6, 4, 32
DEEP = LlamaConfig(**SMALL | {"num_hidden_layers": LAYERS}, num_key_value_heads=HEADS)
PROMPT = prompts(1, 150)
LAYER_TOKEN = 2 * HEADS * HEAD_DIM * 2  # bytes: K and V, binary16
DISK = Rates(1e-3, 0, 1e-3, 0, 2e-8, 0, 0, 1, 1)  # reading is 7 times as fast as computing


class VirtualClock:
    """Seconds that pass only where somebody says so."""

    def __init__(self):
        self.seconds = 0.0
        self._lock = threading.Lock()

    def now(self):
        return self.seconds

    def sleep(self, seconds):
        with self._lock:
            self.seconds += seconds


class Timed:
    """A drive that counts KV_READs; each byte read takes virtual time."""

    clock = None

    def __init__(self, *arguments, seconds_per_byte=0.0, **options):
        super().__init__(*arguments, **options)
        self.seconds_per_byte = seconds_per_byte
        self.reads = []
        self.gate = threading.Event()
        self.gate.set()

    def submit_many(self, commands):
        reads = [one for one in commands if one.opcode == abi.Opcode.KV_READ and self._is_kv(one)]
        if reads:
            self.gate.wait(60)
            self.reads += [self._fields(one) for one in reads]
        done = super().submit_many(commands)
        if self.clock is not None:
            self.clock.sleep(self.seconds_per_byte * sum(one.room for one in reads))
        return done

    @staticmethod
    def _fields(command):
        fields = np.frombuffer(command.entry, KvRead)[0]
        return int(fields["layer"]), int(fields["kind"]), int(fields["first_token"]), command.room

    def _is_kv(self, command):
        return self._fields(command)[0] < LAYERS


class TimedDrive(Timed, Emulator):
    """With modelled flash."""


class TimedCpuDrive(Timed, CpuDrive):
    """On a disk."""


@pytest.fixture(scope="module")
def model():
    return random_model(DEEP)


@pytest.fixture(scope="module")
def expected(model, tmp_path_factory):
    """What a sequence in memory that never stops generates."""
    return never_stopped(model, tmp_path_factory.mktemp("expected"), PROMPT, 45)


def never_stopped(model, folder, ids, new_tokens):
    """All tokens of a sequence in memory that is computed at once."""
    drive = Emulator(folder / "never.kv", "fast", capacity_bytes=1 << 26)
    with drive, attach(model, drive, active="memory") as attached:
        return greedy(model, ids, new_tokens, past_key_values=attached.cache())


@pytest.fixture
def opened(tmp_path):
    """Attaches a model to the drives in the test's folder, each time as a new process would."""

    def attached(model, rates=LOADING_PAYS, drives=1, slowed=None, clock=None, **options):
        targets = [
            TimedDrive(tmp_path / f"{i}.kv", "fast", capacity_bytes=1 << 26, seconds_per_byte=DISK.load_byte)
            for i in range(drives)
        ]
        for target in targets:
            target.clock = clock
        used = [SlowedTarget(target, slowed, clock) if slowed else target for target in targets]
        attachment = attach(model, used, **{"sessions": True, "active": "memory"} | options)
        attachment.sessions.costs.rates = rates
        attachment.drives = targets
        for target in targets:
            attachment._opened.callback(target.close)
        return attachment

    return attached


@pytest.fixture(scope="module")
def saved(model, tmp_path_factory):
    """drives -> a folder with drives, now closed, that keep PROMPT and 20 tokens after it; all these tokens."""

    @functools.cache
    def made(drives):
        folder = tmp_path_factory.mktemp("saved")
        targets = [Emulator(folder / f"{i}.kv", "fast", capacity_bytes=1 << 26) for i in range(drives)]
        with attach(model, targets, sessions=True, active="memory") as attached:
            attached.sessions.costs.rates = LOADING_PAYS
            tokens = greedy(model, PROMPT, 20, past_key_values=attached.sessions.cache(PROMPT))
        for target in targets:
            target.close()
        return folder, tokens

    return made


@pytest.fixture
def save(saved, tmp_path):
    """Puts a stored session of PROMPT and what follows it into the test's folder. Returns all tokens."""

    def copied(drives=1):
        folder, tokens = saved(drives)
        subprocess.run(["cp", "-r", "--sparse=always", f"{folder}/.", tmp_path], check=True)
        return tokens

    return copied


# ---- the choice ----


def test_the_fastest_strategy_is_chosen():
    turn = Turn(history=16_000, new_tokens=16, steps=0, bytes=16_000 * 2048, layers=8)
    fast = Rates(1e-3, 1e-7, 0.01, 1e-6, 1e-9, 1e-4, 1e-3, 1e-3, 1e-6)
    costs = Costs(None, "", lambda: fast)
    everything = ("load", "attend", "recompute")
    assert costs.choose(turn, everything).strategy == "load"
    assert costs.choose(replace(turn, bytes=1 << 50), everything).strategy == "attend"
    assert costs.choose(replace(turn, bytes=1 << 50, steps=100_000), everything).strategy == "recompute"
    slow = replace(fast, load_byte=1.0, attend_pair=1.0)
    assert Costs(None, "", lambda: slow).choose(turn, everything).strategy == "recompute"
    assert costs.choose(turn, ("load", "attend")).plan.recompute_seconds == fast.prefill(0, 16_000)


def test_never_slower_than_computing_again_by_more_than_5_percent():
    """Over drives of any speed, histories and lengths, the chosen way is at most the estimate of computing again."""
    for slow in (1, 50, 5000):
        for history in (64, 1000, 30_000):
            rates = Rates(1e-3, 1e-8, 0.01, 1e-7, slow * 1e-9, slow * 1e-4, slow * 1e-3, slow * 1e-3, slow * 1e-7)
            turn = Turn(history, 16, 64, history * 2048, 8)
            seconds = estimate(rates, turn)
            choice = Costs(None, "", lambda rates=rates: rates).choose(turn, tuple(seconds))
            opening = rates.open if choice.strategy == "recompute" and choice.forks else 0
            assert seconds[choice.strategy] + opening <= 1.05 * seconds["recompute"]


def test_a_sequence_on_the_drive_is_computed_again_only_if_that_is_clearly_faster():
    """Both ways decode in the drive. What is computed again is also written again, so a little time does not matter."""
    rates = Rates(1e-3, 1e-7, 0.01, 1e-6, 1e-9, 1e-4, 1e-3, 5e-3, 1e-6)
    choose = Costs(None, "", lambda: rates).choose
    long = Turn(history=2000, new_tokens=100, steps=10_000, bytes=0, layers=8, in_memory=False)
    assert choose(long, ON_DRIVES).strategy == "attend"
    seconds = estimate(rates, replace(long, history=100, new_tokens=2000))
    assert seconds["attend"] > 1.05 * rates.prefill(0, 2100) + seconds["recompute"] - rates.prefill(0, 2100)
    choice = choose(replace(long, history=100, new_tokens=2000), ON_DRIVES)
    assert (choice.strategy, choice.forks) == ("recompute", False)
    short = replace(long, history=1, new_tokens=8)
    assert 0 < estimate(rates, short)["attend"] - estimate(rates, short)["recompute"] < 0.05
    assert choose(short, ON_DRIVES).strategy == "attend"


def test_the_server_asks_the_same_model(opened, model):
    """With `--active drive`: few stored tokens before many new ones are computed again, many before few are not."""
    asking_is_slow = replace(LOADING_PAYS, attend_token=3.0)
    with opened(model, rates=asking_is_slow, active="drive") as attached:
        finished = PrefixCache(attached.sessions, 1)
        ids = PROMPT[0].tolist()
        with torch.no_grad():
            model(PROMPT[:, :100], past_key_values=(cache := finished.take(Request(tuple(ids[:100]))).cache))
        finished.put(ids[:100], cache)
        for new_tokens, cached, strategy in ((1, 99, "attend"), (51, 0, "recompute")):
            taken = finished.take(Request(tuple(ids[: 99 + new_tokens]), new_tokens=4))
            assert (taken.cache.get_seq_length(), taken.resume) == (cached, strategy)
            finished.drop(taken.cache)
        assert finished.take(Request(tuple(prompts(1, 20, seed=5)[0].tolist()))).resume == "none"
        figures = finished.figures()
        assert (figures["attends"], figures["recomputes"]) == (1, 1)
    with opened(model, active="drive") as attached:
        costs = attached.sessions.costs
        costs._file, costs._rates = StoredRates(None), None
        assert attached.sessions.cache(PROMPT).get_seq_length() == 100  # nothing is measured for it
        assert not costs.known


def test_the_read_buffer_is_that_of_attention_store():
    rates = Rates(0.01, 0, 0.01, 0, 1e-6, 0, 0, 1, 1)
    turn = Turn(history=1000, new_tokens=20, steps=0, bytes=1_000_000, layers=4)
    assert read_buffer(rates, turn) == pytest.approx(1e6 * (1.0 - 0.2))
    assert read_buffer(rates, replace(turn, new_tokens=100)) == 0


def test_rates_are_measured_once_and_stored_beside_the_drive(opened, model, tmp_path):
    with opened(model) as attached:
        attached.sessions.costs._rates = None
        (tmp_path / "0.kv.costs").unlink()
        rates = attached.sessions.costs.rates
        assert all(0 <= value < 10 for value in vars(rates).values())
        assert rates.token > 0
        assert rates.load_byte > 0
        assert attached.drives[0].sessions() == set()
        commands = attached.drives[0].stats().commands
        again = Costs(tmp_path / "0.kv.costs", attached.sessions.costs._key, attached.rates.resuming)
        assert again.rates == rates
        assert attached.drives[0].stats().commands == commands
        (tmp_path / "0.kv.costs").write_text("{damaged")
        assert Costs(tmp_path / "0.kv.costs", "key", lambda: LOADING_PAYS).rates == LOADING_PAYS


# ---- loading ----


@pytest.mark.parametrize("drives", [pytest.param(1, marks=pytest.mark.slow), 2])
def test_layers_are_read_in_order_once(opened, model, save, expected, drives):
    tokens = save(drives=drives)
    with opened(model, drives=drives) as attached:
        cache = attached.sessions.cache(tokens)
        more = greedy(model, tokens, 20, past_key_values=cache)
        assert torch.equal(more, expected[:, :190])
        for drive in attached.drives:
            read = [(layer, kind) for layer, kind, *_ in drive.reads]
            assert read == [(layer, kind) for layer in range(LAYERS) for kind in (0, 1)]
            assert sum(room for *_, room in drive.reads) == 169 * LAYERS * LAYER_TOKEN // drives
            assert drive.stats().attention_jobs <= 3  # labels that the store compares
        assert attached.sessions.stats.loads == 1


def test_the_read_buffer_bounds_what_is_read_ahead(opened, model, save):
    """With the model stopped in front of layer 0, only the layers that the buffer has room for are asked for."""
    tokens = save()
    layer = 169 * LAYER_TOKEN
    slow = replace(LOADING_PAYS, load_byte=1e-4)
    for room in (0, 2 * layer, 4 * layer + 1, 100 * layer):
        with opened(model, rates=slow, memory=MemoryOptions(read_buffer=room)) as attached:
            cache = attached.sessions.cache(tokens)
            attached._storage.backing.queues[0].run(lambda target: None)  # behind what was asked for
            read = {layer for layer, *_ in attached.drives[0].reads}
            plan = cache.batch.placement.plan
            assert plan.buffer_bytes <= room
            allowed = max(1, min(LAYERS, plan.buffer_bytes // layer))
            assert read == set(range(allowed))
            assert cache.batch.placement.loading.stats().peak_bytes == allowed * layer
            with torch.no_grad():
                model(tokens[:, -1:], past_key_values=cache)
            assert attached.sessions.stats.loaded_bytes == LAYERS * layer


def test_a_history_that_does_not_fit_memory_stays_on_the_drive(opened, model, save, expected):
    tokens = save()
    with opened(model, memory=MemoryOptions(bytes=1000)) as attached:
        cache = attached.sessions.cache(tokens)
        assert cache.batch.listener.strategy == "attend"
        assert torch.equal(greedy(model, tokens, 20, past_key_values=cache), expected[:, :190])
        assert attached.drives[0].reads == []


# ---- slow drives ----


def test_a_drive_slowed_down_is_computed_again(opened, model, save, expected):
    """The rate is measured on the drive that is 50 times slower: nothing is read, and nothing is written twice."""
    clock = VirtualClock()
    tokens = save()
    slow = replace(DISK, load_byte=50 * DISK.load_byte)
    with opened(model, rates=slow, slowed=50, clock=clock) as attached:
        cache = attached.sessions.cache(tokens)
        assert cache.batch.listener.strategy == "recompute"
        assert cache.get_seq_length() == 0
        written = attached.drives[0].stats().host_bytes_in
        with torch.no_grad():
            model(tokens[:, :100], past_key_values=cache)
            model(tokens[:, 100:169], past_key_values=cache)
        assert attached.drives[0].reads == []
        assert attached.drives[0].stats().host_bytes_in - written < 169 * LAYER_TOKEN  # K and V are there already
        assert torch.equal(greedy(model, tokens, 20, past_key_values=cache), expected[:, :190])
        assert clock.seconds == 0
        assert attached.sessions.stats.recomputes == 1
    with opened(model) as attached:
        assert attached.sessions.cache(expected[:, :190]).get_seq_length() == 189


def test_a_session_that_takes_too_long_to_open_is_left_alone(opened, model, save, expected):
    """Computing everything again takes 0.17 s, opening the session 1 s: the index is asked, and no drive."""
    tokens = save()
    with opened(model, rates=replace(DISK, open=1.0)) as attached:
        commands = attached.drives[0].stats().commands
        cache = attached.sessions.cache(tokens)
        assert attached.drives[0].stats().commands == commands
        assert (cache.batch.listener.strategy, cache.get_seq_length()) == ("recompute", 0)
        assert torch.equal(greedy(model, tokens, 20, past_key_values=cache), expected[:, :190])
        assert attached.sessions.stats.recomputes == 1


def test_a_late_load_is_given_up(opened, model, save, expected, monkeypatch):
    """The drive has become 50 times slower since its rate was measured. That is no failure, of which few are mended."""
    monkeypatch.setattr("kvdrive.plugins.call._RECOVERIES", 0)
    clock = VirtualClock()
    tokens = save()
    with opened(model, rates=DISK, slowed=50, clock=clock) as attached:
        attached.sessions.costs.clock = clock.now
        cache = attached.sessions.cache(tokens)
        assert cache.batch.listener.strategy == "load"
        more = greedy(model, tokens, 20, past_key_values=cache)
        assert torch.equal(more, expected[:, :190])
        assert cache.batch.listener.strategy == "recompute"
        assert attached.sessions.stats.late_loads == 1
        assert len(attached.drives[0].reads) < 2 * LAYERS
        recompute = DISK.prefill(0, 169)
        one_layer = 50 * DISK.load_byte * 169 * LAYER_TOKEN
        assert clock.seconds <= 0.05 * recompute + one_layer
        again = attached.sessions.cache(more)  # the rate is known now
        assert again.batch.listener.strategy == "recompute"
    with opened(model) as attached:
        assert attached.sessions.cache(more).get_seq_length() == 189


def test_a_late_load_whose_tokens_cannot_be_computed_loses_the_cache(opened, model, save, monkeypatch):
    clock = VirtualClock()
    tokens = save()
    with opened(model, rates=DISK, slowed=50, clock=clock) as attached, torch.no_grad():
        attached.sessions.costs.clock = clock.now
        cache = attached.sessions.cache(tokens)

        def out_of_memory(*args):
            raise RuntimeError("no memory")

        with monkeypatch.context() as patch:
            patch.setattr(Recovery, "_repeat_one", out_of_memory)
            with pytest.raises(RuntimeError, match="no memory"):
                model(tokens[:, -1:], past_key_values=cache)
        with pytest.raises(TargetError, match="lost its tokens"):
            model(tokens[:, -1:], past_key_values=cache)


def test_other_tokens_than_the_promised_ones_replace_those_on_the_drive(opened, model, save):
    """A cache that is to be computed again gets another text than it was asked for."""
    tokens = save()
    other = torch.cat([PROMPT[:, :70], prompts(1, 80, seed=77)], dim=1)
    with opened(model, rates=replace(DISK, load_byte=1.0)) as attached:
        cache = attached.sessions.cache(tokens)
        assert cache.batch.listener.strategy == "recompute"
        found = greedy(model, other, 20, past_key_values=cache)
        attached.sessions.release(cache)
    with opened(model) as attached, torch.no_grad():
        cache = attached.sessions.cache(found)
        assert cache.get_seq_length() == 169
        fresh = greedy(model, other, 40, past_key_values=attached.cache())
        assert torch.equal(greedy(model, found, 20, past_key_values=cache), fresh)
        assert attached.sessions.cache(tokens).get_seq_length() == 169  # the first session is as it was


# ---- faults ----


def push_to_flash(attached):
    """Store so much beside the sessions that nothing of these waits in the drive's memory any more."""
    rows = np.ones((8, 8192, 128), np.float16)
    attached._storage.backing.queues[0].run(lambda target: Session(target).append(0, abi.KvKind.KEYS, 0, rows))


@pytest.mark.parametrize("after", [0, 5])
def test_lost_data_of_a_load_are_computed_again(opened, model, save, expected, after):
    tokens = save()
    with opened(model) as attached:
        push_to_flash(attached)
        drive = attached.drives[0]
        drive.gate.clear()
        cache = attached.sessions.cache(tokens)
        drive._drive.inject("read_uncorrectable", after=after)
        drive.gate.set()
        assert torch.equal(greedy(model, tokens, 20, past_key_values=cache), expected[:, :190])
        assert attached.recoveries == 1
        assert attached.sessions.stats.lost == 1
    with opened(model) as attached:
        assert attached.sessions.cache(expected[:, :190]).get_seq_length() == 189


@pytest.mark.parametrize("dies", ["while it loads", "while it decodes"])
def test_one_of_three_drives_dies(opened, model, save, expected, dies):
    tokens = save(drives=3)
    with opened(model, drives=3, on_failure="recompute") as attached:
        if dies == "while it loads":
            attached.drives[1].gate.clear()
            cache = attached.sessions.cache(tokens)
            attached.drives[1].close()
            attached.drives[1].gate.set()
            more = greedy(model, tokens, 20, past_key_values=cache)
        else:
            cache = attached.sessions.cache(tokens)
            more = greedy(model, tokens, 5, past_key_values=cache)
            attached.drives[1].close()
            more = greedy(model, more, 20, past_key_values=cache)
        assert torch.equal(more, expected[:, : more.shape[1]])
        assert attached.recoveries >= 1


def test_a_full_drive_ends_saving_and_not_the_text(tmp_path, model, expected, caplog):
    """The drive has no room for the prompt, and no session can leave."""
    ids = prompts(1, 200, seed=3)
    drive = Emulator(tmp_path / "small.kv", "fast", capacity_bytes=300_000)
    with drive, attach(model, drive, active="memory", sessions=True, spill=64) as attached:
        cache = attached.sessions.cache(ids)
        tokens = greedy(model, ids, 20, past_key_values=cache)
        assert "continues in memory" in caplog.text
        assert cache.batch.listener is None
    assert torch.equal(tokens, never_stopped(model, tmp_path, ids, 20))


# ---- saving ----


class ShutDrive(Emulator):
    """A drive that takes no command while the gate is closed."""

    def __init__(self, path):
        super().__init__(path, "fast", capacity_bytes=1 << 26)
        self.gate = threading.Event()
        self.gate.set()

    def submit_many(self, commands):
        self.gate.wait(60)
        return super().submit_many(commands)


def test_the_model_continues_while_a_save_waits(tmp_path, model):
    """Decode steps pass several save points of a drive that does not answer; nothing counts as saved before it does."""
    with ShutDrive(tmp_path / "drive.kv") as drive, attach(model, drive, active="memory", sessions=True) as attached:
        store = attached.sessions
        cache = store.cache(PROMPT)
        tokens = greedy(model, PROMPT, 12, past_key_values=cache)
        cache.batch.listener.wait()
        saved = cache.batch.listener.saved
        drive.gate.clear()
        tokens = greedy(model, tokens, 40, past_key_values=cache)
        assert tokens.shape[1] == 202
        assert cache.batch.listener.saved == saved
        assert store.index.entries()[0].tokens == saved
        drive.gate.set()
        store.release(cache)
        assert store.index.entries()[0].tokens == 201


def test_the_write_buffer_is_bounded(tmp_path, model):
    """A model that is faster than its drive waits when the write buffer is full."""
    room = 4 * 16 * LAYER_TOKEN
    drive, options = ShutDrive(tmp_path / "drive.kv"), MemoryOptions(write_buffer=room)
    with drive, attach(model, drive, active="memory", memory=options) as attached:
        cache = attached.cache()
        tokens = greedy(model, PROMPT, 2, past_key_values=cache)
        cache.batch.synchronize()
        drive.gate.clear()
        decoding = threading.Thread(target=lambda: greedy(model, tokens, 60, past_key_values=cache))
        decoding.start()
        decoding.join(1)
        assert decoding.is_alive()
        assert 0 < cache.batch.transfers._bytes <= room + 16 * LAYER_TOKEN
        drive.gate.set()
        decoding.join(60)
        assert cache.get_seq_length() == 151 + 60


# ---- prefetch ----


def test_waiting_requests_are_prefetched_as_far_as_memory_goes(opened, model, expected):
    texts = [prompts(1, 150, seed=30 + i) for i in range(3)]
    with opened(model) as attached:
        for text in texts:
            with torch.no_grad():
                model(text, past_key_values=(cache := attached.sessions.cache(text)))
            attached.sessions.release(cache)
    two = 2 * 256 * 2 * LAYER_TOKEN * LAYERS  # in float32
    with opened(model, memory=MemoryOptions(bytes=two)) as attached:
        store = attached.sessions
        waiting = [Request(tuple(text[0].tolist()), "", 16) for text in texts]
        store.prefetch.see(waiting)
        attached._storage.backing.queues[0].run(lambda target: None)
        assert sum(room for *_, room in attached.drives[0].reads) == 2 * 149 * LAYER_TOKEN * LAYERS
        cache = store.cache(texts[0], new_tokens=16)
        assert cache.batch.listener.strategy == "load"
        with torch.no_grad():
            model(texts[0][:, -1:], past_key_values=cache)
        store.prefetch.see(waiting[1:])
        assert len(attached.drives[0].sessions()) == 3 + 2  # the stored ones, one that runs, one that is ready
        store.release(cache)
        store.prefetch.see(waiting[1:])
        attached._storage.backing.queues[0].run(lambda target: None)
        assert sum(room for *_, room in attached.drives[0].reads) == 3 * 149 * LAYER_TOKEN * LAYERS
        store.prefetch.see([])  # the clients went away
        assert len(attached.drives[0].sessions()) == 3
        assert store.index.count() == 3


def test_sessions_of_waiting_requests_are_read_into_the_page_cache(tmp_path, model):
    """The drive attends, and keeps up to two of the three sessions in memory."""
    texts = [prompts(1, 150, seed=40 + i) for i in range(3)]
    drive = TimedCpuDrive(tmp_path / "drive.kv", cache_bytes=2 * 149 * LAYERS * LAYER_TOKEN + 100_000)
    with drive, attach(model, drive, sessions=SessionOptions(eviction="queue-aware")) as attached:
        store = attached.sessions
        for text in texts:
            with torch.no_grad():
                model(text, past_key_values=(cache := store.cache(text)))
            store.release(cache)
        waiting = [Request(tuple(text[0].tolist()), "", 16) for text in texts]
        for _ in range(2):  # once is enough
            store.prefetch.see(waiting)
        attached._storage.backing.queues[0].run(lambda target: None)
        read = [layer for layer, *_ in drive.reads]
        assert read == [layer for _ in range(2) for layer in range(LAYERS) for _ in range(2)]
        assert store.evictor.policy.victim(store.index).tokens == 150
        assert len(store.evictor.policy._window) == 3
