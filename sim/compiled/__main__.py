# SPDX-License-Identifier: Apache-2.0
"""The shared object of kernels: `python sim/compiled attention_g4` prints its path, made now where it is missing."""

from __future__ import annotations

import argparse
import itertools
import shutil
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from compiled.build import BuildError, family_object, is_made, shared_object
from compiled.recipe import family_of, kernels

_SOON = 1.0  # seconds: what is ready by then is not worth a line


def main() -> int:
    parser = argparse.ArgumentParser(prog="compiled", description=__doc__)
    parser.add_argument("kernels", nargs="*", metavar="KERNEL")
    parser.add_argument("--list", action="store_true", help="print the names of all kernels, and make none")
    parser.add_argument("--all", action="store_true", help="make all kernels, those of a folder in one shared object")
    parser.add_argument("--jobs", type=int, default=1, help="folders at a time, with --all")
    parser.add_argument("--out", type=Path, help="copy each shared object to this folder, as KERNEL.so")
    options = parser.parse_args()
    if options.list:
        print("\n".join(kernels()))
        return 0
    if options.all:
        return make_all(options.jobs)
    try:
        for number, name in enumerate(options.kernels):
            with Progress(name, number + 1, len(options.kernels)):
                path = shared_object([name])
            if options.out:
                options.out.mkdir(parents=True, exist_ok=True)
                path = Path(shutil.copyfile(path, options.out / f"{name}.so"))
            print(path)
    except (BuildError, OSError) as error:
        print(f"the kernel {name} cannot be compiled: {error}")
        return 1
    except KeyboardInterrupt:
        print(f"the kernel {name} was not compiled: start again")
        return 130
    return 0


def make_all(jobs: int) -> int:
    """Make all kernels that are missing. Prints one line of ninja's form for each folder. Returns the exit status."""
    families = list(dict.fromkeys(family_of(name) for name in kernels()))
    missing = [family for family in families if not is_made(family)]
    done = itertools.count(1)

    def make(family: str) -> str:
        try:
            family_object(family)
        except (BuildError, OSError) as error:
            return f"the kernels of hls/{family} cannot be compiled: {error}"
        print(f"[{next(done)}/{len(missing)}] kernels of hls/{family} compiled", flush=True)
        return ""

    with ThreadPoolExecutor(jobs) as pool:
        failed = [text for text in pool.map(make, missing) if text]
    print("\n".join(failed[:1]), end="\n" if failed else "", flush=True)
    return 1 if failed else 0


class Progress:
    """A line on standard error while a kernel is compiled, with the elapsed time on a terminal."""

    def __init__(self, name: str, number: int, count: int) -> None:
        of = f" ({number} of {count})" if count > 1 else ""
        self._text = f"kvdrive: compiling the kernel {name}{of}, once ..."
        self._begin = time.monotonic()
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._show, daemon=True)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join()

    def _show(self) -> None:
        if self._end.wait(_SOON):
            return
        terminal = sys.stderr.isatty()
        print(self._text, end="", file=sys.stderr, flush=True)
        while not self._end.wait(0.5):
            if terminal:
                print(f"\r{self._text} {self._seconds()} s", end="", file=sys.stderr, flush=True)
        print(f"\r{self._text} {self._seconds()} s" if terminal else f" {self._seconds()} s", file=sys.stderr)

    def _seconds(self) -> int:
        return round(time.monotonic() - self._begin)


if __name__ == "__main__":
    sys.exit(main())
