"""The options of a run: which model, on which drive, with which policy, in which place, and for how long.

Each option is a field with its explanation, from which commands make their flags (`config.option`).
"""

from __future__ import annotations

from dataclasses import Field, dataclass, field, fields, replace
from fractions import Fraction
from typing import Any, Literal, get_args

from kvdrive.choices import DTYPES, KV_FORMATS, Active, OnFailure, explained
from kvdrive.config.option import Needs, option
from kvdrive.config.sizes import bytes_of, count_or_auto, share_or_auto
from kvdrive.errors import InputError
from kvdrive.kvcache.budget import MemoryOptions
from kvdrive.kvcache.overflow import Overflow
from kvdrive.policies import POLICIES, Policy, make_policy, parse_ratio
from kvdrive.prefix.options import SessionOptions
from kvdrive.targets.options import DriveOptions
from kvdrive.weights.options import FlashOptions

Share = float | Literal["auto"]  # of a batch's sequences
Count = int | Literal["auto"]


def one_of(name: str, value: object, known: tuple[object, ...]) -> None:
    """Raises InputError for a `value` of the option `name` that is none of `known`."""
    if value not in known:
        raise InputError(f"{name} is {' or '.join(map(repr, known))}, not {value!r}")


@dataclass(frozen=True)
class ModelOptions:
    """The model, and what computes it."""

    model: str = option(
        "mini",
        "folder of a Hugging Face checkpoint, a .gguf file, or a name: mini, mini_relu, smollm2, gemma3-270m",
        short="m",
    )
    dtype: str = option(
        "float32",
        "precision of the weights; auto: as stored; int8: bfloat16 with matrices rounded to 8 bits, for faster steps "
        "with other tokens",
        choices=tuple(DTYPES),
    )
    device: str = option("cpu", "what computes the model, as torch names it: cpu, cuda, cuda:1, mps")
    assistant: str = option(
        "",
        "a small model with the same vocabulary, named as `model`: it drafts tokens, and one call of the model "
        "verifies all of them. The tokens stay the same",
    )

    def __post_init__(self) -> None:
        one_of("dtype", self.dtype, DTYPES)


@dataclass(frozen=True)
class PolicyOptions:
    """What a decode step attends to. A `ratio` of None reads everything; `attention` may be a policy object."""

    attention: str | Policy = option(
        "exact",
        explained({name: entry.summary for name, entry in POLICIES.items()}),
        short="a",
        read=str,
        metavar=f"[{'|'.join(POLICIES)}]",
    )
    ratio: Fraction | None = option(
        None,
        "share of K and V that a policy other than exact and auto uses, as 1/8; they need it",
        short="r",
        read=lambda text: parse_ratio(text) if text else None,
        typed="",
        needs=Needs("a policy other than exact", lambda given: given["attention"] != "exact"),
    )
    unit: int = option(0, "tokens that policy groups reads or leaves out together: 16, 32, 64, 128; 0: 32")
    unread: float = option(
        0.0,
        "policy groups reads more than `ratio` until it leaves at most this share of each head's softmax unread, by "
        "the index's estimate; 0: it does not",
        low=0,
        high=0.999,
    )

    def policy(self) -> Policy:
        """The policy that the options describe. Raises InputError."""
        given = {name: value for name, value in (("unit", self.unit), ("unread", self.unread)) if value}
        if isinstance(self.attention, str):
            return make_policy(self.attention, self.ratio or Fraction(1), **given)
        if self.ratio is not None or given:
            raise InputError("a policy object has parameters of its own: leave ratio, unit and unread out")
        return self.attention


