"""Files of weights: conversions, and what is said about files that cannot be used."""

import shutil
from dataclasses import replace

import moe_models
import numpy as np
import pytest
import torch
from pairs import by_value
from rich.console import Console
from small_models import CONFIGS, random_model

from kvdrive.errors import InputError, TargetError, UnsupportedError
from kvdrive.generation.checkpoints import read_config
from kvdrive.weights import convert, fingerprint
from kvdrive.weights.bundles import PAGE, place_parts
from kvdrive.weights.file import WeightsFile, aligned
from kvdrive.weights.layout import plan
from kvdrive.weights.making import make_file
from kvdrive.weights.manifest import Manifest, read_front
from kvdrive.weights.origin import check_origin
from kvdrive.weights.sources import LoadedSource, SafetensorsSource, empty_model

QUIET = Console(quiet=True)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return moe_models.save("mixtral", tmp_path_factory.mktemp("mixtral"), shard="200KB")


@pytest.fixture(scope="module")
def weights(folder, tmp_path_factory):
    return make_file(folder, tmp_path_factory.mktemp("weights") / "w.kvw", "auto", QUIET).path


@pytest.fixture
def copy(weights, tmp_path):
    return shutil.copy(weights, tmp_path / "copy.kvw")


def manifest_of(folder, **changes):
    config = read_config(folder)
    model = empty_model(config)
    source = SafetensorsSource(folder, model)
    made = plan(model, source, fingerprint.of_config(config), fingerprint.of_source(folder))
    return replace(made, **changes), source


def numbers(file, array, index):
    memory = aligned(array.stride)
    file.read(array, index, memory)
    return {part.name: part.view(torch.from_numpy(memory)) for part in array.parts}


@by_value({"name": moe_models.CONFIGS, "dtype": [torch.float32, torch.bfloat16]})
def test_bundles_hold_the_parameters_of_the_checkpoint(name, dtype, tmp_path):
    folder = moe_models.save(name, tmp_path / "model", dtype)
    file = WeightsFile(make_file(folder, tmp_path / "w.kvw", "auto", QUIET).path)
    expected = moe_models.in_memory(folder, dtype).state_dict()
    for array in file.manifest.experts:
        assert array.stride % PAGE == 0
        bundles = [numbers(file, array, expert) for expert in range(array.count)]
        for part in array.parts:
            assert torch.equal(
                torch.stack([one[part.name] for one in bundles]), expected.pop(f"{array.name}.{part.name}")
            )
    for array in file.manifest.resident:
        assert torch.equal(numbers(file, array, 0)[array.name], expected.pop(array.name))
    assert not expected


def test_parts_begin_where_vectors_can_be_loaded():
    parts, stride = place_parts([("a", "bfloat16", (3, 5)), ("b", "float32", (7,))])
    assert [(part.name, part.offset, part.bytes) for part in parts] == [("a", 0, 30), ("b", 64, 28)]
    assert stride == PAGE


def test_a_manifest_survives_its_bytes(folder):
    manifest, _ = manifest_of(folder)
    assert Manifest.from_bytes(manifest.to_bytes()) == manifest


def test_a_stopped_conversion_goes_on(folder, weights, tmp_path):
    manifest, source = manifest_of(folder)
    path = tmp_path / "w.kvw"

    def stop(done, total):
        if done == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        convert.write(manifest, source, path, stop)
    assert not path.exists()
    with pytest.raises(InputError, match=r"has not ended: 2 of \d+ parts are there"):
        WeightsFile(path.with_name("w.kvw.partial"))
    reads = []
    again = SafetensorsSource(folder, empty_model(read_config(folder)))
    again_read = again.read
    again.read = lambda name: reads.append(name) or again_read(name)
    assert convert.write(manifest, again, path) == 2
    assert not any(name.startswith(("model.layers.0.mlp.experts", "model.layers.1.mlp.experts")) for name in reads)
    assert path.read_bytes() == weights.read_bytes()
    assert not path.with_name("w.kvw.partial").exists()


def test_a_stopped_conversion_of_another_checkpoint_begins_anew(folder, tmp_path):
    manifest, source = manifest_of(folder)
    path = tmp_path / "w.kvw"
    partial = path.with_name("w.kvw.partial")
    convert.write(replace(manifest, source="0" * 64), source, path)
    path.rename(partial)
    manifest, source = manifest_of(folder)
    assert convert.write(manifest, source, path) == 0


def test_two_conversions_do_not_write_one_file(folder, weights, tmp_path):
    manifest, source = manifest_of(folder)
    path = tmp_path / "w.kvw"
    refused = []

    def again(done, total):
        if done == 1:
            with pytest.raises(InputError, match=r"another conversion writes .*w\.kvw\.partial") as error:
                convert.write(*manifest_of(folder), path)
            refused.append(error)

    assert convert.write(manifest, source, path, again) == 0
    assert len(refused) == 1
    assert path.read_bytes() == weights.read_bytes()


