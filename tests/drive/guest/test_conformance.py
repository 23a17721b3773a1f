"""The drive conforms behind a stock Linux kernel: the checks run in the guest, through /dev/ngXnY."""

from pathlib import Path

import pytest
from guest_drive import GuestDrive, script

from guest import Guest
from guest.python import COMMAND, MEMORY_MIB, python_files

HERE = Path(__file__).resolve().parent
GOLDEN = HERE.parents[2] / "sim/golden"
pytestmark = [pytest.mark.xdist_group("guest"), pytest.mark.slow]


def test_every_command_conforms_through_the_passthrough(tmp_path, image):
    rig = GuestDrive(tmp_path / "drive.kv")
    files = {"passthrough.py": (HERE / "conformance.py").read_bytes()}
    oracle = {f"sim/golden/{path.name}": (path.read_bytes(), False) for path in GOLDEN.glob("*.py")}
    text = script("passthrough.sh", PYTHON=COMMAND)
    guest = Guest(image, text, files, rig.server.port, more=python_files() | oracle, memory_mib=MEMORY_MIB)
    said = guest.run()
    assert not [line for line in said if line.startswith(("error", "failed"))], guest.report(str(said))
    (counts,) = [line.split()[1:] for line in said if line.startswith("counts")]
    passed, failed, _ = map(int, counts)
    assert failed == 0
    assert passed > 70
    assert len([line for line in said if line.startswith("skipped: ")]) == 6
    assert rig.drive.check() == []
