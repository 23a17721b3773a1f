"""A scheduler in the test's own process, without HTTP: requests are tokens."""

import queue
import threading
from collections import defaultdict
from functools import partial

import torch
from small_models import SMALL, random_model
from transformers import LlamaConfig

from kvdrive.config.run import RunConfig
from kvdrive.generation.checkpoints import Checkpoint
from kvdrive.generation.rules import Rules
from kvdrive.generation.sampling import GREEDY
from kvdrive.server.drafts import no_drafts
from kvdrive.server.jobs import End, Job, Limits, Token
from kvdrive.server.metrics import Metrics
from kvdrive.server.scheduler import Scheduler
from kvdrive.server.transformers_engine import open_engine
from kvdrive.targets.opening import DriveOptions, open_drives

LONG = SMALL | {"max_position_embeddings": 4096}


class Requests:
    """A scheduler on a drive in this process. `order` has the name of the request of each new token."""

    def __init__(self, config=None, attention=None, drives=1, sessions=None, drafts=no_drafts, **limits):
        self.model = random_model(config or LlamaConfig(**LONG, num_key_value_heads=2))
        checkpoint = Checkpoint("tiny", None, self.model, None)
        opened = open_drives(DriveOptions(drives=drives, capacity_bytes=1 << 26))
        self.metrics = Metrics()
        limits = Limits(20_000, **limits)
        engine = open_engine(checkpoint, opened, attention or RunConfig(), limits.idle, 1, sessions)
        self.scheduler = Scheduler(engine, limits, self.metrics, drafts)
        self._ends_of_text = checkpoint.stop_ids
        self.order, self.ends = [], {}
        self._ends = queue.Queue()
        self._came = threading.Condition()
        self.tokens, self.chances = defaultdict(list), defaultdict(list)

    def __enter__(self):
        self.scheduler.start()
        return self

    def __exit__(self, *error):
        self.scheduler.stop()

    def ask(self, name, prompt, new_tokens, sampling=GREEDY, **fields):
        rules = Rules(ends=self._ends_of_text)
        job = Job(prompt, new_tokens, sampling, partial(self.note, name), **({"rules": rules} | fields))
        self.scheduler.submit(job)
        return job

    def note(self, name, event):
        with self._came:
            if isinstance(event, Token):
                self.order.append(name)
                self.tokens[name].append(event.number)
                self.chances[name].append(event.chances)
            elif isinstance(event, End):
                self.ends[name] = event
            self._came.notify()

    def wait(self, ready):
        with self._came:
            assert self._came.wait_for(ready, 60)

    def all_of(self, names):
        self.wait(lambda: all(name in self.ends for name in names))
        assert all(self.ends[name].error is None for name in names), self.ends
        return [self.tokens[name] for name in names]

    def metric(self, name):
        lines = self.metrics.text().decode().splitlines()
        return sum(float(line.split()[-1]) for line in lines if line.startswith((name + " ", name + "{")))


def prompt(tokens, seed):
    return torch.randint(2, 300, (tokens,), generator=torch.Generator().manual_seed(seed)).tolist()
