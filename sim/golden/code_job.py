"""Jobs over K and V in 8 and 4 bits (docs/jobs.md), executed by the golden model in a memory image.

Such a job is the same job over the binary16 numbers that the codes stand for.
"""

from functools import partial

import numpy as np
from numpy.typing import NDArray

from golden import formats, job
from golden.abi import BEAT_BYTES, FORMAT_PART, AttentionJob, Status
from golden.gemv import Shapes
from golden.job import EXACT_MODES, Memory, check_address

STEPS = {"k": "rows", "v": "v_sum"}  # the fields with the addresses of the step bytes
_STEP_BYTES = {8: 1, 4: 2}  # of a part, by the bits of a code
_HALF_BEAT = {4: 64}  # the head dimension of rows that share a beat, by the bits of a code
_NAN = 0x7E00


def parts_of(bits: int) -> int:
    """Parts of a row that share a beat of codes."""
    return BEAT_BYTES * 8 // (FORMAT_PART * bits)


def step_bytes(bits: int, d: int) -> int:
    """Step bytes of a row of `d` numbers."""
    return d // FORMAT_PART * _STEP_BYTES[bits]


def to_job_order(stored: formats.Rows, d: int, bits: int) -> tuple[formats.Rows, formats.Rows]:
    """Rows [n, row_bytes] -> codes [n, d * bits / 8] and step bytes as a job has them."""
    parts, codes = min(parts_of(bits), d // FORMAT_PART), d * bits // 8
    beats = d // FORMAT_PART // parts
    return _exchange(stored[:, :codes], parts, beats), _exchange(stored[:, codes:], parts, beats)


def from_job_order(codes: formats.Rows, steps: formats.Rows, bits: int) -> formats.Rows:
    """The opposite of `to_job_order`."""
    row_parts = codes.shape[1] * 8 // bits // FORMAT_PART
    parts = min(parts_of(bits), row_parts)
    beats = row_parts // parts
    return np.concatenate([_exchange(codes, beats, parts), _exchange(steps, beats, parts)], axis=1)


def _exchange(rows: formats.Rows, outer: int, inner: int) -> formats.Rows:
    """Rows of parts [outer][inner] -> rows of parts [inner][outer]."""
    shape = (len(rows), outer, inner, rows.shape[1] // (outer * inner))
    return rows.reshape(shape).swapaxes(1, 2).copy().reshape(rows.shape)


def _sizes(fields: np.void, shapes: Shapes, bits: int) -> dict[str, int]:
    """Bytes of each array that a job uses, by descriptor field. Arrays without elements are not in use."""
    s, d = int(fields["tokens"]), int(fields["head_dim"])
    used = job.sizes(fields, shapes)
    for codes, steps in STEPS.items():
        used |= {codes: s * d * bits // 8, steps: s * step_bytes(bits, d)}
    return {name: size for name, size in used.items() if size}


def check(fields: np.void, memory: Memory, job_address: int, bits: int) -> Status:
    """The checks of a kernel that reads codes of `bits` bits, on a descriptor from byte `job_address` of `memory`."""
    sizes_of = partial(_sizes, bits=bits)
    status = job.check(fields, memory, job_address, EXACT_MODES, sizes_of=sizes_of)
    if int(fields["mode"]) in EXACT_MODES:
        d = int(fields["head_dim"])
        if d % (parts_of(bits) * FORMAT_PART) and d != _HALF_BEAT.get(bits):
            status |= Status.BAD_HEAD_DIM
        if int(fields["r"]) != bits:
            status |= Status.BAD_R
    return status


def run(memory: Memory, job_address: int, bits: int) -> int:
    """Run the job at byte `job_address` of `memory` (uint8), in place; returns the status word.

    `bits`: of the codes that the kernel reads.
    """
    status = check_address(job_address, AttentionJob.itemsize, memory)
    if status:
        return int(status)
    descriptor = slice(job_address, job_address + AttentionJob.itemsize)
    fields = memory[descriptor].copy().view(AttentionJob)[0]
    status = check(fields, memory, job_address, bits)
    if status:
        return int(status)
    decoded, wide = fields.copy(), memory
    for name in STEPS:
        decoded[name] = wide.size
        numbers = _numbers(fields, memory, name, bits).reshape(-1).view(np.uint8)
        wide = np.concatenate([wide, np.pad(numbers, (0, -numbers.size % BEAT_BYTES))])
    wide[descriptor] = np.frombuffer(decoded.tobytes(), np.uint8)
    word = job.run(wide, job_address, EXACT_MODES)
    wide[descriptor] = memory[descriptor]
    memory[:] = wide[: memory.size]
    return word


def _numbers(fields: np.void, memory: Memory, name: str, bits: int) -> NDArray[np.uint16]:
    """K or V as binary16 patterns [tokens, d]. Rows that are not valid become NaN, which counts like an infinity."""
    s, d = int(fields["tokens"]), int(fields["head_dim"])
    codes, steps = (
        memory[int(fields[field]) :][: s * width].reshape(s, width)
        for field, width in ((name, d * bits // 8), (STEPS[name], step_bytes(bits, d)))
    )
    stored = from_job_order(codes, steps, bits)
    valid = formats.valid_rows(stored, bits, d)
    found = np.full((s, d), _NAN, np.uint16)
    found[valid] = formats.decode_rows(stored[valid], bits, d).view(np.uint16)
    return found
