"""The program host.cpp over stock llama.cpp, with and without the plugin, and its commands."""

from __future__ import annotations

import json
import os
import random
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

ROOT = Path(__file__).parents[2]
LLAMA = Path(os.environ.get("LLAMA", ROOT / "build" / "llama"))  # scripts/llama_env.sh makes such folders
PLUGIN = ROOT / "build" / "llama-plugin" / "libggml-kvdrive.so"
VOCABULARY = 2048
SAME = 2e-4  # nats: less than stock's two kernels of attention differ


@dataclass
class Outcome:
    """What a run printed. `lines`: of each command; `logits` [rows, vocabulary]; `counters`: of the plugin."""

    code: int
    lines: list[str]
    logits: np.ndarray
    errors: str
    counters: dict = field(default_factory=dict)


@dataclass(frozen=True)
class Host:
    """The program host.cpp. `libraries`: the folder of llama.cpp's."""

    program: Path
    model: Path
    folder: Path
    vocabulary: int = VOCABULARY

    def run(
        self, commands: Sequence[str], *, drive: Path | None = None, timeout: float = 120, **options: object
    ) -> Outcome:
        """Executes commands, with the plugin if there is a drive. Options in capitals are variables of the plugin."""
        variables = {name: str(value) for name, value in options.items() if name.isupper()}
        words = [str(word) for pair in options.items() if not pair[0].isupper() for word in pair]
        counters = self.folder / "counters.json"
        counters.unlink(missing_ok=True)
        if drive is not None:
            variables = {
                "KVDRIVE_DRIVE": str(drive),
                "KVDRIVE_STATISTICS": str(counters),
                "KVDRIVE_THREADS": "1",
            } | variables
            variables["GGML_BACKEND_PATH"] = str(PLUGIN)
        out = self.folder / "logits.bin"
        out.unlink(missing_ok=True)
        done = subprocess.run(
            [self.program, self.model, out, *words],
            input="".join(f"{command}\n" for command in commands),
            capture_output=True,
            text=True,
            env=os.environ | variables,
            timeout=timeout,
        )
        logits = np.fromfile(out, dtype=np.float32) if out.exists() else np.zeros(0, np.float32)
        return Outcome(
            done.returncode,
            done.stdout.splitlines(),
            logits.reshape(-1, self.vocabulary),
            done.stderr,
            json.loads(counters.read_text()) if counters.exists() else {},
        )


def compile_host(program: Path, libraries: Path) -> None:
    """Compiles host.cpp against the libraries of a llama.cpp."""
    subprocess.run(
        [
            *("g++", "-std=c++20", "-O1", "-Wall", "-Wextra", "-isystem", LLAMA / "include"),
            *(f'-DLIBRARIES="{libraries}"', Path(__file__).with_name("host.cpp"), "-o", program),
            *(f"-L{libraries}", "-lllama", "-lggml", "-lggml-base", f"-Wl,-rpath,{libraries}"),
        ],
        check=True,
    )


def tokens(count: int, seed: int = 1) -> list[int]:
    """Numbers of tokens that mean nothing."""
    chosen = random.Random(seed)
    return [chosen.randrange(4, VOCABULARY) for _ in range(count)]


def decode(numbers: Sequence[int], position: int = 0, sequence: int = 0) -> str:
    """The command that appends tokens to a sequence."""
    return f"decode {sequence} {position} " + " ".join(map(str, numbers))


def one_by_one(numbers: Sequence[int], position: int, sequence: int = 0) -> list[str]:
    """The commands that append tokens, each in a step of its own."""
    return [decode([number], position + i, sequence) for i, number in enumerate(numbers)]


def divergences(of: np.ndarray, against: np.ndarray) -> np.ndarray:
    """The KL divergence of each row of logits, in nats."""
    p, q = (rows - np.logaddexp.reduce(rows, axis=1, keepdims=True) for rows in (of, against))
    return (np.exp(p) * (p - q)).sum(axis=1)
