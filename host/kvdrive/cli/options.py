"""The options that several commands share, in groups. `groups.command` gives a command all options of a group."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, TypeAlias

import typer

from kvdrive.choices import (
    DTYPES,
    ENGINES,
    KV_FORMATS,
    TARGETS,
    Index,
    LookAhead,
    OnFailure,
    OnOverflow,
    explained,
)
from kvdrive.cli.fields import Group, Sets
from kvdrive.cli.needs import Needs, elsewhere, sparse
from kvdrive.cli.paths import input_file, output_folder
from kvdrive.cli.sizes import bytes_of, share_or_bytes
from kvdrive.errors import InputError
from kvdrive.policies import POLICIES, entry_of, parse_ratio
from kvdrive.sessions.eviction import EVICTIONS
from kvdrive.weights.eviction import EVICTIONS as EXPERT_CACHES

if TYPE_CHECKING:
    from kvdrive.sessions.options import SessionOptions

    EvictionName: TypeAlias = str
    ExpertCacheName: TypeAlias = str
    DtypeName: TypeAlias = str
    EngineName: TypeAlias = str
    FormatName: TypeAlias = str
else:
    EvictionName = Literal[tuple(EVICTIONS)]
    ExpertCacheName = Literal[tuple(EXPERT_CACHES)]
    DtypeName = Literal[tuple(DTYPES)]
    EngineName = Literal[tuple(ENGINES)]
    FormatName = Literal[tuple(KV_FORMATS)]

EngineOption = Annotated[
    EngineName,
    typer.Option(help=f"who computes in the drive, with the same bits. {explained(ENGINES)}"),
    Needs("a drive in this process, --target emulator or cpu", lambda given: not elsewhere(given)),
]


def _share(text: str) -> float | Literal["auto"]:
    """A share of sequences or tokens, or "auto". Raises InputError."""
    if text == "auto":
        return "auto"
    try:
        return float(text)
    except ValueError as error:
        raise InputError(f"'{text}' is no share: give a number from 0 to 1, or auto") from error


def _ratio(text: str) -> Fraction | None:
    """A ratio; None for none. Raises InputError."""
    return parse_ratio(text) if text else None


_GROUPS = Needs("policy groups or auto", sparse)
_FLASH = Needs("--weights flash or --weights drive", lambda given: given["weights"] != "memory")
_KEPT = Needs("--idle above 0", lambda given: given["idle"] > 0)


@dataclass(frozen=True)
class ModelOptions(Group):
    """The model and what computes it."""

    panel: ClassVar[str] = "Model"
    model: Annotated[
        str, typer.Option(help="folder of a Hugging Face checkpoint, a .gguf file, or a name: mini, mini_relu, smollm2")
    ] = "mini"
    dtype: Annotated[
        DtypeName,
        typer.Option(
            help="precision of the weights; auto: as stored; int8: bfloat16 with matrices rounded to 8 bits, for "
            "faster steps with other tokens"
        ),
    ] = "float32"
    device: Annotated[str, typer.Option(help="what computes the model, as torch names it: cpu, cuda, cuda:1, mps")] = (
        "cpu"
    )


@dataclass(frozen=True)
class TargetOptions(Group):
    """The drive, and who computes in it."""

    panel: ClassVar[str] = "Storage"
    target: Annotated[
        str,
        typer.Option(
            help=f"{explained(TARGETS)}; smartssd[:N]: the SmartSSDs of this machine; or its address: "
            "tcp://HOST:PORT[,HOST:PORT...], PATH.sock, nvme:/dev/ngXnY"
        ),
    ] = "emulator"
    identity: Annotated[
        Path | None,
        typer.Option(
            callback=input_file, help="TOML file with this host's NVMe name and secrets, for drives at tcp://"
        ),
    ] = None
    cache: Annotated[
        str,
        typer.Option(help="of the cpu target: K and V up to this size may stay in the page cache; K, M, G, T"),
        Sets("cache_bytes", bytes_of),
    ] = "0"
    index: Annotated[
        Index,
        typer.Option(
            help="of policy groups: its index is read each time (flash), or stays in the drive's memory, up to 1 GiB; "
            "auto: memory on the cpu target"
        ),
        _GROUPS,
    ] = "auto"
    hot: Annotated[
        str,
        typer.Option(help="of policy groups: memory for the K and V that were read last; K, M, G, T"),
        _GROUPS,
        Sets("hot_bytes", bytes_of),
    ] = "0"
    image: Annotated[Path | None, typer.Option(help="of SmartSSDs: the FPGA image of the kernels (xclbin)")] = None
    engine: EngineOption = "fast"
    preset: Annotated[str, typer.Option(help="flash whose time is modelled; `kvdrive doctor` lists them")] = ""
    threads: Annotated[int, typer.Option(min=0, help="threads of host and engine; 0: all cores")] = 0


@dataclass(frozen=True)
class FolderOptions(Group):
    """The files of drives in this process."""

    panel: ClassVar[str] = "Storage"
    drives: Annotated[
        int, typer.Option(min=1, max=64, help="drives that share the KV heads; any number, same bits")
    ] = 1
    drive: Annotated[
        Path | None,
        typer.Option(
            callback=output_folder, help="folder of the drives; what they hold is kept. Default: a temporary one"
        ),
        Sets("folder"),
    ] = None
    erase: Annotated[
        bool, typer.Option("--erase", help="forget what existing drives of the folder hold"), Sets("format")
    ] = False


def kept_drives(given: dict[str, Any]) -> str:
    """What is left of the drives of a command that ^C has stopped, from its arguments."""
    where, folder = given["where"], given["files"].drive if "files" in given else None
    if where.target not in TARGETS:
        return f"the drive at {where.target} holds what it held before"
    if folder is not None:
        return f"the drives in {folder} hold what they held before"
    return "no drive is left behind"


@dataclass(frozen=True)
class SessionLimits:
    """How much of finished conversations stays on the drive, and for how long."""

    panel: ClassVar[str] = "Sessions"
    tenant: Annotated[str, typer.Option(help="whose conversations these are; tenants share nothing")] = ""
    session_days: Annotated[
        float, typer.Option(min=0, help="remove what nobody used for so long; 0: keep it"), _KEPT
    ] = 0.0
    session_bytes: Annotated[
        str, typer.Option(help="of K and V that are kept at most; K, M, G, T; 0: no bound"), _KEPT
    ] = "0"
    daily_writes: Annotated[
        str, typer.Option(help="bytes a day; beyond them only what is wanted a second time is kept; 0: no bound"), _KEPT
    ] = "0"
    eviction: Annotated[EvictionName, typer.Option(help="which one leaves when there are too many"), _KEPT] = "lru"

    def options(self, sessions: int) -> SessionOptions:
        """The options as the store takes them, for at most `sessions` of them. Raises InputError."""
        from kvdrive.sessions.bounds import Bounds
        from kvdrive.sessions.options import SessionOptions

        bounds = Bounds(bytes_of(self.session_bytes), sessions, self.session_days * 86_400)
        return SessionOptions(None, self.tenant, bounds, self.eviction, bytes_of(self.daily_writes))


def _policy(value: str) -> str:
    """`value`, the name of a policy. Raises BadParameter otherwise."""
    try:
        entry_of(value)
    except InputError as error:
        raise typer.BadParameter(str(error)) from error
    return value


@dataclass(frozen=True)
class PolicyOptions(Group):
    """What a decode step attends to, when new K and V are written, and what happens when they are lost."""

    panel: ClassVar[str] = "Attention"
    attention: Annotated[
        str,
        typer.Option(
            callback=_policy,
            metavar=f"[{'|'.join(POLICIES)}]",
            help=explained({name: entry.summary for name, entry in POLICIES.items()}),
        ),
    ] = "exact"
    ratio: Annotated[
        str,
        typer.Option(help="share of K and V that a policy other than exact and auto uses, as 1/8; they need it"),
        Needs("a policy other than exact", lambda given: given["attention"] != "exact"),
        Sets("ratio", _ratio),
    ] = ""
    unit: Annotated[
        int, typer.Option(help="tokens that policy groups reads or leaves out together: 16, 32, 64, 128; 0: 32")
    ] = 0
    unread: Annotated[
        float,
        typer.Option(
            min=0,
            max=0.999,
            help="policy groups reads more than --ratio until it leaves at most this share of each head's softmax "
            "unread, by the index's estimate; 0: it does not",
        ),
    ] = 0.0
    spill: Annotated[
        int,
        typer.Option(
            min=1,
            max=64,
            help="new tokens written at once; 1: each by itself. sparf always attends to those that are pending",
        ),
    ] = 16
    on_failure: Annotated[
        OnFailure, typer.Option(help="a lost drive ends the text, or its tokens are computed again")
    ] = "raise"
    kv_format: Annotated[FormatName, typer.Option(help=f"of K and V on the drives. {explained(KV_FORMATS)}")] = "f16"

    def __post_init__(self) -> None:
        """Raises InputError for a policy that would read less if it had a ratio."""
        own, entry, _ = entry_of(self.attention)
        if own != "exact" and not entry.takes and not self.ratio:
            raise InputError(f"--attention {own} reads everything without a ratio: give one, as --ratio 1/8")


@dataclass(frozen=True)
class OverflowOptions(Group):
    """What happens when a text has used up the model's positions."""

    panel: ClassVar[str] = "Attention"
    overflow: Annotated[
        OnOverflow,
        typer.Option(help="of the positions. error: the text ends; trim: old tokens leave, behind the first few"),
    ] = "error"
    overflow_ratio: Annotated[
        float,
        typer.Option(min=0.01, max=0.99, help="share of the tokens that leave at once with --overflow trim"),
        Needs("--overflow trim", lambda given: given["overflow"] == "trim"),
    ] = 0.5
    context: Annotated[
        int, typer.Option(min=0, help="tokens that a text holds at most; 0: as many as the model has positions")
    ] = 0


