"""Which drives, and who computes in them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from kvdrive.choices import ENGINES, TARGETS, Index, explained
from kvdrive.config.abilities import Part
from kvdrive.config.option import Needs, option
from kvdrive.config.sizes import bytes_of
from kvdrive.config.table import NO_FOLDER, of_group, require, value_of
from kvdrive.errors import InputError
from kvdrive.targets.addresses import FORMS, is_address
from kvdrive.targets.cpu import INDEX_BYTES
from kvdrive.targets.smartssd import is_smartssd

_GROUPS = Needs("policy groups or auto", lambda given: str(given["attention"]).partition(":")[0] in ("groups", "auto"))
_HERE = Needs("a drive in this process, `target=emulator` or cpu", lambda given: given["target"] in TARGETS)


@dataclass(frozen=True)
class DriveOptions:
    """Drives at an address have an engine, flash and capacity of their own.

    The cpu target reads more than `cache_bytes` of K and V around the page cache. An `index` in memory takes up to
    INDEX_BYTES of each drive.

    `capacity_bytes` of K and V, of all drives together, and `preset` apply to new drives. `folder` None stands for a
    temporary folder in the user's cache. Existing drives are mounted with their sessions and must have room for their
    part of `needed_bytes`. `group`: query heads per KV head of the model, for which the engine rtl is compiled where it
    is not yet; 0: as it is. `slowdown`: every command of a drive in this process takes so many times as long.
    """

    engine: str = option(
        "fast",
        f"who computes in the drive, with the same bits. {explained(ENGINES)}",
        choices=tuple(ENGINES),
        needs=_HERE,
    )
    preset: str = option("", "flash whose time is modelled; `kvdrive doctor` lists them")
    threads: int = option(1, "threads of host and engine; 0: all cores", typed=0, low=0)
    capacity_bytes: int = 1 << 30
    folder: Path | None = option(
        None,
        "folder of the drives; what they hold is kept. Default: a temporary one",
        flag="drive",
        short="d",
        path="folder",
    )
    drives: int = option(1, "drives that share the KV heads; any number, same bits", low=1, high=64)
    target: str = option(
        "emulator",
        f"{explained(TARGETS)}; smartssd[:N]: the SmartSSDs of this machine; or its address: "
        "tcp://HOST:PORT[,HOST:PORT...], PATH.sock, nvme:/dev/ngXnY",
        short="t",
    )
    cache_bytes: int = option(
        0,
        "of the cpu target: K and V up to this size may stay in the page cache; K, M, G, T",
        flag="cache",
        read=bytes_of,
        typed="0",
    )
    index: Index = option(
        "auto",
        "of policy groups: its index is read each time (flash), or stays in the drive's memory, up to 1 GiB; auto: "
        "memory on the cpu target",
        needs=_GROUPS,
    )
    hot_bytes: int = option(
        0,
        "of policy groups: memory for the K and V that were read last; K, M, G, T",
        flag="hot",
        read=bytes_of,
        typed="0",
        needs=_GROUPS,
    )
    identity: Path | None = option(
        None, "TOML file with this host's NVMe name and secrets, for drives at tcp://", path="file"
    )
    format: bool = option(False, "forget what existing drives of the folder hold", flag="erase")
    needed_bytes: int = 0
    image: Path | None = option(None, "of SmartSSDs: the FPGA image of the kernels (xclbin)")
    group: int = 0
    slowdown: float = 1

    def __post_init__(self) -> None:
        """Raises InputError for options that the target does not have."""
        require(self.parts())

    def parts(self) -> Iterator[Part]:
        """The options as `config.table` has them. Raises InputError for a target that there is not."""
        yield value_of("target", self.kind, self.target)
        yield from of_group(self)
        if self.folder is None and self.kind != "ADDRESS":
            yield NO_FOLDER

    @property
    def kind(self) -> str:
        """The target as `config.table` has it. Raises InputError."""
        if is_smartssd(self.target):
            return "smartssd"
        if is_address(self.target):
            return "ADDRESS"
        if self.target not in TARGETS:
            raise InputError(f"there is no target '{self.target}': choose {', '.join(TARGETS)}, {FORMS}")
        return self.target

    @property
    def index_bytes(self) -> int:
        """Memory of a drive for the index of policy groups."""
        in_memory = self.target == "cpu" if self.index == "auto" else self.index == "memory"
        return INDEX_BYTES if in_memory else 0
