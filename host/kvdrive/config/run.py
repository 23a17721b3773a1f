"""The options of a run: which model, on which drive, with which policy, in which place, and for how long."""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Literal, get_args

from kvdrive.choices import DTYPES, KV_FORMATS, Active, OnFailure
from kvdrive.errors import InputError
from kvdrive.kvcache.budget import MemoryOptions
from kvdrive.kvcache.overflow import Overflow
from kvdrive.policies import make_policy
from kvdrive.sessions.options import SessionOptions
from kvdrive.targets.opening import DriveOptions
from kvdrive.weights.options import FlashOptions

if TYPE_CHECKING:
    from kvdrive.policies import Policy

Share = float | Literal["auto"]  # of a batch's sequences


def one_of(name: str, value: object, known: tuple[object, ...]) -> None:
    """Raises InputError for a `value` of the option `name` that is none of `known`."""
    if value not in known:
        raise InputError(f"{name} is {' or '.join(map(repr, known))}, not {value!r}")


@dataclass(frozen=True)
class ModelOptions:
    """`model`: a checkpoint's folder, a .gguf file, or a name. `dtype` of its weights; see `choices.DTYPES`.

    `device` computes it, as torch names it. `assistant`: a smaller model that drafts tokens; "": none.
    """

    model: str = "mini"
    dtype: str = "float32"
    device: str = "cpu"
    assistant: str = ""

    def __post_init__(self) -> None:
        one_of("dtype", self.dtype, DTYPES)


@dataclass(frozen=True)
class PolicyOptions:
    """`attention`: a policy or its name, at compression `ratio` (None: everything is read).

    Policy groups: `unit` tokens are chosen together, 0: the policy's own number; `unread`: share of the softmax that
    may stay unread, 0: as `ratio` says.
    """

    attention: str | Policy = "exact"
    ratio: Fraction | None = None
    unit: int = 0
    unread: float = 0.0

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
    """Where K and V of running sequences are, and in which form.

    `active`: "drive" attends to K and V where they are stored. "memory" keeps running sequences in memory, as far as
    `memory` allows, for the model's own attention; the drives keep them, and a stored session is loaded layer by layer.

    `xcache`: of this share of a batch's sequences the drives keep layer inputs instead of K and V, which the host
    rebuilds (docs/xcache.md); "auto": the share that is fastest here, often none.

    `kv_format`: "f16", or K and V rounded to "int8", "int4" or "fp8" (e4m3) when they are computed, and stored so: half
    of the bytes, 2/7, or half (docs/eval.md has the price). "fp8" uses the scales of K and V that the folder of the
    model's checkpoint ships.

    `spill`: new tokens of a layer wait on the host until so many can be written at once; 1 writes each at once.

    `mini_batches`: a batch is computed in so many parts: while the drives attend to one, the host computes another
    (docs/xcache.md). Same tokens; faster where drives with engines of their own take longer than the model's matrices.

    `on_failure`: what happens when a drive is lost or loses data: "recompute" makes the same K and V again on what is
    left, and the text goes on as it would have.
    """

    active: Active = "drive"
    memory: MemoryOptions = field(default_factory=MemoryOptions)
    xcache: Share = 0.0
    kv_format: str = "f16"
    spill: int = 16
    mini_batches: int = 1
    on_failure: OnFailure = "raise"

    def __post_init__(self) -> None:
        one_of("active", self.active, get_args(Active))
        one_of("kv_format", self.kv_format, tuple(KV_FORMATS))
        one_of("on_failure", self.on_failure, get_args(OnFailure))
        if self.xcache != "auto" and not (isinstance(self.xcache, float | int) and 0 <= self.xcache <= 1):
            raise InputError(f"the share of X-cache is 'auto' or a number from 0 to 1, not {self.xcache!r}")
        if self.mini_batches < 1:
            raise InputError(f"a batch has one mini-batch or more, not {self.mini_batches}")


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
            own = {one: given.pop(one) for one in group & set(given)}
            if own:
                groups[name] = replace(getattr(self, name), **own)
        if given:
            raise InputError(f"there is no option {', '.join(sorted(given))}: choose from {', '.join(FIELDS)}")
        return replace(self, **groups)

    def stored(self) -> FlashOptions:
        """`weights`, with the drives that hold them."""
        return replace(self.weights, on_drive=self.target) if self.weights.weights == "drive" else self.weights


GROUPS = {
    one.name: {part.name for part in fields(getattr(RunConfig(), one.name))}
    for one in fields(RunConfig)
    if one.name != "sessions"
}
FIELDS = sorted({"sessions"}.union(*GROUPS.values()))
