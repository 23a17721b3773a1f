"""Options that several commands share."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer


class Engine(StrEnum):
    """Who computes inside the drive."""

    fast = "fast"
    hls = "hls"
    rtl = "rtl"


class Attention(StrEnum):
    """Which tokens a decode step attends to."""

    exact = "exact"
    sparf = "sparf"
    sparq = "sparq"
    h2o = "h2o"
    local = "local"


class Failure(StrEnum):
    """What happens when a drive is lost."""

    fail = "raise"
    recompute = "recompute"


class Dtype(StrEnum):
    """Precision of the weights."""

    float32 = "float32"
    bfloat16 = "bfloat16"
    float16 = "float16"
    auto = "auto"


Model = Annotated[
    str, typer.Option(help="folder of a Hugging Face checkpoint, a .gguf file, or a name: mini, mini_relu, smollm2")
]
DtypeOption = Annotated[Dtype, typer.Option(help="precision of the weights; auto: as stored")]
DeviceOption = Annotated[str, typer.Option(help="what computes the model, as torch names it: cpu, cuda, cuda:1, mps")]
EngineOption = Annotated[Engine, typer.Option(help="who computes in the drive; the same bits, rtl takes long")]
TargetOption = Annotated[
    str,
    typer.Option(
        help="emulator: a drive with modelled flash; cpu: the file's own disk, in real time; or a drive elsewhere: "
        "tcp://HOST:PORT[,HOST:PORT...], PATH.sock, nvme:/dev/ngXnY"
    ),
]
IdentityOption = Annotated[
    Path | None, typer.Option(help="TOML file with this host's NVMe name and secrets, for drives at tcp://")
]
CacheOption = Annotated[
    str, typer.Option(help="of the cpu target: K and V up to this size may stay in the page cache; K, M, G, T")
]
PresetOption = Annotated[str, typer.Option(help="flash whose time is modelled; `kvdrive doctor` lists them")]
AttentionOption = Annotated[Attention, typer.Option(help="exact, or a policy that reads less")]
RatioOption = Annotated[str, typer.Option(help="share of K and V that such a policy reads, as 1/8")]
DrivesOption = Annotated[int, typer.Option(min=1, max=64, help="drives that share the KV heads; any number, same bits")]
SpillOption = Annotated[
    int,
    typer.Option(
        min=1, max=64, help="new tokens written at once; 1: each by itself. sparf always attends to those that wait"
    ),
]
FailureOption = Annotated[Failure, typer.Option(help="a lost drive ends the text, or its tokens are computed again")]
DriveOption = Annotated[
    Path | None, typer.Option(help="folder of the drives; what they hold is kept. Default: a temporary one")
]
FormatOption = Annotated[bool, typer.Option("--format", help="forget what existing drives of the folder hold")]
ThreadsOption = Annotated[int, typer.Option(min=0, help="threads of host and engine; 0: all cores")]
