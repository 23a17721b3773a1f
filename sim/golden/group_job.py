"""Jobs of the kernels group_choice in a memory image, executed by the golden model (docs/jobs.md)."""

import numpy as np

from golden import bitmap as bitmaps
from golden import gemv
from golden.abi import (
    ABI_VERSION,
    BEAT_BYTES,
    CHOICE_HEAD_DIMS,
    MAX_GROUP,
    SPAN_TOKENS,
    GroupChoiceJob,
    GroupChoiceResult,
    Status,
)
from golden.attention import check_scale
from golden.gemv import KERNEL_SHAPES, Shapes
from golden.group_index import from_bytes
from golden.groups import ChoiceResult, check_choice, group_choice, units_of
from golden.job import Memory, check_address

_BYTES_PER_SCORE = 4
_SCORES_PER_BEAT = BEAT_BYTES // _BYTES_PER_SCORE


def span_bytes(d: int) -> int:
    """Bytes of one span of the index."""
    return d * (2 + SPAN_TOKENS // 4)


def sizes(job: np.void, shapes: Shapes = KERNEL_SHAPES) -> dict[str, int]:
    """Bytes of each array that a job uses, by descriptor field. Arrays without elements are not in use."""
    g, d, s, t, unit = (int(job[name]) for name in ("group", "head_dim", "tokens", "inline_tokens", "unit"))
    records = 1 if shapes is KERNEL_SHAPES else -(-g // MAX_GROUP)
    used = {
        "q": 2 * g * d,
        "index": s // SPAN_TOKENS * span_bytes(d),
        "inline_scores": g * -(-t // _SCORES_PER_BEAT) * BEAT_BYTES,
        "valid": bitmaps.beats(s) * BEAT_BYTES if int(job["valid"]) else 0,
        "out": 0 if _bad_unit(job) else bitmaps.beats(units_of(s, unit)) * BEAT_BYTES,
        "result": records * GroupChoiceResult.itemsize,
    }
    return {name: size for name, size in used.items() if size}


def check(job: np.void, memory: Memory, job_address: int, shapes: Shapes = KERNEL_SHAPES) -> Status:
    """The checks on a descriptor (scalar of abi.GroupChoiceJob) that was read from byte `job_address` of `memory`."""
    status = check_address(job_address, GroupChoiceJob.itemsize, memory)
    if int(job["version"]) != ABI_VERSION:
        status |= Status.BAD_VERSION
    status |= gemv.check_group(int(job["group"]), shapes)
    d = int(job["head_dim"])
    if shapes is KERNEL_SHAPES:
        status |= Status(0) if d in CHOICE_HEAD_DIMS else Status.BAD_HEAD_DIM
    else:
        status |= gemv.check_head_dim(d, shapes)
    status |= gemv.check_tokens(int(job["tokens"]) + int(job["inline_tokens"])) | _check_numbers(job)
    status |= check_scale(np.array([job["scale_log2e"]], np.uint32))
    for name, size in sizes(job, shapes).items():
        status |= check_address(int(job[name]), size, memory)
    return status


def _check_numbers(job: np.void) -> Status:
    return check_choice(*(int(job[name]) for name in ("tokens", "unit", "k_top", "exponent")))


def _bad_unit(job: np.void) -> bool:
    return Status.BAD_UNIT in _check_numbers(job)


def run(memory: Memory, job_address: int, shapes: Shapes = KERNEL_SHAPES) -> int:
    """Run the job at byte `job_address` of `memory` (uint8), in place; returns the status word."""
    status = check_address(job_address, GroupChoiceJob.itemsize, memory)
    if status:
        return int(status)
    job = memory[job_address : job_address + GroupChoiceJob.itemsize].copy().view(GroupChoiceJob)[0]
    status = check(job, memory, job_address, shapes)
    if status:
        return int(status)
    result = _choose(job, {name: memory[int(job[name]) :][:size] for name, size in sizes(job, shapes).items()})
    return int(result.status)


def _choose(job: np.void, arrays: dict[str, Memory]) -> ChoiceResult:
    """Compute from views of the job's arrays, and write its results into them."""
    g, d, t = (int(job[name]) for name in ("group", "head_dim", "inline_tokens"))
    inline = arrays["inline_scores"].copy().view(np.int32).reshape(g, -1)[:, :t] if t else None
    result = group_choice(
        arrays["q"].copy().view(np.uint16).reshape(g, d),
        from_bytes(arrays["index"].copy().reshape(-1, span_bytes(d)), int(job["exponent"])),
        int(job["unit"]),
        int(job["k_top"]),
        int(job["scale_log2e"]),
        arrays.get("valid"),
        inline,
    )
    arrays["out"][:] = result.bitmap
    arrays["result"][:] = 0
    records = arrays["result"].view(GroupChoiceResult)
    records["status"], records["selected"] = result.status, result.selected
    for name in ("max", "sum", "unread"):
        values: np.ndarray = getattr(result, name)
        padded = np.zeros((len(records), MAX_GROUP), values.dtype)
        padded.reshape(-1)[:g] = values
        records[name] = padded
    return result
