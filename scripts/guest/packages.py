"""Debian packages, fetched and checked by apt, unpacked into a folder."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

TIMEOUT_S = 300


class PackagesUnavailableError(Exception):
    """Packages could not be fetched. The message is one sentence."""


def run(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise PackagesUnavailableError(f"{command[0]}: {last}")
    return done.stdout


class Apt:
    """Runs apt without root rights, with the system's sources and a separate cache."""

    def __init__(self, cache: Path) -> None:
        for program in ("apt-get", "apt-cache", "dpkg-deb"):
            if shutil.which(program) is None:
                raise PackagesUnavailableError(f"there is no {program} on this system")
        self.cache = cache
        (cache / "partial").mkdir(parents=True, exist_ok=True)
        self.options = ["-o", "Debug::NoLocking=1", "-o", f"Dir::Cache::archives={cache}"]
        self.options += ["-o", "APT::Sandbox::User="]

    def update(self) -> None:
        """Fetch the lists of packages into the cache. Needed only if the system's lists are missing or too old."""
        lists = self.cache / "lists"
        (lists / "partial").mkdir(parents=True, exist_ok=True)
        self.options += ["-o", f"Dir::State::lists={lists}", "-o", "Dir::Cache::pkgcache=", "-o"]
        self.options += ["Dir::Cache::srcpkgcache="]
        run("apt-get", *self.options, "-qq", "update")

    def kernel(self) -> str:
        """Name of the newest kernel's package."""
        text = run("apt-cache", *self.options, "depends", "linux-image-amd64")
        found = re.search(r"Depends: (linux-image-\S+)", text)
        if found is None:
            raise PackagesUnavailableError("linux-image-amd64 names no kernel: the guest needs Debian's packages")
        return found[1]

    def fetch(self, *names: str) -> None:
        """Fetch the packages and their dependencies that this system does not have."""
        command = ["-qq", "-y", "--no-install-recommends", "--download-only", "install"]
        run("apt-get", *self.options, *command, *names)

    def fetch_alone(self, name: str) -> Path:
        """Fetch one package without its dependencies."""
        text = run("apt-get", *self.options, "-qq", "--print-uris", "download", name)
        url, file = re.match(r"'([^']+)' (\S+)", text).groups()  # type: ignore[union-attr]
        target = self.cache / file
        if not target.exists():
            done = subprocess.run(
                ["apt-get", *self.options, "-qq", "download", name],
                cwd=self.cache, capture_output=True, text=True, timeout=TIMEOUT_S, check=False,
            )  # fmt: skip
            if done.returncode or not target.exists():
                raise PackagesUnavailableError(f"apt-get could not fetch {url}")
        return target


def unpack(package: Path, root: Path, *patterns: str) -> None:
    """Unpack all files of a package, or only those that match `patterns`."""
    root.mkdir(parents=True, exist_ok=True)
    if not patterns:
        run("dpkg-deb", "--extract", str(package), str(root))
        return
    with subprocess.Popen(["dpkg-deb", "--fsys-tarfile", str(package)], stdout=subprocess.PIPE) as archive:
        command = ["tar", "-x", "-C", str(root), "--wildcards", *patterns]
        subprocess.run(command, stdin=archive.stdout, check=True, timeout=TIMEOUT_S)
