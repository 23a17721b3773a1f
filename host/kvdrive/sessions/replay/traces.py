"""Traces: read from files, or generated with the published statistics of conversations and arrivals."""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from kvdrive.errors import InputError

MOONCAKE_BLOCK = 512  # tokens
BLOCK = 64


@dataclass(frozen=True)
class Request:
    """A prompt of `tokens` tokens that arrives after `seconds`; `keys` name its whole blocks and all before them.

    `output` tokens are generated. `kept`: the keys of what is kept afterwards. `turn`: from 0 on; later ones have
    history. `common`: its first tokens, which every request of the trace has.
    """

    seconds: float
    keys: tuple[int, ...]
    tokens: int
    output: int
    kept: tuple[int, ...]
    turn: int = 0
    common: int = 0


@dataclass(frozen=True)
class Trace:
    """Requests in the order of arrival, with blocks of `block` tokens. `name` says where they come from."""

    name: str
    block: int
    requests: list[Request] = field(repr=False)


def read(path: Path, limit: int = 0, stretch: float = 1.0) -> Trace:
    """A file of JSON lines with timestamp (ms), input_length, output_length and hash_ids of blocks of 512 tokens each.

    This is Mooncake's format. `limit`: read so many requests at most, 0: all. `stretch`: time goes so many times
    slower. All requests begin with the same block, which is no history. Raises InputError.
    """
    requests: list[Request] = []
    seen: set[int] = set()
    try:
        with path.open() as lines:
            for number, line in enumerate(lines):
                if limit and number == limit:
                    break
                row = json.loads(line)
                keys = tuple(int(key) for key in row["hash_ids"])
                tokens, output = int(row["input_length"]), int(row["output_length"])
                turn = int(bool(seen.intersection(keys[1:2])))
                seen.update(keys[1:2])
                seconds = float(row["timestamp"]) / 1000 * stretch
                requests.append(Request(seconds, keys, tokens, output, keys, turn, MOONCAKE_BLOCK))
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}") from error
    except (ValueError, KeyError, TypeError) as error:
        fields = "timestamp, input_length, output_length and hash_ids"
        raise InputError(f"line {len(requests) + 1} of {path} is no request: it needs {fields}") from error
    return Trace(path.name, MOONCAKE_BLOCK, sorted(requests, key=lambda request: request.seconds))


def conversations(count: int, rate: float, seed: int, arrivals: str = "poisson") -> Trace:
    """Conversations like ShareGPT's: 73 % have several turns, 5.75 on average; 47 % exceed 2K tokens, 30 % exceed 4K.

    `rate`: new conversations a second. `arrivals`: "poisson", or "azure": bursts, by gaps with a coefficient of
    variation of 4. Between an answer and the next question lie 20 s at least and 60 s on average.
    """
    rng = random.Random(seed)
    gap = _GAPS[arrivals]
    begin, requests = 0.0, list[Request]()
    for number in range(count):
        begin += gap(rng, rate)
        requests += _conversation(rng, number, seed, begin)
    return Trace(f"{count} conversations, {arrivals}", BLOCK, sorted(requests, key=lambda request: request.seconds))


def _conversation(rng: random.Random, number: int, seed: int, begin: float) -> Iterator[Request]:
    turns = 1 if rng.random() > 0.73 else 2 + min(int(rng.expovariate(1 / 5.5)), 60)  # mean 0.27 + 0.73 * 7.5 = 5.75
    history, now, keys = 0, begin, list[int]()
    for turn in range(turns):
        question = max(1, int(rng.lognormvariate(4.6, 1.1)))
        answer = max(1, int(rng.lognormvariate(5.6, 0.8)))
        tokens = history + question
        _extend(keys, tokens, seed, number)
        prompt = tuple(keys)
        history = tokens + answer
        _extend(keys, history, seed, number)
        yield Request(now, prompt, tokens, answer, tuple(keys), turn)
        now += 20 + rng.expovariate(1 / 40)


def _extend(keys: list[int], tokens: int, seed: int, number: int) -> None:
    while (len(keys) + 1) * BLOCK <= tokens:
        digest = hashlib.sha256(f"{seed}/{number}/{len(keys)}".encode()).digest()
        keys.append(int.from_bytes(digest[:8], "little") >> 1)


def _poisson(rng: random.Random, rate: float) -> float:
    return rng.expovariate(rate)


def _azure(rng: random.Random, rate: float) -> float:
    shape = 1 / 16  # of a gamma distribution whose coefficient of variation is 4
    return rng.gammavariate(shape, 1 / (rate * shape))


_GAPS: dict[str, Callable[[random.Random, float], float]] = {"poisson": _poisson, "azure": _azure}
ARRIVALS = tuple(_GAPS)
