"""`kvdrive doctor` where the packages of the extras are missing: it says so, so it cannot need them."""

import subprocess
import sys

EXTRAS = ("torch", "transformers", "tokenizers", "safetensors", "accelerate", "matplotlib", "starlette", "gguf")
CALL = f"""
import sys
sys.modules.update(dict.fromkeys({EXTRAS}))  # None: an import of it fails as if it were not installed
sys.argv = ["kvdrive", "doctor"]
from kvdrive.cli.main import main
main()
"""


def test_doctor_needs_no_extra() -> None:
    done = subprocess.run([sys.executable, "-c", CALL], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "hls and fast give the golden model's bits" in done.stdout
