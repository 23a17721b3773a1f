"""Run clang-tidy over every C++ source of the tree, with the flags of the native build or of a csim build.

Results are remembered by content (build/tidy), so that a second call only looks at what changed.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import subprocess
import sys
import sysconfig
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from csim.ap_headers import ap_headers

ROOT = Path(__file__).resolve().parent.parent
LLAMA_HEADERS = ROOT / "build" / "llama" / "include"
CACHE = ROOT / "build/tidy"


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


def digest_of_tree() -> bytes:
    """Hash of all headers and of the configuration: any change there invalidates every result."""
    total = hashlib.sha256((ROOT / ".clang-tidy").read_bytes())
    for header in sorted([*ROOT.glob("hls/**/*.hpp"), *ROOT.glob("sim/drive/**/*.hpp")]):
        total.update(header.read_bytes())
    return total.digest()


def tidy(source: Path, tree: bytes) -> tuple[Path, str]:
    """Findings of one source, empty when clean."""
    stamp = CACHE / hashlib.sha256(tree + str(source).encode() + source.read_bytes()).hexdigest()
    if stamp.exists():
        return source, ""
    # The path analyzer takes minutes in the vendor's wide integers and all its findings are inside them.
    vendor = "hls" in source.relative_to(ROOT).parts
    checks = ["--checks=-clang-analyzer-*"] if vendor else []
    command = ["clang-tidy-19", "--quiet", *checks, str(source), "--", *flags(source)]
    run = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    if run.returncode == 0:
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
    tree, failed = digest_of_tree(), 0
    with ThreadPoolExecutor(jobs) as pool:
        for source, findings in pool.map(lambda s: tidy(s, tree), sources):
            if findings:
                failed += 1
                print(f"{source.relative_to(ROOT)}\n{findings}", file=sys.stderr)
    print(f"clang-tidy: {len(sources)} sources, {failed} with findings")
    return 1 if failed else 0


if __name__ == "__main__":
    raise SystemExit(main())