@dataclass(frozen=True)
class WeightsTier(Group):
    """Where the model's weights are."""

    panel: ClassVar[str] = "Weights"
    weights: Annotated[
        Literal["memory", "flash", "drive"],
        typer.Option(
            help="flash: experts, or the neurons of a dense model, are read when a token needs them, with the same "
            "tokens; `kvdrive convert` makes their file. drive: the same from the first drive of --drive or --target, "
            "beside K and V; `kvdrive convert --drive` puts them there"
        ),
    ] = "memory"
    weights_file: Annotated[
        Path | None,
        typer.Option(callback=input_file, help="the file that `kvdrive convert` has made; default: in your cache"),
    ] = None
    weights_copy: Annotated[
        Path | None,
        typer.Option(callback=input_file, help="a copy of this file on another drive: both serve reads, and errors"),
    ] = None
    weights_memory: Annotated[
        str,
        typer.Option(help="for all weights, with --weights flash: a share as 50%, or a size with K, M, G, T"),
        _FLASH,
        Sets("weights_memory", share_or_bytes),
    ] = "50%"
    weights_cache: Annotated[
        ExpertCacheName, typer.Option(help=f"which expert leaves memory. {explained(EXPERT_CACHES)}"), _FLASH
    ] = "lfu"
    look_ahead: Annotated[
        LookAhead,
        typer.Option(
            help="read the experts that the next layer will probably need while this one computes. auto: while enough "
            "of the guesses are right; on, off: always, never"
        ),
        _FLASH,
    ] = "auto"
    weights_window: Annotated[
        int, typer.Option(min=1, help="neurons that none of the last so many tokens used leave memory"), _FLASH
    ] = 5
    ffn: Annotated[
        str,
        typer.Option(
            help="of dense models on flash. exact; fatrelu:THRESHOLD: activations of a smaller magnitude count as "
            "zero; fatrelu:SHARE as fatrelu:70%: the thresholds of `kvdrive sparsify`; predictor: that of `kvdrive "
            "train-predictor` says which neurons count. drive: the drive of --weights drive computes feed-forward parts"
        ),
    ] = "exact"


