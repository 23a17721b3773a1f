"""Run clang-tidy over every C++ source of the tree, with the flags of the native build or of a csim build.

A source that is clean is remembered by its content and that of the headers it includes (build/tidy): a second call
looks at what changed.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import subprocess
import sys
import sysconfig
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from csim.ap_headers import ap_headers

ROOT = Path(__file__).resolve().parent.parent
LLAMA_HEADERS = ROOT / "build" / "llama" / "include"
CACHE = ROOT / "build/tidy"
SAYS_S = 20.0  # between two lines of progress


def flags(source: Path) -> list[str]:
    """Compiler flags for one source: kernels are C++17, the drive is C++20 with Python's and nanobind's headers."""
    import nanobind

    kernel = source.is_relative_to(ROOT / "hls")
    common = [
        "-std=c++17" if kernel else "-std=c++20",
        f"-I{ROOT}/hls",
        f"-I{ROOT}/sim/drive",
        f"-isystem{ap_headers()}",
    ]
    # The vendor's pragmas are unknown to clang, by design.
    common += ["-Wno-unknown-pragmas", "-Wno-unused-label"]
    if source.stem.endswith("_avx2"):
        common += ["-mavx2", "-mfma", "-mf16c"]
    if source.stem.endswith(("_avx512", "_avx512_vnni")):
        common += ["-mavx2", "-mfma", "-mf16c", "-mavx512f", "-mavx512bw", "-mavx512dq", "-mavx512vl", "-mavx512vnni"]
    if source.stem.endswith("_neon"):
        common += ["--target=aarch64-linux-gnu"]
    if source.parent.name == "fuzz":  # the header of the sanitizers comes with g++
        found = subprocess.run(["g++", "-print-file-name=include"], capture_output=True, text=True, check=True)
        common += ["-idirafter", found.stdout.strip()]
    if "xrt" in source.parts and (headers := xrt_headers()):
        common += [f"-isystem{headers}"]
    if "llama_cpp" in source.parts:
        common += [f"-isystem{LLAMA_HEADERS}"]
    if "binding" in source.parts:
        common += [f"-isystem{sysconfig.get_paths()['include']}", f"-isystem{nanobind.include_dir()}"]
    return common


def xrt_headers() -> Path | None:
    """The folder with the headers of the vendor's runtime, where CMakeLists.txt looks for them; None without one."""
    places = (Path(os.environ.get("XILINX_XRT", "/usr")) / "include", Path("/usr/include"), Path("/usr/include/xrt"))
    return next((place for place in places if (place / "xrt/xrt_device.h").exists()), None)


def needs_xrt(source: Path) -> bool:
    """True if a source is built only where the vendor's runtime is installed."""
    return source.stem in ("xrt_card", "pyxrt")


def key(source: Path, tools: bytes) -> str:
    """Hash of a source, of all headers of this tree that it includes, of its flags, and of `tools`."""
    total = hashlib.sha256(tools + repr([str(source.relative_to(ROOT)), *flags(source)]).encode())
    asked = ["clang++-19", "-MM", *flags(source), str(source)]
    rule = subprocess.run(asked, capture_output=True, text=True, cwd=ROOT)
    if rule.returncode:  # clang-tidy says why
        return ""
    for name in sorted(set(rule.stdout.replace("\\\n", " ").split(":", 1)[1].split())):
        total.update(name.encode() + b"\0" + hashlib.sha256((ROOT / name).read_bytes()).digest())
    return total.hexdigest()


def tidy(source: Path, tools: bytes) -> tuple[Path, str]:
    """Findings of one source, empty when clean."""
    name = key(source, tools)
    stamp = CACHE / name
    if name and stamp.exists():
        return source, ""
    # The path analyzer takes minutes in the vendor's wide integers and all its findings are inside them.
    vendor = "hls" in source.relative_to(ROOT).parts
    checks = ["--checks=-clang-analyzer-*"] if vendor else []
    command = ["clang-tidy-19", "--quiet", *checks, str(source), "--", *flags(source)]
    run = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    if run.returncode == 0:
        if name:
            stamp.touch()
        return source, ""
    return source, run.stdout + run.stderr


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=2, help="processes at a time")
    jobs = parser.parse_args().jobs
    CACHE.mkdir(parents=True, exist_ok=True)
    sources = sorted([*ROOT.glob("hls/**/*.cpp"), *ROOT.glob("sim/drive/**/*.cpp")])
    if LLAMA_HEADERS.exists():
        sources += sorted(ROOT.glob("host/llama_cpp/*.cpp"))
    else:
        print("clang-tidy: llama.cpp's headers are missing (make get WHAT=llama); host/llama_cpp is left out")
    if xrt_headers() is None:
        print("clang-tidy: XRT is not installed; the sources that need it are left out")
        sources = [source for source in sources if not needs_xrt(source)]
    version = subprocess.run(["clang-tidy-19", "--version"], capture_output=True, check=True).stdout
    tools, failed, said = version + (ROOT / ".clang-tidy").read_bytes(), 0, time.monotonic()
    with ThreadPoolExecutor(jobs) as pool:
        for done, (source, findings) in enumerate(pool.map(lambda s: tidy(s, tools), sources)):
            if time.monotonic() > said + SAYS_S:
                said = time.monotonic()
                print(f"clang-tidy: {done} of {len(sources)} sources", flush=True)
            if findings:
                failed += 1
                print(f"{source.relative_to(ROOT)}\n{findings}", file=sys.stderr)
    print(f"clang-tidy: {len(sources)} sources, {failed} with findings")
    return 1 if failed else 0


if __name__ == "__main__":
    raise SystemExit(main())
