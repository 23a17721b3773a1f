"""More K and V than memory. Imports neither torch nor transformers: a process of its own starts with it."""

import hashlib
import resource
import sys
from pathlib import Path

import numpy as np

from kvdrive import abi
from kvdrive.kernels.native import scale_bits
from kvdrive.kvcache.session import Session
from kvdrive.targets.cpu import CpuDrive

MIB = 1 << 20
LAYERS, LAYER_MIB = 16, 8


def fill_and_attend(target, heads=2, d=128):
    """Write K and V of all layers to `target`; attend over each layer; return a digest of the outputs."""
    tokens = LAYER_MIB * MIB // (2 * heads * d * 2)
    rng, digest, session = np.random.default_rng(1), hashlib.sha256(), Session(target)
    for layer in range(LAYERS):
        for kind in abi.KvKind:
            session.append(layer, kind, 0, rng.standard_normal((heads, tokens, d), np.float32).astype(np.float16))
    q = rng.standard_normal((heads, 2, d)).astype(np.float16)
    for layer in range(LAYERS):
        digest.update(session.attend(layer, q, tokens, scale_bits(None, d)).out.tobytes())
    return digest.hexdigest()


def memory(name):
    """A value of /proc/self/status in bytes."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith(name + ":"))


def in_little_memory(path, most):
    """Do so on a drive at `path` with `most` more bytes of memory.

    Prints the digest, the most bytes that were used, and the bytes that were read from the file.
    """
    resource.setrlimit(resource.RLIMIT_DATA, (memory("VmData") + most,) * 2)
    Path("/proc/self/clear_refs").write_text("5")  # the peak starts here
    before = memory("VmHWM")
    with CpuDrive(path, 1, 1 << 28) as drive:
        print(fill_and_attend(drive), memory("VmHWM") - before, drive.stats().file_bytes_read)


if __name__ == "__main__":
    in_little_memory(Path(sys.argv[1]), int(sys.argv[2]))
