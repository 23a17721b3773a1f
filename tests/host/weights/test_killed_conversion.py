# SPDX-License-Identifier: Apache-2.0
"""SIGKILL while a file of weights is written: it has its name when it is whole, and the next conversion goes on."""

from __future__ import annotations

import subprocess
from contextlib import closing

import killed
import numpy as np
import pytest
import torch
from rich.console import Console
from small_models import CONFIGS, random_model

from kvdrive.errors import InputError
from kvdrive.generation.checkpoints import read_config
from kvdrive.targets.key_value import KeyValueNamespace
from kvdrive.targets.opening import DriveOptions, open_existing
from kvdrive.weights import drive_values, fingerprint
from kvdrive.weights.file import WeightsFile
from kvdrive.weights.making import make_file, put_on_drive

QUIET = Console(quiet=True)
ALL = pytest.param(1 << 30, marks=pytest.mark.slow)


@pytest.mark.parametrize("most", [6, ALL])
def test_a_kill_while_weights_are_converted_leaves_no_file_or_a_whole_one(tmp_path, most):
    folder, path = tmp_path / "checkpoint", tmp_path / "w.kvw"
    random_model(CONFIGS["llama"]).save_pretrained(folder)

    def convert():
        torch.set_num_threads(1)
        make_file(folder, path, "auto", QUIET)

    def begin():
        for one in (path, path.with_name(path.name + ".partial")):
            one.unlink(missing_ok=True)

    convert()
    whole = path.read_bytes()
    seen = set()
    try:
        for _ in killed.at_every_call(convert, begin, most):
            seen.add((path.exists(), path.with_name(path.name + ".partial").exists()))
            if path.exists():
                assert path.read_bytes() == whole
            convert()
            assert path.read_bytes() == whole
            assert WeightsFile(path).manifest is not None
            assert not path.with_name(path.name + ".partial").exists()
    except killed.NoTracingError:
        pytest.skip("this machine lets no process trace its child")
    assert (False, True) in seen
    assert (True, False) in seen


@pytest.mark.parametrize("most", [6, ALL])
def test_a_kill_while_weights_are_put_on_a_drive_leaves_none_or_whole_ones(tmp_path, most):
    """What else is on the drive stays. The advice that is given then, to put them there, helps."""
    folder, drives = tmp_path / "checkpoint", DriveOptions(folder=tmp_path / "drives", capacity_bytes=1 << 24)
    random_model(CONFIGS["llama"]).save_pretrained(folder)
    file = make_file(folder, tmp_path / "w.kvw", "auto", QUIET).path
    config = fingerprint.of_config(read_config(folder))
    put_on_drive(file, drives, QUIET)  # earlier ones of the same model
    with open_existing(drives) as group:
        KeyValueNamespace(group.drives[0]).store(b"mine", b"thesis", durable=True)
    kept, path = tmp_path / "kept.kv", drives.folder / "drive.kv"
    subprocess.run(["cp", "--sparse=always", path, kept], check=True)

    def begin():
        subprocess.run(["cp", "--sparse=always", kept, path], check=True)

    def work():
        torch.set_num_threads(1)
        put_on_drive(file, drives, QUIET)

    def missing():
        """What is said about weights that are not there; "" where they are there, whole."""
        with open_existing(drives) as group, closing(WeightsFile(file)) as wanted:
            values = KeyValueNamespace(group.drives[0])
            assert values.retrieve(b"mine") == b"thesis"
            try:
                manifest, table = drive_values.read_manifest(values, config, "the drive")
            except InputError as error:
                return str(error)
            assert manifest == wanted.manifest
            for array in manifest.arrays:
                for index in range(array.count):
                    place = drive_values.place_of(manifest, array, index)
                    data = values.retrieve(place.key)[place.offset : place.offset + array.stride]
                    drive_values.checked(np.frombuffer(data, np.uint8), array, table, index, manifest.piece_bytes, "it")
        return ""

    seen = set()
    try:
        for _ in killed.at_every_call(work, begin, most):
            said = missing()
            seen.add(said)
            if said:
                assert "`kvdrive convert --drive` puts them there" in said
                work()
                assert missing() == ""
    except killed.NoTracingError:
        pytest.skip("this machine lets no process trace its child")
    assert len(seen) == 2
    assert "" in seen
