"""How numbers are stored: as torch has them, or as codes of 8 or 4 bits with a scale for each group of 32.

A number of a group is code times scale, both exact in float32, rounded once to the precision of the computation. The
scales of a tensor come first (bfloat16), then its codes. Two codes of 4 bits share a byte: number i of a group is in
the low half of byte i, number 16 + i in the high half, with 8 added.
"""

from __future__ import annotations

import torch

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
CODES = ("int8", "int4")
GROUP = 32  # numbers with one scale
_SCALE_BYTES = 2
_CODE_BYTES = {"int8": GROUP, "int4": GROUP // 2}  # of a group


def stored_bytes(name: str, numbers: int) -> int:
    """Bytes of so many numbers in the format `name`, "auto" left out; the last group of codes is filled up."""
    if name in DTYPES:
        return numbers * int(DTYPES[name].itemsize)
    return _groups(numbers) * (_SCALE_BYTES + _CODE_BYTES[name])


def encode(name: str, numbers: torch.Tensor) -> torch.Tensor:
    """Numbers of any shape and precision -> uint8 [stored_bytes].

    The scale of 8 bits is the largest magnitude of the group / 127. That of 4 bits is the number with the largest
    magnitude / -8, so that all 16 codes are used.
    """
    flat = numbers.reshape(-1)
    if name in DTYPES:
        return flat.to(DTYPES[name]).contiguous().view(torch.uint8)
    flat = torch.nn.functional.pad(flat.float(), (0, -len(flat) % GROUP)).view(-1, GROUP)
    extreme = flat.gather(1, flat.abs().argmax(1, keepdim=True))
    scales = (extreme.abs() / 127 if name == "int8" else extreme / -8).to(torch.bfloat16)
    codes = (flat / torch.where(scales == 0, 1, scales).float()).round()
    if name == "int8":
        packed = codes.clamp(-127, 127).to(torch.int8).view(torch.uint8)
    else:
        low, high = (codes.clamp(-8, 7) + 8).to(torch.uint8).chunk(2, dim=1)
        packed = low | (high << 4)
    return torch.cat([scales.reshape(-1).view(torch.uint8), packed.reshape(-1)])


def decode(name: str, stored: torch.Tensor, numbers: int, dtype: torch.dtype) -> torch.Tensor:
    """uint8 [..., stored_bytes(name, numbers)] of codes -> [..., numbers] in the precision `dtype`."""
    groups = _groups(numbers)
    scales, codes = stored.split((groups * _SCALE_BYTES, groups * _CODE_BYTES[name]), dim=-1)
    codes = codes.unflatten(-1, (groups, _CODE_BYTES[name]))
    signed = codes.view(torch.int8) if name == "int8" else torch.cat([codes & 15, codes >> 4], -1).to(torch.int8) - 8
    exact = torch.float32 if dtype == torch.float16 else dtype  # binary16 has no room for all scales
    found = signed * scales.view(torch.bfloat16).to(exact).unsqueeze(-1)
    return found.to(dtype).flatten(-2)[..., :numbers]


def _groups(numbers: int) -> int:
    return -(-numbers // GROUP)
