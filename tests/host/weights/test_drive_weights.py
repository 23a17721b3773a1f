"""Weights on a drive's namespace: read as any others, and computed with in the drive (--ffn drive)."""

import json
from fractions import Fraction

import moe_models
import numpy as np
import pytest
import torch
from rich.console import Console
from transformers import AutoModelForCausalLM
from typer.testing import CliRunner

from kvdrive.cli.main import app
from kvdrive.errors import InputError, TargetError, UnsupportedError
from kvdrive.generation import places
from kvdrive.generation.checkpoints import read_config
from kvdrive.nvme.wire import RetrieveOption, ValueCommand, ValueOpcode
from kvdrive.targets.key_value import KeyValueNamespace
from kvdrive.targets.opening import DriveOptions, open_drive, open_drives
from kvdrive.weights import drive_values, fingerprint
from kvdrive.weights.drive_ffn import require_size
from kvdrive.weights.drive_reader import DriveWeights
from kvdrive.weights.file import WeightsFile, aligned
from kvdrive.weights.making import make_file, put_on_drive
from kvdrive.weights.opening import load
from kvdrive.weights.options import FlashOptions
from kvdrive.weights.whole import load_whole

QUIET = Console(quiet=True)


@pytest.fixture(scope="module")
def placed(tmp_path_factory):
    """(checkpoint folder, file of weights, options of the drive that holds them too), by model, target and gates."""
    made = {}

    def of(name, target="emulator", gates=False):
        key = (name, target, gates)
        if key not in made:
            root = tmp_path_factory.mktemp(name)
            folder = places.find(name) if name == "mini_relu" else moe_models.save(name, root / "model")
            file = make_file(folder, root / "w.kvw", "float16", QUIET, gates=gates).path
            drives = DriveOptions(target=target, folder=root / "drives", capacity_bytes=1 << 26)
            put_on_drive(file, drives, QUIET)
            made[key] = folder, file, drives
        return made[key]

    return of


def opened(placed, name, ffn="exact", memory=Fraction(1), **where):
    folder, _, drives = placed(name, **where)
    return load(str(folder), "float32", FlashOptions(weights_memory=memory, ffn=ffn, on_drive=drives))


