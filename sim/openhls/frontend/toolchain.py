# SPDX-License-Identifier: Apache-2.0
"""Clang and opt: from C++ to optimised LLVM IR, with a fixed list of passes.

The passes inline everything but the stages of dataflow regions, unroll what the source asks for, keep scalars out of
memory, and leave the loops as they are: nothing is vectorised, merged, peeled or unrolled behind the author's back.
"""

from __future__ import annotations

import functools
import os
import re
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from openhls import store
from openhls.errors import OpenHlsError
from openhls.frontend.diagnostics import WrongCpp, switches, wrong_cpp
from openhls.frontend.directives import Directive
from openhls.frontend.pragmas import Notes
from openhls.frontend.source import Source
from openhls.frontend.tasks import with_tasks

SHIM = Path(__file__).parent / "shim"
COMMON = SHIM / "common"  # headers that software builds take, too
CLANG = "clang-19"
OPT = "opt-19"

_CLANG_FLAGS = [
    *("-std=gnu++17", "-D__SYNTHESIS__", "-DNDEBUG", "-fno-exceptions", "-fno-rtti", "-fno-threadsafe-statics"),
    *("-Wno-everything", "-Werror=array-bounds", "-Werror=return-type"),  # what would become any value
    *("-ffp-contract=off", "-fno-jump-tables", "-fno-discard-value-names", "-fno-builtin"),
]
_CLEAN = "instcombine<no-verify-fixpoint>,simplifycfg<no-switch-to-lookup;no-switch-range-to-icmp>"
_PASSES = ",".join(
    [
        "internalize,globaldce,function(sroa,early-cse,simplifycfg)",
        "cgscc(inline),globaldce",
        f"function(sroa,early-cse,{_CLEAN},lower-constant-intrinsics,loop-mssa(licm),loop-simplify,lcssa,loop(loop-rotate),{_CLEAN},loop(indvars),"
        "loop-simplify,lcssa,loop-unroll<O2;no-peeling;no-profile-peeling;runtime>,"
        f"sroa,early-cse<memssa>,{_CLEAN},gvn,sccp,correlated-propagation,bdce,{_CLEAN},"
        f"sroa,early-cse<memssa>,{_CLEAN},loop-mssa(licm),gvn,bdce,adce,loop(loop-deletion),{_CLEAN},dse,adce,"
        "loop-simplify,lcssa,instnamer)",
    ]
)
_MEMORY_CALL = re.compile(r"\bmem(?:cpy|set)\s*\(")
_OPT_FLAGS = [
    *("-inline-threshold=100000000", "-inlinecold-threshold=100000000", "-inlinehint-threshold=100000000"),
    *("-pragma-unroll-threshold=100000000", "-unroll-threshold=100000000"),
    *("-two-entry-phi-node-folding-threshold=1000", "-phi-node-folding-threshold=1000"),
    *("-speculate-one-expensive-inst=false", "-indvars-widen-indvars=false", "-replexitval=never"),
]
# While loops are unrolled to fold constants, no long ones.
_SHORT = {f"-{name}-threshold=100000000": f"-{name}-threshold=10000" for name in ("pragma-unroll", "unroll")}


@dataclass(frozen=True)
class Compiled:
    """LLVM IR and the pragmas that it does not carry."""

    text: str
    top: str  # linker name
    notes: Notes


