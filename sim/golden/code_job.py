"""Jobs over K and V in 8 bits (docs/jobs.md), executed by the golden model in a memory image.

Such a job is the same job over the binary16 numbers that the codes stand for.
"""

import numpy as np
from numpy.typing import NDArray

from golden import formats, job
from golden.abi import BEAT_BYTES, FORMAT_PART, AttentionJob, Status
from golden.gemv import KERNEL_SHAPES, Shapes
from golden.job import EXACT_MODES, Memory, check_address

PARTS = BEAT_BYTES // FORMAT_PART  # parts of a row that share a beat of codes
STEPS = {"k": "rows", "v": "v_sum"}  # the fields with the addresses of the step bytes
_NO_CODE = -128
_LARGEST_STEP = 33
_NAN = 0x7E00


def to_job_order(stored: formats.Rows, d: int) -> tuple[formats.Rows, formats.Rows]:
    """INT8 rows [n, row_bytes] -> codes [n, d] and step bytes [n, d / 32] as a job has them."""
    beats = d // FORMAT_PART // PARTS
    return _exchange(stored[:, :d], PARTS, beats), _exchange(stored[:, d:], PARTS, beats)


def from_job_order(codes: formats.Rows, steps: formats.Rows) -> formats.Rows:
    """The opposite of `to_job_order`."""
    beats = steps.shape[1] // PARTS
    return np.concatenate([_exchange(codes, beats, PARTS), _exchange(steps, beats, PARTS)], axis=1)


def _exchange(rows: formats.Rows, outer: int, inner: int) -> formats.Rows:
    """Rows of parts [outer][inner] -> rows of parts [inner][outer]."""
    shape = (len(rows), outer, inner, rows.shape[1] // (outer * inner))
    return rows.reshape(shape).swapaxes(1, 2).copy().reshape(rows.shape)


def sizes(fields: np.void, shapes: Shapes = KERNEL_SHAPES) -> dict[str, int]:
    """Bytes of each array that a job uses, by descriptor field. Arrays without elements are not in use."""
    s, d = int(fields["tokens"]), int(fields["head_dim"])
    used = job.sizes(fields, shapes)
    for codes, steps in STEPS.items():
        used |= {codes: s * d, steps: s * (d // FORMAT_PART)}
    return {name: size for name, size in used.items() if size}


def check(fields: np.void, memory: Memory, job_address: int) -> Status:
    """The checks on a descriptor that was read from byte `job_address` of `memory`."""
    status = job.check(fields, memory, job_address, EXACT_MODES, sizes_of=sizes)
    if int(fields["mode"]) in EXACT_MODES and int(fields["head_dim"]) % (PARTS * FORMAT_PART):
        status |= Status.BAD_HEAD_DIM
    return status


def run(memory: Memory, job_address: int) -> int:
    """Run the job at byte `job_address` of `memory` (uint8), in place; returns the status word."""
    status = check_address(job_address, AttentionJob.itemsize, memory)
    if status:
        return int(status)
    descriptor = slice(job_address, job_address + AttentionJob.itemsize)
    fields = memory[descriptor].copy().view(AttentionJob)[0]
    status = check(fields, memory, job_address)
    if status:
        return int(status)
    decoded, wide = fields.copy(), memory
    for name in STEPS:
        decoded[name] = wide.size
        numbers = _numbers(fields, memory, name).reshape(-1).view(np.uint8)
        wide = np.concatenate([wide, np.pad(numbers, (0, -numbers.size % BEAT_BYTES))])
    wide[descriptor] = np.frombuffer(decoded.tobytes(), np.uint8)
    word = job.run(wide, job_address, EXACT_MODES)
    wide[descriptor] = memory[descriptor]
    memory[:] = wide[: memory.size]
    return word


def _numbers(fields: np.void, memory: Memory, name: str) -> NDArray[np.uint16]:
    """K or V as binary16 patterns [tokens, d]. Rows that are not valid become NaN, which counts like an infinity."""
    s, d = int(fields["tokens"]), int(fields["head_dim"])
    codes, steps = (
        memory[int(fields[field]) :][: s * width].reshape(s, width)
        for field, width in ((name, d), (STEPS[name], d // FORMAT_PART))
    )
    valid = (codes.view(np.int8) != _NO_CODE).all(axis=1) & (steps <= _LARGEST_STEP).all(axis=1)
    stored = from_job_order(codes, steps) * valid[:, None].astype(np.uint8)
    found = formats.decode_rows(stored, 8, d).view(np.uint16)
    found[~valid] = _NAN
    return found