def test_a_conversion_that_ends_while_another_one_begins_keeps_its_file(folder, weights, tmp_path, monkeypatch):
    path = shutil.copy(weights, tmp_path / "w.kvw.partial")
    lock = convert.fcntl.flock

    def ends(file, how):
        path.replace(tmp_path / "w.kvw")
        lock(file, how)

    monkeypatch.setattr(convert.fcntl, "flock", ends)
    with pytest.raises(InputError, match="another conversion writes"):
        convert.write(*manifest_of(folder), tmp_path / "w.kvw")
    assert (tmp_path / "w.kvw").read_bytes() == weights.read_bytes()


def test_a_full_disk_is_refused_before_anything_is_written(folder, tmp_path, monkeypatch):
    manifest, source = manifest_of(folder)
    usage = shutil.disk_usage(tmp_path)._replace(free=manifest.file_bytes - 1)
    monkeypatch.setattr(convert.shutil, "disk_usage", lambda path: usage)
    with pytest.raises(InputError, match=r"the weights take .* MiB and the disk of .* has .* left"):
        convert.write(manifest, source, tmp_path / "w.kvw")
    assert not list(tmp_path.iterdir())


def test_other_files_are_no_weights(tmp_path):
    path = tmp_path / "w.kvw"
    with pytest.raises(InputError, match="cannot read the weights"):
        WeightsFile(path)
    for contents in (b"", b"text", bytes(3 * PAGE)):
        path.write_bytes(contents)
        with pytest.raises(InputError, match="is no file of weights"):
            WeightsFile(path)


def test_every_bit_of_header_manifest_and_data_is_checked(copy):
    with copy.open("rb") as file:
        header, manifest, _ = read_front(file, copy)
    array = manifest.experts[1]
    data = array.bundle(5) + 100
    places = {20: "header", PAGE + 9: "manifest", header.table_offset: "bundle 0 of", data: "bundle 5 of"}

    def read_everything():
        file = WeightsFile(copy)
        for index in range(array.count):
            numbers(file, manifest.experts[0], index)
            numbers(file, array, index)

    for place, error in places.items():
        contents = bytearray(copy.read_bytes())
        contents[place] ^= 4
        copy.write_bytes(contents)
        with pytest.raises((InputError, TargetError), match=error):
            read_everything()
        contents[place] ^= 4
        copy.write_bytes(contents)
    read_everything()


def test_a_truncated_file_is_refused(copy):
    with copy.open("r+b") as file:
        file.truncate(copy.stat().st_size - PAGE)
    with pytest.raises(InputError, match="is truncated"):
        WeightsFile(copy)
    with copy.open("r+b") as file:
        file.truncate(PAGE + 100)
    with pytest.raises(InputError, match=r"the manifest of .* is damaged"):
        WeightsFile(copy)


def test_weights_of_another_checkpoint_are_refused(folder, weights, tmp_path):
    other = moe_models.save("mixtral", tmp_path / "other", seed=2)
    file = WeightsFile(weights)
    check_origin(file, read_config(folder), folder)
    with pytest.raises(InputError, match="was made from another checkpoint"):
        check_origin(file, read_config(other), other)
    for path in other.glob("*.safetensors"):
        path.unlink()  # only the configuration is left to compare
    check_origin(file, read_config(other), other)
    config = read_config(other)
    config.rope_parameters["rope_theta"] = 3.0
    with pytest.raises(InputError, match="was made from another checkpoint"):
        check_origin(file, config, other)


def test_the_fingerprint_sees_every_weight_file(folder, tmp_path):
    other = shutil.copytree(folder, tmp_path / "other")
    assert fingerprint.of_source(other) == fingerprint.of_source(folder)
    last = sorted(other.glob("*.safetensors"))[-1]
    contents = bytearray(last.read_bytes())
    contents[-1] ^= 1
    last.write_bytes(contents)
    assert fingerprint.of_source(other) != fingerprint.of_source(folder)


def test_models_without_experts_and_known_layers_are_refused(tmp_path):
    random_model(CONFIGS["phi3"]).save_pretrained(tmp_path)
    with pytest.raises(UnsupportedError, match="has no experts, and its layers are not Llama's or OPT's"):
        make_file(tmp_path, tmp_path / "w.kvw", "auto", QUIET)


def test_the_precision_on_flash_can_be_chosen(folder, tmp_path):
    file = WeightsFile(make_file(folder, tmp_path / "w.kvw", "bfloat16", QUIET).path)
    array = file.manifest.experts[0]
    found = numbers(file, array, 3)["down_proj"]
    expected = moe_models.in_memory(folder).get_submodule(array.name).down_proj[3]
    assert torch.equal(found, expected.to(torch.bfloat16))
    assert np.isfinite(found.float().numpy()).all()


def test_a_model_in_memory_becomes_the_same_file(folder, weights, tmp_path):
    manifest, _ = manifest_of(folder)
    path = tmp_path / "w.kvw"
    convert.write(manifest, LoadedSource(moe_models.in_memory(folder)), path)
    assert path.read_bytes() == weights.read_bytes()
