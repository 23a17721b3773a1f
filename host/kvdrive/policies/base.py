"""The interface of attention policies. A policy chooses the tokens that a decode step attends to.

A policy runs in one of two places. The drive runs a `policies.drive.DrivePolicy`: the policy fills the fields of an
attention command. The host runs a `policies.host.HostPolicy`: the policy makes the layers of a cache, and they hold K
and V in this process.

A policy has no state beside its parameters, so one object serves any number of sequences, layers and threads.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import TYPE_CHECKING, ClassVar

from kvdrive.config.abilities import Ability
from kvdrive.errors import InputError

if TYPE_CHECKING:
    from transformers.cache_utils import CacheLayerMixin


class Policy(ABC):
    """Attention at a compression `ratio`, in (0, 1]: the share of K and V that is used; 1 is exact attention.

    `name` is the policy's name in `policies.registry`; `in_drive` says where it runs. `provides`: what it can do
    (`config.abilities`); `lacks`: why it cannot do something else. `append_options`: bits of abi.AppendOption that
    every append of a session must carry. `measures_unread`: the answers say which share of the softmax was probably
    not read.
    """

    name: ClassVar[str]
    in_drive: ClassVar[bool]
    provides: ClassVar[frozenset[Ability]] = frozenset()
    lacks: ClassVar[Mapping[Ability, str]] = {}
    append_options: ClassVar[int] = 0
    measures_unread: ClassVar[bool] = False

    def __init__(self, ratio: Fraction = Fraction(1)) -> None:
        if not 0 < ratio <= 1:
            raise InputError(f"the compression ratio {ratio} is outside (0, 1]: write it as 1/8 or 0.125")
        self.ratio = ratio

    @property
    def label(self) -> str:
        """The ratio and what else distinguishes policies of the same name, for tables."""
        return str(self.ratio)

    @property
    def identity(self) -> str:
        """As `label`, but different for any two policies of the same name that may answer differently."""
        return self.label

    def fitted(self, fingerprint: Callable[[], bytes]) -> Policy:
        """This policy for one model; itself where it serves all models alike. `attach` calls this once.

        `fingerprint` makes the model's identity (identity/model.py), with the format of its K and V. Raises InputError.
        """
        return self

    def new_layer(self) -> CacheLayerMixin | None:
        """An empty layer of a cache, if the policy holds K and V in this process; None: drives hold them."""
        return None

    @abstractmethod
    def bytes_needed(self, tokens: int, head_dim: int, row_bytes: int) -> int:
        """Bytes of K and V that one step needs of one KV head with `tokens` tokens, if single rows could be read.

        `row_bytes`: of a stored row of K or V.
        """


def share(count: int, ratio: Fraction) -> int:
    """`ratio` of `count`, rounded to nearest and at least 1."""
    return max(1, int(count * ratio + Fraction(1, 2)))
