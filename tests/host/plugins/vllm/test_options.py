"""What the user says, and what is refused in a sentence."""

from __future__ import annotations

from pathlib import Path

import pytest

from kvdrive.errors import InputError
from kvdrive.plugins.vllm.fingerprint import block_key, fingerprint, weights_digest
from kvdrive.plugins.vllm.options import Options, require_tested


def test_options():
    given = {"spec_name": "x", "blocks_per_chunk": 4, "path": "~/blocks", "bytes": "1000", "tenant": "t"}
    options = Options.of(given)
    assert options == Options(Path.home() / "blocks", bytes=1000, tenant="t")


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({}, "needs either 'path'"),
        ({"path": "x", "drive": "y"}, "needs either 'path'"),
        ({"path": "x", "daily_bytes": -1}, "'daily_bytes' must be at least 0"),
        ({"path": "x", "byte": 1}, "has no 'byte': known are buffer_bytes, bytes, daily_bytes, direct, drive"),
        ({"path": "x", "bytes": "many"}, "are whole numbers"),
        ({"path": "x", "threads": 0}, "'threads' must be at least 1"),
        ({"path": "x", "eviction": "random"}, "choose lru, fifo"),
        ({"path": "x", "direct": "yes"}, "'direct' is true or false"),
        ({"drive": "x", "direct": True}, "'direct' is for 'path', a file"),
    ],
)
def test_wrong_options_are_refused(given, sentence):
    with pytest.raises(InputError, match=sentence):
        Options.of(given)


def test_other_versions_of_vllm_are_refused():
    require_tested("0.32.0")
    require_tested("0.32.0+cpu")
    for version in ("0.31.0", "0.32.1", "0.33.0", "1.0"):
        with pytest.raises(InputError, match=rf"was tested with vLLM 0.32.0 and this is {version}: "):
            require_tested(version)


def test_other_weights_of_the_same_name_are_another_model(tmp_path):
    (tmp_path / "model.safetensors").write_bytes(bytes(9_000_000))
    first = weights_digest(tmp_path, 2)
    assert weights_digest(tmp_path, 2) == first
    with (tmp_path / "model.safetensors").open("r+b") as file:
        file.seek(8_000_000)
        file.write(b"\1")
    second = weights_digest(tmp_path, 2)
    assert second != first
    assert fingerprint({"weights": first}) != fingerprint({"weights": second})
    assert block_key(fingerprint({"weights": first}), b"key") != block_key(fingerprint({"weights": second}), b"key")
    with pytest.raises(InputError, match="name the folder as the model, or give 'model_fingerprint'"):
        weights_digest(tmp_path / "organisation" / "model", 2)


@pytest.mark.parametrize(
    ("name", "counts"),
    [
        ("model-00002-of-00002.safetensors", True),
        ("model.safetensors.index.json", True),
        ("modeling_own.py", True),
        ("hf_quant_config.json", True),
        ("preprocessor_config.json", True),
        ("a_file_of_tomorrow", True),
        ("tokenizer.json", False),
        ("README.md", False),
        (".gitattributes", False),
    ],
)
def test_a_file_of_the_model_counts_unless_it_is_known_to_be_harmless(tmp_path, name, counts):
    (tmp_path / "model.safetensors").write_bytes(bytes(100))
    (tmp_path / "folder").mkdir()
    alone = weights_digest(tmp_path, 1)
    (tmp_path / name).write_text("one")
    one = weights_digest(tmp_path, 1)
    (tmp_path / name).write_text("two")
    assert len({alone, one, weights_digest(tmp_path, 1)}) == (3 if counts else 1)


def test_blocks_in_the_folder_of_the_model_are_refused(tmp_path):
    """Each new block would make it another model."""
    (tmp_path / "model.safetensors").write_bytes(bytes(100))
    with pytest.raises(InputError, match="in the folder of the model, of which every file counts: choose another"):
        weights_digest(tmp_path, 1, tmp_path / "blocks.kv")
    assert weights_digest(tmp_path, 1, tmp_path / "blocks" / "blocks.kv") == weights_digest(tmp_path, 1)
