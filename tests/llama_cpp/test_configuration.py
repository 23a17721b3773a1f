"""What the plugin refuses, and how: a sentence, and llama.cpp goes on or ends by itself."""

import os
import re
import shutil
import subprocess
import sys

import numpy as np
import pytest
from llama_host import LLAMA, PLUGIN, Host, compile_host, decode, divergences, one_by_one, tokens


@pytest.mark.parametrize(
    ("variables", "sentence"),
    [
        ({"KVDRIVE_DRIVE": ""}, "set KVDRIVE_DRIVE to the drive's file"),
        ({"KVDRIVE_DRIVE": "tcp://there:4420"}, "is a drive elsewhere, which llama.cpp cannot use yet"),
        ({"KVDRIVE_DRIVE": "nvme:/dev/ng0n1"}, "is a drive elsewhere, which llama.cpp cannot use yet"),
        ({"KVDRIVE_DRIVE": "one.kv,two.kv"}, "names several drives, which llama.cpp cannot use yet"),
        ({"KVDRIVE_DRIVE": "/no/such.sock"}, "no drive is served at KVDRIVE_DRIVE=/no/such.sock: start `kvdrive drive"),
        ({"KVDRIVE_DRIVE": "/no/such/folder/d.kv"}, "lies in no folder that exists: make /no/such/folder"),
        ({"KVDRIVE_DRIVE": "/dev/null"}, "/dev/null"),
        ({"KVDRIVE_FORMAT": "q8_0"}, "KVDRIVE_FORMAT=q8_0 is no format: use f16, int8 or int4"),
        ({"KVDRIVE_ATTENTION": "sparf"}, "KVDRIVE_ATTENTION=sparf is no policy: use exact or groups"),
        ({"KVDRIVE_ATTENTION": "groups"}, "KVDRIVE_RATIO= is no share in (0, 1]: write it as 1/8 or 0.125"),
        ({"KVDRIVE_ATTENTION": "groups", "KVDRIVE_RATIO": "9/8"}, "KVDRIVE_RATIO=9/8 is no share"),
        ({"KVDRIVE_ATTENTION": "groups", "KVDRIVE_RATIO": "0.5", "KVDRIVE_UNREAD": "1"}, "KVDRIVE_UNREAD=1 is no"),
        ({"KVDRIVE_RATIO": "1/8"}, "exact attention reads everything: set KVDRIVE_ATTENTION=groups"),
        ({"KVDRIVE_CAPACITY": "16 GB"}, "KVDRIVE_CAPACITY=16 GB is no size: write a number and K, M, G or T"),
        ({"KVDRIVE_CAPACITY": "99999999999T"}, "is no size"),
        ({"KVDRIVE_CAPACITY": "1M"}, "KVDRIVE_CAPACITY is less than 4M"),
        ({"KVDRIVE_CACHE": "-1"}, "KVDRIVE_CACHE=-1 is no size"),
        ({"KVDRIVE_THREADS": "0"}, "KVDRIVE_THREADS=0 is no number from 1 to 256"),
    ],
)
def test_a_wrong_value_is_a_sentence_and_no_context(host, drive, variables, sentence):
    done = host.run([decode(tokens(3))], drive=drive, **variables)
    assert (done.code, done.lines) == (4, ["no context"])
    assert sentence in done.errors
    assert not drive.exists()


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"type": 8}, "not in q8_0: leave -ctk and -ctv out"),
        ({"fa": "off"}, "switch flash attention on (-fa on)"),
        ({"ctx": 131072 + 256}, "the drive takes at most 131072 tokens of a sequence"),
    ],
)
def test_what_cannot_be_served_is_refused_before_a_context_exists(host, drive, options, sentence):
    done = host.run([decode(tokens(3))], drive=drive, **options)
    assert (done.code, done.lines) == (4, ["no context"])
    assert sentence in done.errors


def test_a_drive_that_another_process_has_is_refused(host, drive):
    from kvdrive.targets.cpu import CpuDrive

    with CpuDrive(drive, threads=1):
        done = host.run([decode(tokens(3))], drive=drive)
    assert (done.code, done.lines) == (4, ["no context"])
    assert "kvdrive: " in done.errors


def test_an_unknown_release_of_ggml_keeps_k_and_v_in_memory(parts, drive, tmp_path):
    libraries = tmp_path / "bin"
    shutil.copytree(LLAMA / "bin", libraries, symlinks=True)
    base = libraries / "libggml-base.so"
    changed, count = re.subn(
        rb"\x000\.\d\d\.(\d)\x00", lambda found: b"\x000.99." + found[1] + b"\x00", base.read_bytes()
    )
    assert count == 1
    base.write_bytes(changed)
    program = tmp_path / "host"
    compile_host(program, libraries)
    done = Host(program, parts[1], tmp_path).run([decode(tokens(20))], drive=drive)
    assert (done.code, done.lines) == (0, ["ok"])
    assert re.search(r"not tested with this llama.cpp \(ggml 0\.99\.\d\): use ggml 0\.25\.1, ", done.errors)
    assert "K and V stay in memory" in done.errors
    assert not drive.exists()


def test_a_process_that_hides_llama_cpps_symbols_loads_the_plugin(built, drive):
    """As Python packages do: libraries that are loaded later do not see ggml's functions."""
    script = f"""
import ctypes
ggml = ctypes.CDLL({str(LLAMA / "bin" / "libggml.so")!r}, mode=ctypes.RTLD_LOCAL)
ggml.ggml_backend_load.restype = ctypes.c_void_p
print(ggml.ggml_backend_load({str(PLUGIN)!r}.encode()) is not None, ggml.ggml_backend_dev_count())
"""
    done = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        env=os.environ | {"KVDRIVE_DRIVE": str(drive), "KVDRIVE_CAPACITY": "3G"},
    )
    assert done.stdout.splitlines()[-1:] == ["True 1"], done.stderr
    assert "kvdrive:" not in done.stderr


@pytest.mark.parametrize(("form", "least", "most"), [("int8", 1e-6, 0.005), ("int4", 0.005, 0.2)])
def test_rows_in_fewer_bits(host, drive, form, least, most):
    numbers = tokens(608)
    commands = [decode(numbers[:600]), *one_by_one(numbers[600:], 600)]
    exact = host.run(commands, fa="off")
    stored = host.run(commands, drive=drive, KVDRIVE_FORMAT=form)
    assert stored.lines == ["ok"] * len(commands), stored.errors
    assert least < np.median(divergences(exact.logits, stored.logits)) < most


def test_a_step_over_fewer_bits_reads_less(host, tmp_path):
    def bytes_read(form: str, commands: list[str]) -> int:
        done = host.run(commands, drive=tmp_path / form, KVDRIVE_FORMAT=form)
        drive = done.counters["drive"]
        return 4096 * drive["pages_read"] + drive["staged_bytes_read"]

    prompt, step = [decode(tokens(1000))], one_by_one(tokens(1), 1000)
    f16, int8, int4 = (bytes_read(form, prompt + step) - bytes_read(form, prompt) for form in ("f16", "int8", "int4"))
    assert int8 < 0.55 * f16
    assert int4 < 0.6 * int8
