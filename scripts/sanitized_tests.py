# SPDX-License-Identifier: Apache-2.0
"""Build the native extension with sanitizers (build/sanitized) and run tests with it, in this process's Python.

`thread` finds data races, `address` finds wrong memory accesses and undefined behaviour. Python itself is compiled
without them, so that their runtime is loaded ahead of it. Programs that tests start take the usual extension, where
that is an editable installation.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FLAGS = {"thread": "thread", "address": "address,undefined"}
RUNTIMES = {"thread": ("libtsan.so",), "address": ("libasan.so", "libubsan.so")}
OPTIONS = {
    "TSAN_OPTIONS": "second_deadlock_stack=1",
    "ASAN_OPTIONS": "detect_leaks=0:handle_segv=0",  # Python keeps objects to its end
    "UBSAN_OPTIONS": "print_stacktrace=1",
}
# An editable installation would bring its own extension.
START = """import sys
sys.meta_path[:] = [each for each in sys.meta_path if "ScikitBuild" not in type(each).__name__]
import kvdrive._native, pytest
print(kvdrive._native.__file__, flush=True)
sys.exit(pytest.main(sys.argv[1:]))"""


def build(name: str, jobs: int) -> Path:
    """A folder with the package kvdrive, whose extension has the sanitizers. Raises CalledProcessError with the
    compiler's words."""
    folder = ROOT / "build/sanitized" / name
    tools = Path(sys.executable).parent
    options = ["-DCMAKE_BUILD_TYPE=None", f"-DKVDRIVE_SANITIZE={FLAGS[name]}"]
    options += [f"-DPython_EXECUTABLE={sys.executable}", f"-DCMAKE_MAKE_PROGRAM={tools / 'ninja'}"]
    for step in (
        [tools / "cmake", "-S", ROOT, "-B", folder, "-G", "Ninja", *options],
        [tools / "cmake", "--build", folder, "-j", str(jobs), "--target", "_native"],
    ):
        subprocess.run(step, check=True, capture_output=True, text=True)
    package = folder / "host/kvdrive"
    shutil.rmtree(package, ignore_errors=True)
    package.mkdir(parents=True)
    for path in (ROOT / "host/kvdrive").iterdir():
        if path.suffix != ".so" and path.name != "__pycache__":
            (package / path.name).symlink_to(path)
    for path in folder.glob("_native*.so"):
        (package / path.name).symlink_to(path)
    return package.parent


def runtime(file: str) -> str:
    """A sanitizer's shared object of g++."""
    return subprocess.run(
        ["g++", f"-print-file-name={file}"], check=True, capture_output=True, text=True
    ).stdout.strip()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("sanitizer", choices=FLAGS)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="of the compiler")
    parser.add_argument("pytest", nargs=argparse.REMAINDER, help="arguments of pytest")
    arguments = parser.parse_args()
    try:
        host = build(arguments.sanitizer, arguments.jobs)
    except subprocess.CalledProcessError as error:
        sys.stderr.write(f"{error.stdout}\n{error.stderr}\n")
        return 2
    reports = host.parent / "reports"  # pytest keeps what tests print, and what ends the process with it
    shutil.rmtree(reports, ignore_errors=True)
    reports.mkdir()
    environment = os.environ | {name: f"{text}:log_path={reports}/report" for name, text in OPTIONS.items()}
    environment["LD_PRELOAD"] = ":".join(runtime(file) for file in RUNTIMES[arguments.sanitizer])
    environment["PYTHONPATH"] = f"{host}:{ROOT / 'sim'}"
    command = [sys.executable, "-c", START, "-p", "no:cacheprovider", *arguments.pytest]
    status = subprocess.run(command, env=environment, cwd=ROOT).returncode
    found = sorted(reports.iterdir())
    for path in found:
        sys.stderr.write(path.read_text(errors="replace")[:20_000])
    return status or int(bool(found))


if __name__ == "__main__":
    raise SystemExit(main())
