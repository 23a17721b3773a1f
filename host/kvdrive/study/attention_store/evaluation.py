"""AttentionStore's evaluation, replayed: a twelfth of its 9,000 conversations, one a second, and of what they take.

The paper does not publish when turns come, how much room a session takes, or the rates of its decode steps. Two things
here follow from its hit rates of LRU and FIFO with 10 TB (AS-13), which are inputs therefore: turns arrive at random
times, whatever is answered until then, since a conversation that comes back within an hour would be found by any
policy; and a session takes the room of a whole context. A decode step lasts as long as transformers takes to start its
kernels on a machine that we have measured. The GPUs serve fewer turns a second than arrive, so that requests queue.
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
from kvdrive.study.attention_store.traces import Context, Trace, conversations, interleaved
from kvdrive.study.stated import remembered

_COUNT, _WARM_UP = 9000, 10_000
SHARE = 12  # conversations, memory and disk are that much less than the paper's


@dataclass(frozen=True)
class Setting:
    """A model with `disk` and `memory` GB. `policy` "": nothing is kept. `decoupled` False: a cut context is computed
    again."""

    model: str
    disk: float = 10_000
    policy: str = "queue-aware"
    decoupled: bool = True
    memory: float = 128

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


def run(setting: Setting, share: int = SHARE) -> Result:
    """Counts and times after the warm-up. `share` divides everything that grows with the number of conversations.

    Memory is for the next requests' sessions, whatever that number: it is as large as in the paper, if all fits that.
    """
    model = MODELS[setting.model]
    room = (setting.memory + setting.disk) * GB / share
    memory = min(setting.memory * GB, room)
    policy = setting.policy or "lru"
    ahead = policy == "queue-aware"  # the others know nothing of the queue
    machine = Machine(int(memory), int(room - memory), prefetch=ahead, reserved=True)
    requests = _trace(model.window, setting.decoupled, share)
    return replay(requests, model, machine, policy, keep=bool(setting.policy), warm_up=_WARM_UP // share)


@remembered
def _trace(window: int, decoupled: bool, share: int) -> Trace:
    return interleaved(_COUNT // share, 1.0, 1, Context(window, decoupled=decoupled))


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
    first = conversations(_COUNT, 1.0, 1).requests
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