@dataclass(frozen=True)
class Speculation(Group):
    """A model that drafts tokens, which another one verifies."""

    panel: ClassVar[str] = "Weights"
    assistant: Annotated[
        str,
        typer.Option(
            help="a small model with the same vocabulary, named as --model: it drafts tokens, and one call of the "
            "model verifies all of them. The tokens stay the same"
        ),
    ] = ""
    accepted: Annotated[
        str,
        typer.Option(
            help="of dense models on flash: neurons that the first tokens of a verifying call used stay in memory. The "
            "share of the tokens, 0 to 1; auto: the share that has been accepted so far"
        ),
        Needs("--assistant and --weights flash", lambda given: given["assistant"] and given["weights"] != "memory"),
        Sets("accepted", _share),
    ] = "auto"


@dataclass(frozen=True)
class MemoryTier(Group):
    """Where running sequences are."""

    panel: ClassVar[str] = "Storage"
    active: Annotated[
        Literal["auto", "drive", "memory"],
        typer.Option(
            help="drive: it attends to K and V where they are; memory: running sequences are in memory, the drive "
            "keeps them, and the model's own attention reads them; auto: memory if --memory is given"
        ),
    ] = "auto"
    memory: Annotated[
        str,
        typer.Option(
            help="for K and V of running sequences; those that do not fit are attended to in the drive; K, M, G, T; "
            "0 with --active memory: no bound"
        ),
        Needs("--active memory or auto", lambda given: given["active"] != "drive"),
    ] = "0"

    def fields(self) -> dict[str, Any]:
        """See Group. Raises InputError."""
        from kvdrive.kvcache.budget import MemoryOptions

        size = bytes_of(self.memory)
        active = ("memory" if size else "drive") if self.active == "auto" else self.active
        return {"active": active, "memory": MemoryOptions(size)}


@dataclass(frozen=True)
class InputTier(Group):
    """What the drives keep of a sequence."""

    panel: ClassVar[str] = "Storage"
    xcache: Annotated[
        str,
        typer.Option(
            help="share of the sequences of which the drives keep layer inputs instead of K and V, 0 to 1: fewer bytes "
            "are written, and the host rebuilds K and V; auto: the share that is fastest here"
        ),
        Sets("xcache", _share),
    ] = "0"
