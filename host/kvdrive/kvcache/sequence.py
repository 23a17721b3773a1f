"""The rows of one sequence as drives store them: the contract between a batch and what stores its rows.

A batch (`kvcache.batch`) has one `Sequence` for each of its rows. There are two: K and V on drives (`drive_sequence`),
and the layers' inputs on drives, from which K and V are computed again (`xcache.sequence`). Rows that run in memory
are stored in one of them as well (`memory`).

Who calls: the thread that computes the model. The work for a drive is done by that drive's thread, in the order in
which it was started, so that a call sees the effects of all calls before it.

What blocks: `append`, `truncate`, `trim` and `close` start work and return; a future says when it is done.
`endpoints`, `note` and `prepare` wait for nothing. `read`, `remove`, `fork` and `erase` return when it is done.

What is durable: nothing before `Backing.flush` returns. Then a crash loses nothing of what had been appended, removed
or truncated before.

An implementer

1. keeps layers apart: between calls of the model they have equally many tokens, during a call they may differ;
2. gives back the numbers that were appended, bit for bit, in whatever form it stores them;
3. counts KV heads as the model does, however many drives share them;
4. raises CommandError where a drive refuses, TargetError where it cannot be reached, and leaves it to the caller to
   undo the call of the model.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from collections.abc import Sequence as Several
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from kvdrive import abi
from kvdrive.kvcache.scaling import Exponents
from kvdrive.kvcache.session import Query
from kvdrive.kvcache.slices import Sent, Slice
from kvdrive.nvme.commands import AttentionOutput, Halves
from kvdrive.targets.queue import WorkQueue

Answer = Callable[[Any, Several[Query]], list[AttentionOutput]]


@dataclass(frozen=True)
class Endpoint:
    """Where queries of KV heads `first` to `last` - 1 of a row are answered: `answer(queue.target, queries)`, in the
    thread of `queue`. A query names `session`.
    """

    queue: WorkQueue[Any]
    session: Any
    first: int
    last: int
    answer: Answer


class Sequence(ABC):
    """See above. `slices`: its parts on the drives."""

    slices: list[Slice]

    @abstractmethod
    def append(self, layer: int, first_token: int, k: Halves, v: Halves, worked: Callable[[float], None]) -> Sent:
        """K and V [heads, tokens, d] of a layer, behind its first `first_token` tokens.

        `worked` is called for each slice with the seconds that it took, in the thread of its drive.
        """

    @abstractmethod
    def endpoints(self) -> list[Endpoint]:
        """Who attends: where queries of each KV head are answered, over the tokens that were appended."""

    @abstractmethod
    def read(self, layer: int, tokens: int, head_dim: int) -> tuple[Halves, Halves]:
        """K and V [heads, tokens, d] of a layer's first `tokens` tokens."""

    @abstractmethod
    def truncate(self, tokens: int, *, stored: bool = True) -> list[Future[None]]:
        """Remove all but the first `tokens` tokens, 1 at least, from every layer.

        `stored` False: they were pending, the drives have none of them.
        """

    @abstractmethod
    def trim(self, tokens: int) -> list[Future[None]]:
        """Remove all but the first `tokens` tokens from the drives, 0 removes the sequence. What the host knows of
        pending tokens stays: a call that failed has been undone, and its rows arrived later.
        """

    @abstractmethod
    def remove(self, removed: range, before: int, layers: int) -> None:
        """Remove the tokens `removed`, whole groups behind the first one, from the layers below `layers`.

        `before`: tokens that these layers have. Raises UnsupportedError where that cannot be.
        """

    @abstractmethod
    def fork(self, tokens: int = abi.MAX_TOKENS) -> Sequence:
        """A new, independent sequence that begins with the same `tokens` tokens. Drives copy nothing."""

    @abstractmethod
    def close(self) -> list[Future[None]]:
        """Remove the sequence and free its space. It may be appended to again, as an empty one."""

    @abstractmethod
    def erase(self) -> None:
        """Remove the sequence and erase its bytes from the drives' files."""

    @abstractmethod
    def note(
        self,
        layer: int,
        first: int,
        x: torch.Tensor,
        positions: NDArray[np.int64],
        exponents: tuple[Exponents, Exponents],
    ) -> None:
        """The inputs x [tokens, width] of tokens that a layer is about to get, from number `first` on.

        `positions` [tokens]; `exponents` of the scales of K and of V, [heads] each. Only with X-cache.
        """

    @abstractmethod
    def prepare(self, layer: int) -> None:
        """Queries of this layer come next: begin what takes time. Errors are raised by the answers."""

    @property
    def needs_model(self) -> bool:
        """True if the rows mean nothing without the model that computed them, as it was then."""
        return False