def logits(model, tokens=20):
    prompt = torch.randint(2, 250, (2, tokens), generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        return model(prompt).logits


@pytest.mark.parametrize("target", ["emulator", "cpu"])
@pytest.mark.parametrize(("name", "memory"), [("mixtral", Fraction(6, 10)), ("mini_relu", Fraction(8, 10))])
def test_weights_of_a_drive_give_the_bits_of_those_in_a_file(name, memory, target, placed):
    folder, file, _ = placed(name, target)
    checkpoint = opened(placed, name, memory=memory, target=target)
    found, report = logits(checkpoint.model), checkpoint.weights.report()
    checkpoint.close()
    other = load(str(folder), "float32", FlashOptions(file, memory))
    assert torch.equal(found, logits(other.model))
    assert report["flash_bytes"] > 0
    assert report["flash_most_in_flight"] > 1
    assert ("flash_device_ns" in report) == (target == "emulator")
    other.close()


def test_reads_take_device_time(placed):
    _, _, drives = placed("mixtral")
    with open_drive(drives) as drive:
        config = fingerprint.of_config(read_config(placed("mixtral")[0]))
        reader = DriveWeights(drive, config)
        array = reader.manifest.experts[1]
        memory, before = aligned(array.stride), reader.counters()["device_ns"]
        reader.read(array, 3, memory)
        assert reader.counters()["device_ns"] > before
        file = WeightsFile(placed("mixtral")[1])
        expected = aligned(array.stride)
        file.read(array, 3, expected)
        np.testing.assert_array_equal(memory, expected)
        reader.close()
        with pytest.raises(TargetError, match="closed"):
            reader.start(array, 0, memory)


@pytest.mark.parametrize("target", ["emulator", "cpu"])
def test_in_device_time_reads_run_beside_other_commands_until_somebody_waits(target, placed):
    folder, file, drives = placed("mixtral", target)
    with open_drive(drives) as drive:
        reader = DriveWeights(drive, fingerprint.of_config(read_config(folder)))
        seen, array = counted(drive, ValueOpcode.VALUE_RETRIEVE), reader.manifest.experts[1]
        memory, expected = aligned(array.stride), aligned(array.stride)
        WeightsFile(file).read(array, 3, expected)
        for ahead in (True, False):
            seen.clear()
            memory[:] = 0
            reader.wait(reader.start(array, 3, memory, ahead=ahead), array, 3)
            np.testing.assert_array_equal(memory, expected)
            sent = [np.frombuffer(one.entry, ValueCommand)[0] for one in seen]
            beside = [bool(one["options"] & RetrieveOption.RETRIEVE_AHEAD) for one in sent]
            urgent = [bool(one["options"] & RetrieveOption.RETRIEVE_URGENT) for one in sent if one["size"] > 0]
            waits = [one["offset"] for one in sent if one["size"] == 0]
            if target == "emulator":
                assert all(beside)
                assert urgent == [not ahead] * len(urgent)
                assert waits == [one["offset"] for one in sent if one["size"] > 0]
            else:
                assert not any(beside)
                assert not any(urgent)
                assert waits == []
        reader.close()


def counted(drive, opcode):
    """Wraps `submit_many`; returns the list that gets every command with this opcode."""
    seen, send = [], drive.submit_many

    def submit_many(commands):
        seen.extend(one for one in commands if one.opcode == opcode)
        return send(commands)

    drive.submit_many = submit_many
    return seen


@pytest.mark.parametrize(("name", "gates"), [("mixtral", False), ("mini_relu", False), ("mini_relu", True)])
def test_with_ffn_drive_the_weights_never_cross_the_interface(name, gates, placed):
    checkpoint = opened(placed, name, "drive", gates=gates)
    drive = checkpoint.weights.file.target
    retrieved = counted(drive, ValueOpcode.VALUE_RETRIEVE)
    before, report = drive.stats(), checkpoint.weights.report()
    found = logits(checkpoint.model)
    after, done = drive.stats(), checkpoint.weights.report()
    assert retrieved == []
    commands = done["ffn_commands"] - report["ffn_commands"]
    assert commands > 0
    entries = 2 * commands * (64 + 16)  # FFN_SUBMIT and ATTN_FETCH, and their completions
    data = sum(done[way] - report[way] for way in ("ffn_bytes_in", "ffn_bytes_out"))
    assert after.host_bytes - before.host_bytes == entries + data
    checkpoint.close()
    folder, _, _ = placed(name, gates=gates)
    whole = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    expected = logits(whole)
    assert torch.equal(found.argmax(-1), expected.argmax(-1))
    assert (found - expected).abs().max() < 0.02 * expected.abs().max()


def test_x_and_y_alone_cross_the_interface_for_an_expert(placed):
    checkpoint = opened(placed, "mixtral", "drive")
    weights = checkpoint.weights
    before = weights.report()
    logits(checkpoint.model, 1)
    done = weights.report()
    hidden, layers, experts_of_a_token, rows = 64, 3, 2, 2
    assert done["ffn_bytes_in"] - before["ffn_bytes_in"] == rows * layers * experts_of_a_token * hidden * 2
    assert done["ffn_bytes_out"] - before["ffn_bytes_out"] == rows * layers * experts_of_a_token * hidden * 4
    checkpoint.close()


def test_inputs_beyond_binary16_are_scaled(placed):
    checkpoint = opened(placed, "mini_relu", "drive")
    part = checkpoint.weights._parts[0]
    generator = torch.Generator().manual_seed(3)
    activations = torch.relu(torch.randn(2, 768, generator=generator))
    inputs = torch.randn(2, part._hidden, generator=generator)
    usual = part.compute(activations, inputs)
    torch.testing.assert_close(part.compute(activations, inputs * 2.0**20) * 2.0**-20, usual, rtol=1e-2, atol=1e-2)
    torch.testing.assert_close(part.compute(activations * 2.0**20, inputs) * 2.0**-20, usual, rtol=1e-2, atol=1e-2)
    checkpoint.close()


def test_an_activation_beyond_binary16_is_a_sentence(placed):
    checkpoint = opened(placed, "mini_relu", "drive")
    part = checkpoint.weights._parts[0]
    with pytest.raises(TargetError, match="beyond binary16"):
        part.compute(torch.full((1, 768), 60000.0), torch.full((1, part._hidden), 60000.0))
    checkpoint.close()


@pytest.fixture
def own(tmp_path):
    """A drive of its own with the weights of mini_relu, and their file."""
    folder = places.find("mini_relu")
    file = make_file(folder, tmp_path / "w.kvw", "float16", QUIET).path
    drives = DriveOptions(folder=tmp_path / "drives", capacity_bytes=1 << 26)
    put_on_drive(file, drives, QUIET)
    return folder, drives


def test_truncated_missing_and_damaged_weights_are_a_sentence(own):
    folder, drives = own
    options = FlashOptions(on_drive=drives, weights_memory=Fraction(1))
    with open_drives(drives) as group:
        values = KeyValueNamespace(group.drives[0])
        manifest, _ = drive_values.read_manifest(values, fingerprint.of_config(read_config(folder)), "the drive")
        array = manifest.neurons[2]
        key = drive_values.place_of(manifest, array, 0).key
        content = bytearray(values.retrieve(key))
        values.store(key, content[:-4096])
    with pytest.raises(InputError, match="truncated"):
        load(str(folder), "float32", options)
    content[5000] ^= 1
    with open_drives(drives) as group:
        KeyValueNamespace(group.drives[0]).store(key, content)
    checkpoint = load(str(folder), "float32", options)
    with pytest.raises(TargetError, match="damaged"):
        logits(checkpoint.model)
    checkpoint.close()
    with open_drives(drives) as group:
        KeyValueNamespace(group.drives[0]).delete(drive_values.front_key(manifest.config))
    with pytest.raises(InputError, match="does not hold the weights"):
        load(str(folder), "float32", options)


def test_weights_whose_copy_was_stopped_are_not_found_until_it_is_repeated(own):
    folder, drives = own
    file = WeightsFile(drives.folder.parent / "w.kvw")

    def stop(done, total):
        if done == 5:
            raise KeyboardInterrupt

    with open_drive(drives) as drive, pytest.raises(KeyboardInterrupt):
        drive_values.store(file, KeyValueNamespace(drive), stop)
    options = FlashOptions(on_drive=drives, weights_memory=Fraction(1))
    with pytest.raises(InputError, match="does not hold the weights"):
        load(str(folder), "float32", options)
    with open_drive(drives) as drive:
        drive_values.store(file, KeyValueNamespace(drive))
    file.close()
    checkpoint = load(str(folder), "float32", options)
    assert logits(checkpoint.model).isfinite().all()
    checkpoint.close()


def test_another_checkpoint_of_the_same_shape_is_refused(own, tmp_path):
    folder, drives = own
    other = tmp_path / "other"
    model = AutoModelForCausalLM.from_pretrained(folder)
    with torch.no_grad():
        model.model.layers[0].mlp.up_proj.weight.mul_(1.5)
    model.save_pretrained(other)
    with pytest.raises(InputError, match="another checkpoint"):
        load(str(other), "float32", FlashOptions(on_drive=drives))


def test_weights_in_other_formats_are_refused_by_the_drive(tmp_path):
    folder = places.find("mini_relu")
    file = make_file(folder, tmp_path / "w.kvw", "int8", QUIET).path
    drives = DriveOptions(folder=tmp_path / "drives", capacity_bytes=1 << 26)
    put_on_drive(file, drives, QUIET)
    with pytest.raises(InputError, match="--weights-format float16"):
        load(str(folder), "float32", FlashOptions(ffn="drive", on_drive=drives))
    checkpoint = load(str(folder), "float32", FlashOptions(on_drive=drives, weights_memory=Fraction(1)))
    assert logits(checkpoint.model).isfinite().all()  # the host reads any format
    checkpoint.close()


@pytest.mark.parametrize("size", [(8200, 64), (68, 64), (64, 65537)])
def test_parts_that_a_command_cannot_name_are_a_sentence(size):
    require_size(8192, 65536, 65536)
    with pytest.raises(UnsupportedError, match="leave `ffn=drive` out"):
        require_size(*size, 65536)


def test_a_drive_that_is_too_small_is_a_sentence(tmp_path):
    folder = moe_models.save("mixtral", tmp_path / "model")
    file = WeightsFile(make_file(folder, tmp_path / "w.kvw", "float32", QUIET).path)
    small = DriveOptions(folder=tmp_path / "drives", capacity_bytes=1 << 20)
    with open_drive(small) as drive, pytest.raises(InputError, match="no room for the weights"):
        drive_values.store(file, KeyValueNamespace(drive))


def run(*arguments):
    return CliRunner().invoke(app, [str(one) for one in arguments])


def test_one_drive_holds_weights_and_k_and_v(tmp_path):
    where = ("--drive", tmp_path / "drives")
    as_halves = ("--weights-format", "float16", "--weights-file", tmp_path / "w")
    made = run("convert", "--model", "mini_relu", *as_halves, *where)
    assert made.exit_code == 0, made.output
    assert "holds them, too" in made.output
    common = ("generate", "--model", "mini_relu", "--prompt", "def main():", "--max-new-tokens", "6", "--threads", "1")
    for ffn in ("exact", "drive"):
        memory = ("--weights", "drive", "--weights-memory", "90%")
        done = run(*common, *memory, "--ffn", ffn, *where, "--check", "--json")
        assert done.exit_code == 0, done.output
        report = json.loads(done.stdout)
        assert report["check"]["identical"] == report["check"]["total"] == 6
        assert report["counted"]["decode"]["attention_jobs"] > 0
    fsck = run("drive", "fsck", tmp_path / "drives" / "drive.kv")
    assert fsck.exit_code == 0, fsck.output


def test_a_target_without_a_place_for_its_drive_is_a_sentence():
    done = run("convert", "--model", "mini_relu", "--target", "cpu")
    assert isinstance(done.exception, InputError)
    assert "--drive" in str(done.exception)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("--weights", "flash", "--ffn", "drive"), "take --weights drive, or leave --ffn drive out"),
        (("--weights", "drive", "--drive", "empty"), "there is no drive in"),
    ],
)
def test_options_that_do_not_go_together_are_a_sentence(arguments, sentence, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "w").write_bytes(b"")
    (tmp_path / "empty").mkdir()
    done = run("generate", "--model", "mini_relu", "--prompt", "a", *arguments)
    assert isinstance(done.exception, InputError)
    assert sentence in str(done.exception)


def test_whole_models_have_the_numbers_of_the_drive(own):
    folder, drives = own
    whole = load_whole(str(folder), "float32", FlashOptions(on_drive=drives))
    weight = whole.model.model.layers[1].mlp.up_proj.weight
    assert torch.equal(weight, weight.to(torch.float16).float())
