# SPDX-License-Identifier: Apache-2.0
"""Compile units and link them, through the store and, where installed, ccache."""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from compiled.recipe import PLAIN, ROOT, Flavour, Unit, family_of, kernels, units_of, units_of_family
from compiled.store import Store, key_of


class BuildError(Exception):
    """The compiler refused a source, or a tool is missing. The text says what to do."""


def objects(units: Sequence[Unit], store: Store | None = None, jobs: int | None = None) -> list[Path]:
    """The objects of units, in their order, compiled side by side. Raises BuildError."""
    place = store or Store()
    with ThreadPoolExecutor(jobs or os.cpu_count() or 1) as pool:
        return list(pool.map(lambda unit: _object(unit, place), units))


def shared_object(names: Sequence[str], store: Store | None = None) -> Path:
    """One shared object that has the kernels called so, and others of their families that are compiled already.

    Raises BuildError.
    """
    if unknown := [name for name in names if name not in kernels()]:
        raise BuildError(f"no kernel is called {unknown[0]}: choose one of {', '.join(kernels())}")
    place = store or Store()
    units: list[Unit] = []
    labels: list[str] = []
    for family in dict.fromkeys(family_of(name) for name in names):
        whole = is_made(family, place)
        members = [name for name in names if family_of(name) == family]
        units += units_of_family(family) if whole else [unit for name in members for unit in units_of(name)]
        labels += [family] if whole else members
    return link("+".join(labels), objects(units, place), PLAIN, executable=False, store=place)


def is_made(family: str, store: Store | None = None) -> bool:
    """True if the objects of a folder's kernels are there, compiled together."""
    place = store or Store()
    return all(place.find(unit.name, _key_of(unit), ".o") for unit in units_of_family(family))


def family_object(family: str, store: Store | None = None) -> Path:
    """One shared object of all kernels of a folder, in a third of the time of one for each. Raises BuildError."""
    return link(family, objects(units_of_family(family), store), PLAIN, executable=False, store=store)


def link(name: str, parts: Sequence[Path], flavour: Flavour, *, executable: bool, store: Store | None = None) -> Path:
    """A program or a shared object made of objects of the store. Raises BuildError."""
    flags = [*flavour.flags, *([] if executable else ["-shared", "-Wl,--no-undefined"])]
    key = key_of([compiler_version(flavour), *flags, *(part.name for part in parts)], [])
    command = [flavour.compiler, *flags, *map(str, parts), "-pthread"]
    suffix = "" if executable else ".so"
    return (store or Store()).get(name, key, suffix, lambda path: _run([*command, "-o", str(path)]))


def _key_of(unit: Unit) -> str:
    return key_of([compiler_version(unit.flavour), *unit.texts()], unit.files())


def _object(unit: Unit, store: Store) -> Path:
    def compile_to(path: Path) -> None:
        cached = [ccache] if (ccache := shutil.which("ccache")) else []
        _run([*cached, *unit.command(), "-c", os.path.relpath(_source(unit, store), ROOT), "-o", str(path)])

    return store.get(unit.name, _key_of(unit), ".o", compile_to)


def _source(unit: Unit, store: Store) -> Path:
    """The source of a unit, or one that includes all of them."""
    if len(unit.sources) == 1:
        return unit.sources[0]
    text = unit.text()

    def write(path: Path) -> None:
        path.write_text(text)

    return store.get(unit.name, key_of([text], []), ".cpp", write)


@functools.cache
def compiler_version(flavour: Flavour) -> str:
    """What identifies the compiler. Raises BuildError where it is not installed."""
    if shutil.which(flavour.compiler) is None:
        raise BuildError(
            f"{flavour.compiler} not found: install it with `{flavour.install}` in the source tree, "
            "or with this system's package manager"
        )
    asked = [flavour.compiler, "--version"]
    return subprocess.run(asked, capture_output=True, text=True, check=True).stdout


def _run(command: list[str]) -> None:
    environment = os.environ | {"CCACHE_BASEDIR": str(ROOT), "CCACHE_NOHASHDIR": "1"}
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT, env=environment)
    if done.returncode != 0:
        raise BuildError(f"{' '.join(command)}\n{done.stderr[-8000:]}")
