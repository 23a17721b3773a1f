"""Traces: read from files, or generated with the published statistics of conversations and arrivals."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

from kvdrive.errors import InputError
from kvdrive.study import stated

MOONCAKE_BLOCK = 512  # tokens
_CUTS = 1 << 16  # more than a context is cut


@dataclass(frozen=True)
class Request:
    """A prompt of `tokens` tokens; `keys` name its whole blocks and all before them, or the session that it goes on
    with. `output` tokens are generated.

    It arrives `seconds` after the trace begins; one that another names as `then` arrives `seconds` after that one has
    ended. `kept`: the keys of what is kept afterwards; of a whole session, it has `stored` tokens. `turn`: from 0 on;
    later ones have history. `common`: its first tokens, which every request of the trace has. `replaces`: the key of a
    kept session that is worth nothing from now on, 0: none but what `kept` goes on with. `conversation`: its number,
    from 1 on; no request starts before the one before it in its conversation has ended. 0: it is in none.
    """

    seconds: float
    keys: tuple[int, ...]
    tokens: int
    output: int
    kept: tuple[int, ...]
    turn: int = 0
    common: int = 0
    replaces: int = 0
    stored: int = 0
    conversation: int = 0
    then: Request | None = field(default=None, repr=False)


@dataclass(frozen=True)
class Trace:
    """Requests that no other names as `then`, in the order of arrival. `name`: where it is from.

    `block`: tokens of a block; 0: what is kept are whole sessions, of one key each.
    """

    name: str
    block: int
    requests: list[Request] = field(repr=False)

    def __iter__(self) -> Iterator[Request]:
        """All requests."""
        for first in self.requests:
            request: Request | None = first
            while request is not None:
                yield request
                request = request.then


@dataclass(frozen=True)
class Context:
    """The model's window of `tokens`, 0: without a bound. What exceeds it is cut: the oldest `ratio` of the window.

    `decoupled`: what is left stays valid, because positions are not stored in K; else it is computed again.
    """

    tokens: int = 0
    ratio: float = 0.5
    decoupled: bool = True


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


def conversations(
    count: int, rate: float, seed: int, arrivals: str = "poisson", think: float = 60.0, context: Context = Context()
) -> Trace:
    """Conversations like ShareGPT's: 73 % have several turns, 5.75 on average; 47 % exceed 2K tokens, 30 % exceed 4K.

    `rate`: new conversations a second. `arrivals`: "poisson", or "azure": bursts, by gaps with a coefficient of
    variation of 4. Between an answer and the next question lie `think` seconds on average, a third of it at least.
    """
    stated.read("AS-01", "AS-02", "AS-03")  # the numbers of `_conversation` are fitted to these
    rng = random.Random(seed)
    gap = _GAPS[arrivals]
    begin, requests = 0.0, list[Request]()
    for number in range(count):
        begin += gap(rng, rate)
        requests.append(_conversation(rng, number, begin, think, context))
    return Trace(f"{count} conversations, {arrivals}", 0, requests)


def interleaved(count: int, rate: float, seed: int, context: Context = Context()) -> Trace:
    """The same conversations; their turns arrive at random times, whatever the machine has answered until then.

    `rate`: conversations over the time in which all turns arrive.
    """
    stated.read("AS-13")  # why turns come so, and not soon after an answer: LRU and FIFO would lose nothing
    rng = random.Random(seed + 1)
    requests = list[Request]()
    for first in conversations(count, rate, seed, context=context).requests:
        turns = list(Trace("", 0, [first]))
        times = sorted(rng.uniform(0, count / rate) for _ in turns)
        requests += [replace(turn, seconds=seconds, then=None) for turn, seconds in zip(turns, times, strict=True)]
    return Trace(f"{count} conversations, interleaved", 0, sorted(requests, key=lambda request: request.seconds))


@dataclass
class _Turn:
    history: int  # tokens that the prompt begins with
    question: int
    answer: int
    cuts: int  # how often the context was cut so far
    pause: float

    @property
    def tokens(self) -> int:
        return self.history + self.question + self.answer


def _conversation(rng: random.Random, name: int, begin: float, think: float, context: Context) -> Request:
    turns = 1 if rng.random() > 0.73 else 2 + min(int(rng.expovariate(1 / 6)), 60)  # mean 0.27 + 0.73 * 7.5 = 5.75
    window = context.tokens or 10**9
    history, cuts, pause, parts = 0, 0, begin, list[_Turn]()
    for _ in range(turns):
        question = min(max(1, int(rng.lognormvariate(4.6, 1.1))), window // 2)
        answer = min(max(1, int(rng.lognormvariate(5.6, 0.8))), window // 4)
        while history and history + question + answer > window:
            history, cuts = max(0, history - int(window * context.ratio)), cuts + 1
        parts.append(_Turn(history, question, answer, cuts, pause))
        history += question + answer
        pause = think / 3 + rng.expovariate(1.5 / think)
    request = None
    for turn in range(turns - 1, -1, -1):  # the last turn first: each names the next one
        request = _turn(name, turn, parts, request, context)
    assert request is not None
    return request


def _turn(name: int, turn: int, parts: list[_Turn], then: Request | None, context: Context) -> Request:
    part = parts[turn]
    after = parts[turn + 1] if then is not None else part
    left = after.history if context.decoupled and after.cuts > part.cuts else part.tokens
    before = parts[turn - 1] if turn else part
    again = not context.decoupled and before.cuts < part.cuts  # what was kept is worth nothing now
    return Request(
        part.pause,
        (_key(name, part.cuts, context),),
        part.history + part.question,
        part.answer,
        (_key(name, part.cuts, context),),
        turn,
        replaces=_key(name, before.cuts, context) if again else 0,
        stored=left,
        conversation=name + 1,
        then=then,
    )


def _key(name: int, cuts: int, context: Context) -> int:
    """Of a conversation's session, after so many cuts."""
    return name * _CUTS + (0 if context.decoupled else cuts) + 1


def _poisson(rng: random.Random, rate: float) -> float:
    return rng.expovariate(rate)


def _azure(rng: random.Random, rate: float) -> float:
    shape = 1 / 16  # of a gamma distribution whose coefficient of variation is 4
    return rng.gammavariate(shape, 1 / (rate * shape))


_GAPS: dict[str, Callable[[random.Random, float], float]] = {"poisson": _poisson, "azure": _azure}
