"""Processor, memory, packages and the drive's engines: what every command needs."""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version

import numpy as np

from kvdrive import __version__, _native
from kvdrive.doctor.finding import Finding, State
from kvdrive.errors import KvdriveError
from kvdrive.kernels.compare import compare
from kvdrive.kernels.registry import KERNELS
from kvdrive.perf.stored_rates import processor
from kvdrive.tree import ROOT

_FASTER = {
    "avx512_vnni": "",
    "avx512": "with K and V in 8 or 4 bits, a processor with AVX-512 VNNI is faster",
    "avx2": "an x86 processor with AVX-512 is faster",
    "scalar": "AVX2 or AVX-512 is faster",
}
_PACKAGES = (  # package, what it gives, extra of pyproject.toml, True if every command needs it
    ("torch", "models", "models", True),
    ("transformers", "models", "models", True),
    ("matplotlib", "plots of --report and eval", "figures", False),
    ("starlette", "kvdrive serve", "serve", False),
    ("uvicorn", "kvdrive serve", "serve", False),
    ("prometheus-client", "kvdrive serve", "serve", False),
    ("cocotb", "testbenches of the kernels' RTL", "sim", False),
    ("lm-eval", "kvdrive lm-eval", "eval", False),
    ("gguf", "llama.cpp in make bench, with llama-bench on PATH", "", False),
)


def machine() -> Iterator[Finding]:
    """Python, processor and memory."""
    python = ".".join(map(str, sys.version_info[:3]))
    yield Finding("machine", "Python", State.ok, f"{python}, kvdrive {__version__}, {platform.platform()}")
    isa = _native.Engine("fast").isa  # type: ignore[attr-defined]
    detail = f"{processor()}, {os.cpu_count()} cores, engine uses {isa}"
    yield Finding("machine", "processor", State.ok, detail, remedy=_FASTER.get(isa, ""))
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    yield Finding("machine", "memory", State.ok, f"{memory:.1f} GiB")


def packages() -> Iterator[Finding]:
    """Python packages that commands import when they need them."""
    for name, gives, extra, needed in _PACKAGES:
        try:
            yield Finding("packages", name, State.ok, version(name), gives)
        except PackageNotFoundError:
            state = State.broken if needed else State.missing
            remedy = f"pip install 'kvdrive[{extra}]'" if extra else f"pip install {name}"
            yield Finding("packages", name, state, "not installed", gives, remedy)


def engines() -> Iterator[Finding]:
    """Attention of a few tokens by the compiled kernels, the vectorised engine and the golden model."""
    rng = np.random.default_rng(1)
    q, k, v = (rng.standard_normal((n, 64)).astype(np.float16) for n in (4, 100, 100))
    gives = "attention in the drive"
    try:
        rows = compare(KERNELS["attention"], ["golden", "hls", "fast"], {"q": q, "k": k, "v": v}, "exact")
    except KvdriveError as error:
        yield Finding("drive", "engines", State.broken, str(error), gives, "make setup")
        return
    wrong = sorted({row.engine for row in rows if not row.identical})
    if wrong:
        yield Finding("drive", "engines", State.broken, f"other bits on {', '.join(wrong)}", gives, "report it")
    else:
        yield Finding("drive", "engines", State.ok, "hls and fast give the golden model's bits", gives)
    presets = ", ".join(_native.presets())
    yield Finding("drive", "presets", State.ok, presets, "--preset: flash whose time is modelled")


def models() -> Iterator[Finding]:
    """The shipped model."""
    folder = ROOT / "models/mini"
    there = (folder / "config.json").is_file()
    state, detail = (State.ok, str(folder)) if there else (State.missing, "not in this installation")
    yield Finding(
        "drive", "model mini", state, detail, "kvdrive run", "work in the source tree, or give --model FOLDER"
    )
