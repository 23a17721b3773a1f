"""The generated files agree with abi/*.toml. The layouts are those that other programs rely on."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from kvdrive import abi
from kvdrive.nvme import wire
from kvdrive.nvme.command_set import COMMANDS

ROOT = Path(__file__).resolve().parents[2]


def generate(*arguments: str, root: Path = ROOT) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(root / "abi/generate.py"), *arguments]
    return subprocess.run(command, capture_output=True, text=True)


def copy_of_abi(folder: Path) -> Path:
    (folder / "abi").mkdir()
    for path in [*(ROOT / "abi").glob("*.toml"), *(ROOT / "abi").glob("*.py")]:
        (folder / "abi" / path.name).write_text(path.read_text())
    assert generate(root=folder).returncode == 0
    return folder


def test_generated_files_do_not_drift():
    result = generate("--check")
    assert result.returncode == 0, result.stderr


def test_check_notices_a_changed_constant(tmp_path):
    root = copy_of_abi(tmp_path)
    toml = root / "abi/abi.toml"
    toml.write_text(toml.read_text().replace("MAX_TOP_K = 16384", "MAX_TOP_K = 8192"))
    result = generate("--check", root=root)
    assert result.returncode == 1
    assert result.stderr.count("differs") == 4  # three modules and headers, and the header of the command set
    assert (root / "hls/common/abi.hpp").read_text() == (ROOT / "hls/common/abi.hpp").read_text()


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        ("UNKNOWN_TICKET =", "UNKNOWN_THING =", "no status is called UNKNOWN_THING"),
        ('opcode = "Opcode.KV_APPEND"', 'opcode = "Opcode.KV_PREPEND"', "no opcode is called Opcode.KV_PREPEND"),
        ("fields = { ticket =", "fields = { tickets =", "AttnFetch has no field tickets"),
    ],
)
def test_a_name_that_nothing_has_is_refused(tmp_path, before, after, message):
    root = copy_of_abi(tmp_path)
    toml = root / "abi/commands.toml"
    assert before in toml.read_text()
    toml.write_text(toml.read_text().replace(before, after))
    result = generate(root=root)
    assert result.returncode != 0
    assert message in result.stderr


FIRMWARE = """
#include "kvdrive_commands.h"
#include <stddef.h>
#include <stdio.h>
#define ROW(name, nsid, opcode, data) printf("%s %d %d %d\\n", #name, nsid, opcode, data);
int main(void) {
  KVDRIVE_COMMAND_TABLE(ROW)
  printf("crc32c %d status %d\\n", (int)offsetof(kvdrive_kv_append, crc32c), (int)KVDRIVE_STATUS_UNKNOWN_TICKET);
  return 0;
}
"""


@pytest.mark.parametrize("standard", ["c99", "c11", "c++98"])
def test_the_header_for_firmware_compiles_and_has_the_same_table(tmp_path, standard):
    (tmp_path / "main.c").write_text(FIRMWARE)
    compiler = ["g++", "-x", "c++", "-Wno-long-long"] if standard == "c++98" else ["gcc"]
    flags = [f"-std={standard}", "-Wall", "-Wextra", "-Werror", "-pedantic", f"-I{ROOT}/abi"]
    subprocess.run([*compiler, *flags, tmp_path / "main.c", "-o", tmp_path / "main"], check=True)
    said = subprocess.run([tmp_path / "main"], capture_output=True, text=True, check=True).stdout.splitlines()
    directions = ("none", "to_controller", "to_host")
    rows = [f"{n} {row.namespace} {row.opcode} {directions.index(row.direction)}" for n, row in COMMANDS.items()]
    assert said == [*rows, f"crc32c {abi.KvAppend.fields['crc32c'][1]} status {abi.NvmeStatus.UNKNOWN_TICKET:d}"]


def test_check_notices_an_edited_output(tmp_path):
    root = copy_of_abi(tmp_path)
    (root / "hls/common/abi.hpp").write_text("// edited\n")
    assert generate("--check", root=root).returncode == 1


def test_misaligned_field_is_refused(tmp_path):
    root = copy_of_abi(tmp_path)
    toml = root / "abi/abi.toml"
    toml.write_text(toml.read_text().replace('"version:u16", "mode:u8"', '"mode:u8", "version:u16"'))
    result = generate(root=root)
    assert result.returncode != 0
    assert "not aligned" in result.stderr


def test_layouts_have_the_sizes_of_the_nvme_and_job_formats():
    assert abi.Sqe.itemsize == abi.SQE_BYTES == 64
    assert abi.Cqe.itemsize == abi.CQE_BYTES == 16
    assert abi.Sqe.fields["prp1"][1] == 24
    assert abi.Sqe.fields["cdw10"][1] == 40
    assert abi.AttentionJob.itemsize == 2 * abi.BEAT_BYTES


def test_nvme_layouts_have_the_offsets_of_the_specification():
    controller = {
        "cntlid": 78,
        "oacs": 256,
        "kas": 320,
        "sqes": 512,
        "sgls": 536,
        "subnqn": 768,
        "ioccsz": 1792,
        "psd": 2048,
    }
    assert {name: wire.IdentifyController.fields[name][1] for name in controller} == controller
    namespace = {"nsfeat": 24, "nvmcap": 48, "nguid": 104, "eui64": 120, "lbaf": 128}
    assert {name: wire.IdentifyNamespace.fields[name][1] for name in namespace} == namespace
    assert wire.SmartLog.fields["data_units_read"][1] == 32
    assert wire.SmartLog.fields["error_entries"][1] == 176


def test_exp2_tables_are_powers_of_two_and_their_derivatives():
    exponent = np.arange(64) / 64
    assert np.array_equal(abi.EXP2_C0, np.rint(2**exponent * 2**abi.EXP2_C0_BITS))
    assert np.array_equal(abi.EXP2_C1, np.rint(2**exponent * np.log(2) * 2**abi.EXP2_C1_BITS))
    assert np.array_equal(abi.EXP2_C2, np.rint(2**exponent * np.log(2) ** 2 / 2 * 2**abi.EXP2_C2_BITS))
