"""FPGA images of the kernels. Beside each image lies a text with its contents: X.xclbin and X.xclbin.toml.

The text is a TOML file of strings and numbers. `sim/drive/engine/xrt` reads it as well, and loads no image without it.
"""

from __future__ import annotations

import hashlib
import tomllib
from dataclasses import asdict, dataclass
from pathlib import Path

from kvdrive import abi
from kvdrive.errors import TargetError

SUFFIX = ".toml"


@dataclass(frozen=True)
class ImageText:
    """`platform`: the full name of the card's platform. `units`: compute units as KERNEL:UNIT, separated by spaces.

    `bank`: index of the memory bank of all memory ports. `sha256`: of the image, so that a text of another build is
    noticed.
    """

    abi_version: int
    platform: str
    sha256: str
    units: str
    bank: int
    clock_mhz: int

    @property
    def kernels(self) -> list[str]:
        """Names of the kernels, each once."""
        return list(dict.fromkeys(unit.split(":")[0] for unit in self.units.split()))


def text_path(image: Path) -> Path:
    return image.with_name(image.name + SUFFIX)


def write_text(image: Path, platform: str, units: list[tuple[str, str]], bank: int, clock_mhz: int) -> Path:
    """Describe an image that was just built."""
    text = ImageText(
        abi_version=abi.ABI_VERSION,
        platform=platform,
        sha256=hashlib.sha256(image.read_bytes()).hexdigest(),
        units=" ".join(f"{kernel}:{unit}" for kernel, unit in units),
        bank=bank,
        clock_mhz=clock_mhz,
    )
    lines = [
        f'{name} = "{value}"' if isinstance(value, str) else f"{name} = {value}" for name, value in asdict(text).items()
    ]
    path = text_path(image)
    path.write_text("\n".join(lines) + "\n")
    return path


def read_text(image: Path) -> ImageText:
    """Raises TargetError: no text, or not one of an image."""
    path = text_path(image)
    try:
        return ImageText(**tomllib.loads(path.read_text()))
    except OSError as error:
        raise TargetError(f"{path} is missing: `make link` writes it beside the image ({error.strerror})") from error
    except (tomllib.TOMLDecodeError, TypeError) as error:
        raise TargetError(f"{path} does not describe an image of kvdrive: {error}") from error