def _run(command: list[str], given: str | None = None) -> str:
    if shutil.which(command[0]) is None:
        raise OpenHlsError(f"{command[0]} is not on the PATH; install clang-19 and llvm-19")
    done = subprocess.run(command, input=given, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise wrong_cpp(command[0], done.stderr, is_users)
    return done.stdout


def is_users(file: str) -> bool:
    """True if a file is no header of the system or of openhls, by its path."""
    path = Path(file)
    return SHIM not in path.parents and not file.startswith(("/usr/include/", "/usr/lib/", "<"))


def _symbol(text: str, top: str) -> str:
    """The linker name of the function `top` (its C++ name, without scopes)."""
    functions: dict[str, str] = dict(re.findall(r"^define [^\n]*@([\w.$]+)\([^\n]*!dbg (!\d+) \{$", text, re.MULTILINE))
    named = set(re.findall(rf'^(!\d+) = distinct !DISubprogram\(name: "{top}(?:<[^"]*>)?",', text, re.MULTILINE))
    symbols = [symbol for symbol, node in functions.items() if node in named]
    if len(symbols) != 1:
        found = "no function" if not symbols else f"{len(symbols)} functions"
        raise OpenHlsError(f"there is {found} named {top}; name one function of this file that is not static or unused")
    return symbols[0]


def _inline_arguments(text: str, stages: set[tuple[int, int]]) -> str:
    """Lets the calls in the arguments of a stage be inlined: `noinline` on a statement forbids it for all its calls."""
    kept = {f"#{group}" for group in re.findall(r"^attributes #(\d+) = \{ [^\n]*\bnoinline\b", text, re.MULTILINE)}
    places = re.findall(r"^(!\d+) = (?:distinct )?!DILocation\(line: (\d+), column: (\d+)", text, re.MULTILINE)
    of_stages = {node for node, line, column in places if (int(line), int(column)) in stages}

    def released(call: re.Match[str]) -> str:
        return call[1] + call[3] if call[2] in kept and call[4] not in of_stages else call[0]

    return re.sub(r"^(  [^\n]*\bcall [^\n]*\)) (#\d+)(, !dbg (!\d+)[^\n]*)$", released, text, flags=re.MULTILINE)


def compile_source(
    sources: Path | Sequence[Path],
    top: str,
    includes: tuple[Path, ...] = (),
    defines: tuple[str, ...] = (),
    directives: tuple[Directive, ...] = (),
    unrolled: frozenset[tuple[str, int]] = frozenset(),
    folded: frozenset[tuple[str, int]] = frozenset(),
) -> Compiled:
    """Several sources are one translation unit, in their order. `unrolled`: files and lines of loops that are unrolled
    if they have no pragmas. `folded`: files and lines of arithmetic that is computed at compile time where it can be,
    calls of math.h too; the loops around it are unrolled if they have no pragmas and are short.

    Raises Unsupported for a pragma outside the subset, WrongCpp for wrong C++.
    """
    # Absolute paths, so that pragmas and debug information call a file by one name.
    paths = [f"-I{SHIM}", f"-I{COMMON}", *(f"-I{include.resolve()}" for include in includes)]
    files = [sources] if isinstance(sources, Path) else list(sources)
    whole = "".join(f'#include "{file.resolve()}"\n' for file in files) if len(files) > 1 else None
    unit = str(files[0].resolve()) if whole is None else "-"
    # A file of C is compiled as C++, as the headers are.
    preprocess = [CLANG, *_CLANG_FLAGS, *paths, *(f"-D{each}" for each in defines), "-x", "c++", "-E", unit]

    def run_preprocessor(*more: str) -> str:
        return _run([*preprocess, *more], whole)

    preprocessed = run_preprocessor()
    if _MEMORY_CALL.search(preprocessed):
        preprocess += ["-include", str(SHIM / "openhls_memory.h")]
        preprocessed = run_preprocessor()
    rewriter = Source(with_tasks(preprocessed), lambda: run_preprocessor("-dM"), top, directives, unrolled, folded)
    folder = str(files[0].resolve().parent)
    optimised, symbol = _optimised(rewriter.text(), top, rewriter.notes.stages, folder, bool(folded))
    return Compiled(optimised, symbol, rewriter.notes)


def missing_switches(sources: Sequence[Path], includes: tuple[Path, ...], defines: tuple[str, ...]) -> list[str]:
    """Macros that the sources and their headers ask for to tell hardware from software, and that nobody defines."""
    paths = [f"-I{SHIM}", f"-I{COMMON}", *(f"-I{include.resolve()}" for include in includes)]
    flags = [*_CLANG_FLAGS, *paths, *(f"-D{each}" for each in defines), "-x", "c++", "-MM", "-MG"]
    done = subprocess.run([CLANG, *flags, *map(str, sources)], capture_output=True, text=True, check=False)
    names = done.stdout.replace("\\\n", " ").split() if done.returncode == 0 else [str(each) for each in sources]
    files = [Path(name) for name in dict.fromkeys(names) if is_users(str(Path(name).resolve()))]
    return switches((path for path in files if path.is_file()), defines)


_FOLDER = "/openhls-folder-of-the-source"


def _optimised(text: str, top: str, stages: set[tuple[int, int]], folder: str, folds: bool) -> tuple[str, str]:
    """LLVM IR of a preprocessed source, and the linker name of its top: made once for the same text in any folder.

    Debug information has the working directory."""
    markers = re.compile(rf'^(# \d+ "){re.escape(folder)}/', re.MULTILINE)
    text = markers.sub(rf"\1{_FOLDER}/", text)

    def make(place: Path) -> None:
        try:
            ir, symbol = _optimise(text, top, stages, folds)
        except WrongCpp as error:
            raise WrongCpp(str(error).replace(_FOLDER, folder), error.details.replace(_FOLDER, folder)) from None
        (place / "ir").write_text(ir)
        (place / "symbol").write_text(symbol)

    key: list[str | bytes] = [_versions(), Path(__file__).read_bytes(), top, repr(sorted(stages)), os.getcwd(), text]
    key += ["folds"] if folds else []
    kept = store.kept("llvm", key, make)
    ir = (kept / "ir").read_text().replace(f'filename: "{_FOLDER}/', f'filename: "{folder}/')
    return ir, (kept / "symbol").read_text()


@functools.cache
def _versions() -> str:
    return _run([CLANG, "--version"]) + _run([OPT, "--version"])


def _optimise(text: str, top: str, stages: set[tuple[int, int]], folds: bool) -> tuple[str, str]:
    # Calls of math.h are numbers then, where their arguments are.
    known = ["-fbuiltin", "-fno-math-errno"] if folds else []
    unoptimised = _run(
        [
            *(CLANG, *_CLANG_FLAGS, *known, "-x", "c++-cpp-output", "-O1", "-g", "-gcolumn-info", "-Xclang"),
            *("-disable-llvm-passes", "-S", "-emit-llvm", "-o", "-", "-"),
        ],
        text,
    )
    unoptimised = _inline_arguments(unoptimised, stages)
    symbol = _symbol(unoptimised, top)
    flags = [*_OPT_FLAGS, f"-internalize-public-api-list={symbol}", f"-passes={_PASSES}", "-S"]
    if folds:
        flags = [_SHORT.get(flag, flag) for flag in flags]
    return _run([OPT, *flags], unoptimised), symbol