@dataclass(frozen=True)
class Placement:
    """Where K and V of running sequences are, and in which form. docs/guide/long-contexts.md explains the fields.

    `active` "memory": sequences are in memory as far as `memory` allows, for the model's own attention; the drives keep
    them, and a stored session is loaded layer by layer. "auto" stands for "memory" if `memory` has a bound.
    """

    active: Active = option(
        "drive",
        "drive: it attends to K and V where they are; memory: running sequences are in memory, the drive keeps them, "
        "and the model's own attention reads them; auto: memory if `memory` is given",
        choices=("auto", "drive", "memory"),
        typed="auto",
    )
    memory: MemoryOptions = option(
        MemoryOptions,
        "for K and V of running sequences; those that do not fit are attended to in the drive; K, M, G, T; 0 with "
        "`active=memory`: what a GPU has free; no bound in the host's memory",
        short="M",
        read=lambda text: MemoryOptions(bytes_of(text)),
        typed="0",
        needs=Needs("`active=memory` or auto", lambda given: given["active"] != "drive"),
    )
    session_memory: int = option(
        0,
        "for copies of idle sessions in memory: the next turn loads them from there instead of from the drives. The "
        "drives have them as well; K, M, G, T; 0: none",
        read=bytes_of,
        typed="0",
        needs=Needs("`active=memory` or auto", lambda given: given["active"] != "drive"),
    )
    xcache: Share = option(
        0.0,
        "share of the sequences of which the drives keep layer inputs instead of K and V, 0 to 1: fewer bytes are "
        "written, and the host rebuilds K and V; auto: the share that is fastest here",
        read=share_or_auto,
        typed="0",
    )
    kv_format: str = option(
        "f16",
        f"of K and V on the drives, rounded when they are computed. {explained(KV_FORMATS)}. "
        "docs/results/quality.md has the price; fp8 takes the scales in the checkpoint's folder",
        choices=tuple(KV_FORMATS),
    )
    spill: int = option(
        16,
        "new tokens written at once; 1: each by itself. sparf always attends to those that are pending",
        low=1,
        high=64,
    )
    mini_batches: Count = option(
        "auto",
        "of the batch: while the drives attend to one, the host computes another one; the same tokens, faster where "
        "drives with engines of their own take longer than the model's matrices; auto: two where the first steps say "
        "that this is faster",
        read=count_or_auto,
        typed="auto",
    )
    on_failure: OnFailure = option("raise", "a lost drive ends the text, or its tokens are computed again")

    def __post_init__(self) -> None:
        if str(self.active) == "auto":
            object.__setattr__(self, "active", "memory" if self.memory.bytes else "drive")
        one_of("active", self.active, get_args(Active))
        if self.session_memory < 0:
            raise InputError("the memory for sessions cannot be negative: 0 stands for none")
        one_of("kv_format", self.kv_format, tuple(KV_FORMATS))
        one_of("on_failure", self.on_failure, get_args(OnFailure))
        if self.xcache != "auto" and not (isinstance(self.xcache, float | int) and 0 <= self.xcache <= 1):
            raise InputError(f"the share of X-cache is 'auto' or a number from 0 to 1, not {self.xcache!r}")
        if self.mini_batches != "auto" and not (isinstance(self.mini_batches, int) and self.mini_batches >= 1):
            raise InputError(f"a batch has 'auto' or 1 mini-batch or more, not {self.mini_batches!r}")


@dataclass(frozen=True)
class Drafting:
    """Tokens that a server drafts for its sequences; `assistant` is the other way."""

    lookup: int = option(
        0,
        "drafts what followed the last so many tokens where they were before, in prompt or answer; one call of the "
        "model verifies up to 7 drafted tokens. The tokens stay the same; 3 suits code; 0: nothing is drafted",
        low=0,
        high=16,
    )


@dataclass(frozen=True)
class RunConfig:
    """All options, in groups. `sessions`: K and V are kept beyond the process; None: they are not.

    No two groups have a field of the same name, so `of` and `changed` take fields without their group. What the options
    need of each other is in `config.table`; `config.resolve` checks it.
    """

    model: ModelOptions = field(default_factory=ModelOptions)
    target: DriveOptions = field(default_factory=DriveOptions)
    policy: PolicyOptions = field(default_factory=PolicyOptions)
    placement: Placement = field(default_factory=Placement)
    limits: Overflow = field(default_factory=Overflow)
    drafting: Drafting = field(default_factory=Drafting)
    weights: FlashOptions = field(default_factory=lambda: FlashOptions(weights="memory"))
    sessions: SessionOptions | None = None

    @classmethod
    def of(cls, **given: Any) -> RunConfig:
        """The defaults with other values of some fields. Raises InputError."""
        return cls().changed(**given)

    def changed(self, **given: Any) -> RunConfig:
        """These options with other values of some fields, whatever group they are in; `sessions` True: the defaults.

        Raises InputError for values that an option cannot have, and for names that are no option.
        """
        groups: dict[str, Any] = {}
        if "sessions" in given:
            kept = given.pop("sessions")
            groups["sessions"] = (SessionOptions() if kept else None) if isinstance(kept, bool) else kept
        for name, group in GROUPS.items():
            own = {one: given.pop(one) for one in group if one in given}
            if own:
                groups[name] = replace(getattr(self, name), **own)
        if given:
            raise InputError(f"there is no option {', '.join(sorted(given))}: choose from {', '.join(FIELDS)}")
        return replace(self, **groups)

    def values(self) -> dict[str, Any]:
        """All fields by their names."""
        return {name: getattr(getattr(self, group), name) for group, names in GROUPS.items() for name in names}

    def stored(self) -> FlashOptions:
        """`weights`, with the drives that hold them."""
        return replace(self.weights, on_drive=self.target) if self.weights.weights == "drive" else self.weights


GROUPS: dict[str, dict[str, Field[Any]]] = {
    one.name: {part.name: part for part in fields(getattr(RunConfig(), one.name))}
    for one in fields(RunConfig)
    if one.name != "sessions"
}
FIELDS = sorted({"sessions"}.union(*GROUPS.values()))
