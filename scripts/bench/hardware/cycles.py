# SPDX-License-Identifier: Apache-2.0
"""Cycles of the kernels' RTL on representative jobs, checked against the golden model, into the manifests.

A job whose result differs from the golden model's is an error and leaves no figure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import product
from typing import Any

import numpy as np

import golden
from bench.setup import Setup
from bench.table import Block
from csim import ffn
from csim.attention_codes import Coded, bits_of
from csim.attention_images import Problem
from csim.group_choice import Choice
from golden.abi import BEAT_BYTES, Mode
from golden.formats import row_bytes
from kvdrive.errors import InputError, KvdriveError
from kvdrive.kernels import compare
from kvdrive.kernels.native import NativeKernels
from kvdrive.kernels.registry import KERNELS
from kvdrive.kernels.rtl import RtlEngine
from openhls.errors import OpenHlsError
from rtl import manifest
from rtl.kernels import Top, find_tops
from rtl.library import DDR4, Model, library_of

LATE = "100 cycles"
MEMORIES = {"ideal": 0.0, LATE: 100.0, "ddr4": DDR4}  # latencies; the first two give a word in every cycle
SEED = 2026
# Kernels whose jobs are compared as memory images, and the golden model of such a job of a top.
IMAGES: dict[str, Callable[[Top], Callable[[np.ndarray, int], int]]] = {
    "attention_codes": lambda top: partial(golden.code_job.run, bits=bits_of(top.name)),
    "group_choice": lambda _: golden.group_job.run,
}


Arrays = dict[str, Any]


@dataclass(frozen=True)
class Job:
    """One call. `amount` of `unit` is what it processes; `scalars`: the variables of the kernel's cycle formula."""

    name: str
    mode: str
    arrays: Callable[[np.random.Generator], Arrays]
    scalars: dict[str, int]
    amount: float
    unit: str
    memories: tuple[str, ...] = ("streams",)


def _halves(rng: np.random.Generator, *shape: int) -> np.ndarray:
    return rng.standard_normal(shape).astype(np.float16)


