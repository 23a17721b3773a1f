"""AttentionStore's evaluation, replayed: a sixth of its 9,000 conversations, which arrive at one a second, and of its
memory and SSD.

The paper does not publish the times between turns and the rates of its decode steps. Here an answer is followed by a
question after 60 s on average, and a step lasts as long as transformers takes to start its kernels on a machine that we
have measured. The GPUs then serve fewer turns a second than arrive: conversations queue, and the time until a session
is read again is that of the queue, whatever people think meanwhile. Turns, lengths and the GPUs' use are from the
paper; nothing is fitted to its results.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from importlib.resources import files
from itertools import pairwise

from kvdrive.study import stated
from kvdrive.study.attention_store.hardware import GB, MODELS, Machine
from kvdrive.study.attention_store.simulation import Result, replay
from kvdrive.study.attention_store.traces import Context, Trace, conversations
from kvdrive.study.stated import remembered

_COUNT, _WARM_UP, _THINK = 9000, 10_000, 60.0
SHARE = 6  # conversations, memory, disk and times between turns are that much less than the paper's


@dataclass(frozen=True)
class Setting:
    """A model with `disk` GB. `policy` "": nothing is kept. `decoupled` False: a cut context is computed again."""

    model: str
    disk: int = 10_000
    policy: str = "queue-aware"
    decoupled: bool = True

    @property
    def name(self) -> str:
        """Unique among the settings."""
        return f"{self.model}, {self.disk} GB, {self.policy or 'nothing kept'}" + ", cut" * (not self.decoupled)


SETTINGS = (
    *(Setting(model) for model in MODELS),
    *(Setting(model, policy="") for model in MODELS),
    *(Setting(model, decoupled=False) for model in MODELS),
    *(Setting("llama-13b", disk, policy) for disk in (10_000, 2000) for policy in ("lru", "fifo")),
    Setting("llama-13b", 2000),
)


@remembered
def trace(window: int, decoupled: bool = True, share: int = 1) -> Trace:
    """The conversations of a model whose context has `window` tokens, 0: without a bound."""
    return conversations(_COUNT // share, 1.0, 1, think=_THINK / share, context=Context(window, decoupled=decoupled))


def run(setting: Setting, share: int = SHARE) -> Result:
    """Counts and times after the warm-up. `share` divides everything that grows with the number of conversations.

    The recorded share takes most of a minute, the whole evaluation several.
    """
    model = MODELS[setting.model]
    machine = Machine(128 * GB // share, setting.disk * GB // share)
    requests = trace(model.window, setting.decoupled, share)
    policy = setting.policy or "lru"
    return replay(requests, model, machine, policy, keep=bool(setting.policy), warm_up=_WARM_UP // share)


def dump(results: dict[Setting, Result], reads: Iterable[str]) -> str:
    """The text of the file that `result` reads. `reads`: the claims whose numbers went into the results."""
    rows = {setting.name: asdict(found) for setting, found in results.items()}
    return json.dumps({"reads": sorted(reads), "results": rows}, indent=1) + "\n"


@remembered
def _recorded() -> dict[str, Result]:
    content = json.loads(files("kvdrive.study.attention_store").joinpath("evaluation.json").read_text())
    stated.read(*content["reads"])
    return {name: Result(**fields) for name, fields in content["results"].items()}


def result(setting: Setting) -> Result:
    """What `python -m kvdrive.study.attention_store.record` has recorded of a setting."""
    return _recorded()[setting.name]


def hit_rate(setting: Setting) -> float:
    """Hits among all requests, in per cent. First turns have nothing to find."""
    found = result(setting)
    return 100 * found.hits / found.requests


def memory_share(setting: Setting) -> float:
    """Hits in memory among all requests, in per cent."""
    found = result(setting)
    return 100 * found.memory_hits / found.requests


def gpu_hours(setting: Setting) -> float:
    """Hours of prefill and decode steps, of all of the paper's conversations."""
    found = result(setting)
    return SHARE * (found.prefill + found.decode) / 3600


def prefill_speedup(model: str) -> float:
    """Prefill time when every prompt is computed whole, over that with the store."""
    return result(Setting(model, policy="")).prefill / result(Setting(model)).prefill


def gpu_speedup(model: str) -> float:
    """The same with the decode steps, which are the same in both."""
    whole, kept = (result(Setting(model, policy=policy)) for policy in ("", "queue-aware"))
    return (whole.prefill + whole.decode) / (kept.prefill + kept.decode)


@remembered
def statistics() -> tuple[float, float, float, float, float]:
    """Of the conversations, without a bound of tokens: per cent with several turns, per cent with more than 2K and 4K
    tokens, mean turns, and the largest per cent of a prompt that its conversation had before."""
    first = trace(0).requests
    turns, lengths, repeated = [], [], 0.0
    for request in first:
        chain = [request]
        while chain[-1].then is not None:
            chain.append(chain[-1].then)
        turns.append(len(chain))
        lengths.append(chain[-1].tokens + chain[-1].output)
        for before, after in pairwise(chain):
            repeated = max(repeated, (before.tokens + before.output) / after.tokens)
    count = len(first) / 100
    several, over_2k, over_4k = (
        sum(flags) / count
        for flags in ((n > 1 for n in turns), (n > 2048 for n in lengths), (n > 4096 for n in lengths))
    )
    return several, over_2k, over_4k, sum(turns) / len(turns), 100 * repeated
