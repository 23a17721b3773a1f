"""Where the tensors of a checkpoint lie in its *.safetensors, from the headers of the files."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path

import torch

from kvdrive.errors import InputError, UnsupportedError

_DTYPES = {"F32": torch.float32, "BF16": torch.bfloat16, "F16": torch.float16}
_MOST_HEADER = 100 << 20  # bytes, as the format has it


@dataclass(frozen=True)
class Stored:
    """A tensor in file number `file`: its bytes begin at `offset`. `kind`: its precision as the format names it."""

    key: str
    file: int
    offset: int
    kind: str
    shape: tuple[int, ...]

    @property
    def dtype(self) -> torch.dtype:
        """Raises UnsupportedError for other precisions than float32, bfloat16 and float16."""
        if self.kind not in _DTYPES:
            raise UnsupportedError(
                f"{self.key} is stored as {self.kind}: only float32, bfloat16 and float16 are read from flash; "
                "take the checkpoint that is not quantised, or weights=memory"
            )
        return _DTYPES[self.kind]

    @property
    def numbers(self) -> int:
        """How many numbers it has."""
        return math.prod(self.shape)

    @property
    def bytes(self) -> int:
        """Its size in the file."""
        return self.numbers * int(self.dtype.itemsize)


def read_stored(files: list[Path]) -> dict[str, Stored]:
    """All tensors of some files by their keys. Raises InputError for a file that is damaged or truncated."""
    found: dict[str, Stored] = {}
    for number, path in enumerate(files):
        try:
            found |= _of_file(number, path)
        except OSError as error:
            raise InputError(f"cannot read {path}: {error.strerror}") from error
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise InputError(f"{path} is no usable *.safetensors: {error}; download the checkpoint again") from error
    return found


def _of_file(number: int, path: Path) -> dict[str, Stored]:
    """The tensors of one file. Raises ValueError and others for a header that says something else than the file is."""
    size, found = path.stat().st_size, {}
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        if length > min(_MOST_HEADER, size - 8):
            raise ValueError("its header is longer than the file")
        header = json.loads(file.read(length))
    for key, fields in header.items():
        if key == "__metadata__":
            continue
        begin, end = fields["data_offsets"]
        one = Stored(key, number, 8 + length + begin, fields["dtype"], tuple(fields["shape"]))
        if not 0 <= begin <= end or 8 + length + end > size:
            raise ValueError(f"the file is truncated: {key} ends at byte {8 + length + end} of {size}")
        if one.kind in _DTYPES and one.bytes != end - begin:
            raise ValueError(f"{key} has {end - begin} bytes for {one.numbers} numbers")
        found[key] = one
    return found