def _filter(pages: int) -> Iterator[Job]:
    def arrays(rng: np.random.Generator) -> Arrays:
        return {
            "pages": rng.integers(0, 256, pages * 4096, dtype=np.uint8),
            "bitmap": rng.integers(0, 256, pages * 4096 // 64 // 8, dtype=np.uint8),
            "rows": pages * 64,
            "row_bytes": 64,
            "page_bytes": 4096,
        }

    yield Job(
        f"{pages} pages of 4 KiB, half kept", "", arrays, {"page_count": pages, "page_bytes": 4096}, pages * 4096, "B"
    )


def _argtopk(n: int, k: int, digits: int) -> Job:
    def arrays(rng: np.random.Generator) -> Arrays:
        return {"keys": rng.standard_normal(n).astype(np.float32), "k_top": k}

    scalars = {"n": n, "k": k, "key_type": 0, "digits": digits}
    return Job(f"k = {k} of {n} keys", "", arrays, scalars, n, "keys", (LATE,))


def _gemv(group: int) -> Iterator[Job]:
    tokens, width = 1024, 128
    scalars = {"width": width, "tokens": tokens, "g": group}

    def dots(rng: np.random.Generator) -> Arrays:
        return {"q": _halves(rng, group, width), "k": _halves(rng, tokens, width)}

    def sums(rng: np.random.Generator) -> Arrays:
        return {"p": rng.integers(0, 1 << 20, (group, tokens)).astype(np.uint32), "v": _halves(rng, tokens, width)}

    for number, mode in enumerate(("rows", "columns", "accumulate")):
        arrays = sums if mode == "accumulate" else dots
        name = f"{mode}, {tokens} tokens, d = {width}"
        yield Job(name, mode, arrays, scalars | {"mode": number}, 2 * tokens * width, "B")


def _softmax(scores: int) -> Iterator[Job]:
    def arrays(rng: np.random.Generator) -> Arrays:
        return {"scores": rng.integers(-(1 << 23), 1 << 23, scores, dtype=np.int32)}

    yield Job(f"{scores} scores", "", arrays, {"dense": scores, "tail": 0}, scores, "scores")


def _attention(group: int, only_exact: bool) -> Iterator[Job]:
    width = 128

    def arrays(rng: np.random.Generator, tokens: int, **more: int) -> Arrays:
        return {
            "q": _halves(rng, group, width),
            "k": _halves(rng, tokens, width),
            "v": _halves(rng, tokens, width),
            **more,
        }

    def exact(tokens: int) -> Job:
        scalars = {
            "mode": 0,
            "g": group,
            "d": width,
            "tokens": tokens,
            "inline_tokens": 0,
            "r": 0,
            "k_top": 0,
            "digits": 0,
        }
        name = f"exact, {tokens} tokens, d = {width}"
        return Job(name, "exact", lambda rng: arrays(rng, tokens), scalars, 4 * tokens * width, "B", tuple(MEMORIES))

    yield exact(4096)
    if group in (1, 4):
        yield exact(16384)
    if group in (1, 4) and not only_exact:
        sparse = {"r": width // 8, "k_top": 16384 // 8, "l": 64}
        name = f"SparF 1/8, 16384 tokens, d = {width}, three jobs"
        yield Job(name, "sparf", lambda rng: arrays(rng, 16384, **sparse), {}, 4 * 16384 * width, "B", (LATE,))


def _group_choice(group: int) -> Iterator[Job]:
    width, unit = 128, 32
    for tokens in (4096, 16384):

        def arrays(rng: np.random.Generator, tokens: int = tokens) -> Arrays:
            index = golden.build_index(_halves(rng, tokens, width))
            choice = Choice(_halves(rng, group, width), index.to_bytes(), index.exponent, unit, tokens // unit // 8)
            return {"build": choice.build}

        scalars = {"g": group, "d": width, "tokens": tokens, "inline_tokens": 0, "units": tokens // unit}
        name = f"1/8 of {tokens} tokens, d = {width}, units of {unit}"
        yield Job(name, "", arrays, scalars, tokens * width * 10 // 32, "B", tuple(MEMORIES))


def _attention_codes(bits: int, group: int) -> Iterator[Job]:
    for width, tokens in product((128, 64), (1024, 4096)):

        def arrays(rng: np.random.Generator, width: int = width, tokens: int = tokens) -> Arrays:
            problem = Problem(_halves(rng, group, width), _halves(rng, tokens, width), _halves(rng, tokens, width))
            return {"build": partial(Coded.of(problem, bits).build, Mode.EXACT)}

        scalars = {"mode": 0, "g": group, "d": width, "tokens": tokens, "inline_tokens": 0, "bits": bits}
        name = f"exact over codes, {tokens} tokens, d = {width}"
        memories = tuple(MEMORIES) if width == 128 else ("ideal",)
        yield Job(name, "", arrays, scalars, 2 * tokens * row_bytes(bits, width), "B", memories)


def _ffn() -> Iterator[Job]:
    hidden = 1024
    for activation, matrices, neurons in (
        (golden.Activation.SILU, 3, 1536),
        (golden.Activation.GIVEN, 2, 512),
        (golden.Activation.GIVEN, 1, 512),
    ):

        def arrays(
            rng: np.random.Generator, kind: tuple[golden.Activation, int, int] = (activation, matrices, neurons)
        ) -> Arrays:
            return dict(ffn.random_case(rng, "measured", *kind, hidden, wild=False))

        scalars = {"hidden": hidden, "matrices": matrices, "neurons": neurons}
        plural = "matrix" if matrices == 1 else "matrices"
        name = f"{neurons} neurons, {matrices} {plural}, {hidden} numbers"
        yield Job(name, "", arrays, scalars, 2 * neurons * matrices * hidden, "B")


def jobs_of(top: Top) -> list[Job]:
    """The jobs on which a top is measured."""
    group = int(top.name.rsplit("_g", 1)[1]) if "_g" in top.name else 0
    if top.kernel == "argtopk":
        return [_argtopk(16384, 64, 4), _argtopk(16384, 2048, 4), _argtopk(131072, 16384, 4)]
    makers = {
        "page_filter": lambda: _filter(64),
        "softmax": lambda: _softmax(4096),
        "gemv": lambda: _gemv(group),
        "attention": lambda: _attention(group, "exact" in top.name),
        "attention_codes": lambda: _attention_codes(bits_of(top.name), group),
        "group_choice": lambda: _group_choice(group),
        "ffn": _ffn,
    }
    return list(makers[top.kernel]())


def measure(top: Top, job: Job, memory: str) -> dict[str, Any]:
    """The figures of one job. Raises OpenHlsError if the RTL's result is not the golden model's."""
    if top.kernel in IMAGES:
        return _measure_image(top, job, memory)
    if top.kernel == "ffn":
        return _measure_neurons(top, job, memory)
    kernel, arrays = KERNELS[top.kernel], job.arrays(np.random.default_rng(SEED))
    attention = "attention_exact" if "exact" in top.name else "attention"
    engine = RtlEngine(MEMORIES.get(memory, 0.0), attention)
    got = getattr(NativeKernels(engine), kernel.name)(arrays, job.mode)
    expected = compare.run(kernel, "golden", arrays, job.mode)
    different = [row.output for row in compare.differences("rtl", got, "golden", expected) if not row.identical]
    if different:
        raise OpenHlsError(f"{top.name}, {job.name}: {', '.join(different)} differ from the golden model")
    return _figures(top, job, memory, engine.cycles)


def _measure_image(top: Top, job: Job, memory: str) -> dict[str, Any]:
    """The same for a job that is compared as a memory image."""
    rng = np.random.default_rng(SEED)
    image, address = job.arrays(rng)["build"](rng)
    expected = image.copy()
    engine = RtlEngine(MEMORIES[memory])
    status = getattr(engine, top.kernel)(image, address)
    if status != IMAGES[top.kernel](top)(expected, address) or not np.array_equal(image, expected):
        raise OpenHlsError(f"{top.name}, {job.name}: the result differs from the golden model's")
    return _figures(top, job, memory, engine.cycles)


def _measure_neurons(top: Top, job: Job, memory: str) -> dict[str, Any]:
    """The same for a call of ffn."""
    case = job.arrays(np.random.default_rng(SEED))
    model = Model(library_of(top), top.clock_mhz, 0.0)
    model.set(activation=case["activation"], **job.scalars)
    for stream in ("inputs", "activations", "rows"):
        model.feed(stream, case[stream].reshape(-1).view(np.uint32).reshape(-1, BEAT_BYTES // 4))
    cycles = model.run()
    results = model.words("results", BEAT_BYTES // 4).reshape(-1).view(np.uint64)
    if model.get("return") != 0 or not np.array_equal(results, case["results"]):
        raise OpenHlsError(f"{top.name}, {job.name}: the result differs from the golden model's")
    return _figures(top, job, memory, cycles)


def _figures(top: Top, job: Job, memory: str, cycles: int) -> dict[str, Any]:
    figures = {"job": job.name, "memory": memory, "cycles": cycles}
    if job.scalars:
        figures["formula"] = top.cycles(job.scalars)
    return figures | {"amount": job.amount, "unit": job.unit}


def _line(top: Top, one: dict[str, Any]) -> str:
    rate = one["amount"] / one["cycles"]
    return f"{top.name}: {one['job']}, {one['memory']}: {one['cycles']:,} cycles, {rate:.3g} {one['unit']}/cycle"


def run(setup: Setup, part: str = "") -> list[Block]:
    """Cycles of a kernel or a top, empty: of all, into bitstreams/, for docs/results/hardware.md.

    Raises InputError naming the tops that failed.
    """
    failed = []
    for top in find_tops(part or setup.size("", "page_filter")):
        try:
            before = manifest.load_current(top)
            found = []
            for job in jobs_of(top):
                for memory in job.memories:
                    found.append(measure(top, job, memory))
                    setup.say(_line(top, found[-1]))
            if not setup.quick:
                manifest.record(top, "measured", found, before)
        except (OpenHlsError, KvdriveError) as error:  # go on with the other kernels
            failed.append(top.name)
            setup.say(f"{top.name}: FAILED: {error}")
    if failed:
        raise InputError(f"no figures of {', '.join(failed)}: see above")
    return []
