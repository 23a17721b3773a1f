"""What an option can do for others, and what it needs of them: the words in which `config.table` is written."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from itertools import permutations

from kvdrive.errors import InputError, UnsupportedError


class Ability(Enum):
    """What some options need of others: a description, and the options whose values must all have it.

    "model" stands for the model that is attached.
    """

    EVERY_TOKEN = "attends to every token", "attention"
    SINKS = "serves attention sinks", "attention"
    FORMATS = "stores K and V in 8 or 4 bits", "attention", "xcache"
    ON_DRIVE = "the drive attends to running sequences", "active"
    LOADING = "sessions are loaded into memory", "active"
    REMOVAL = "tokens can be removed from a sequence", "attention", "active", "xcache", "model"
    KEEPING = "sequences can be kept beyond the process", "attention"
    PARTS = "a batch is computed in parts", "attention", "weights", "assistant", "model"
    DRAFTS = "drafted tokens can be verified and removed", "attention", "overflow"
    ANY_DEVICE = "any device computes the model", "weights"
    ROUNDING = "matrices are rounded when they are loaded", "weights"
    MATRICES = "projections are matrices of numbers", "dtype"
    FILE = "weights are in a file of their own", "weights"
    SPARSE = "neurons can be left out", "weights"
    BETWEEN_CALLS = "projections can be used outside of their layer's call", "weights"
    COMPUTING = "the drive that holds the weights computes", "weights"
    IMAGE = "loads an FPGA image", "target"
    FLASH_MODEL = "models the time of flash", "target"
    FOLDER = "its files are in a folder of this machine", "target"
    COUNT = "makes as many drives as are wanted", "target"
    HOST_NAME = "asks who this host is", "target"
    PAGE_CACHE = "reads through the page cache", "target"
    OWN_MEMORY = "takes memory of this process", "target"
    STAYING = "what the drive holds stays", "folder"
    FORGETTING = "what the drive held before is not needed", "weights"

    @property
    def asked(self) -> tuple[str, ...]:
        """The options that must have it."""
        return tuple(map(str, self.value[1:]))


@dataclass(frozen=True)
class Part:
    """A value of an option, or any value but the default (""); a value with spaces is a description.

    `requires`: the abilities that it needs, each with the reason. `lacks`: why it does not have an ability, where that
    says more than the other's reason. What is not in `provides` is not there.
    """

    option: str
    value: str = ""
    provides: frozenset[Ability] = frozenset()
    requires: Mapping[Ability, str] = field(default_factory=dict)
    lacks: Mapping[Ability, str] = field(default_factory=dict)

    def __str__(self) -> str:
        if self.option == "model" or " " in self.value:
            return self.value
        return f"`{self.option}={self.value}`" if self.value else f"`{self.option}`"


@dataclass(frozen=True)
class Conflict:
    """`a` and `b` exclude each other. `change`: what to do, as the end of a sentence."""

    a: Part
    b: Part
    reason: str
    change: str

    def __str__(self) -> str:
        return f"{self.a} does not go with {self.b}: {self.reason}; {self.change}"


class ConflictError(UnsupportedError, InputError):
    """Options that exclude each other, or that the model excludes."""

    def __init__(self, conflict: Conflict) -> None:
        super().__init__(str(conflict))
        self.conflict = conflict

    def __reduce__(self) -> tuple[type[ConflictError], tuple[Conflict]]:
        return ConflictError, (self.conflict,)


def conflicts(parts: Iterable[Part], known: Iterable[Part] = ()) -> Iterator[Conflict]:
    """What excludes each other among `parts`; `known`: all values of options, from which others are proposed."""
    for a, b in permutations(parts, 2):
        for ability, reason in a.requires.items():
            if b.option in ability.asked and ability not in b.provides:
                others = [str(one) for one in known if one.option == b.option and ability in one.provides]
                yield Conflict(a, b, b.lacks.get(ability, reason), _change(a, b, others))


def _change(a: Part, b: Part, others: list[str]) -> str:
    """What to do about a conflict; `others`: what to take in place of `b`."""
    without = f"leave {a} out"
    if b.option == "model":
        return without
    instead = f"take {' or '.join(others)}" if others else f"leave {b} out"
    return instead if a.option == "model" else f"{instead}, or {without}"
