"""A model whose layers are read from its own checkpoint in each call: the bits of the model in memory."""

import json
import shutil
import struct
from contextlib import closing
from fractions import Fraction

import moe_models
import pytest
import torch
from family_models import SERVED
from pairs import by_value
from safetensors.torch import load_file, save_file
from small_models import CONFIGS, prompts, random_model, step_logits
from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast
from typer.testing import CliRunner

from kvdrive.cli.main import app
from kvdrive.errors import InputError, TargetError, UnsupportedError
from kvdrive.generation.generate import greedy
from kvdrive.identity.model import of_model
from kvdrive.weights.options import FlashOptions
from kvdrive.weights.stream.arena import Arena
from kvdrive.weights.stream.opening import load_stream

PAGE = 4096
FAMILIES = {name: CONFIGS[name] for name in ("llama", "qwen2", "opt", "phi3")}
FAMILIES |= {name: SERVED[name][0] for name in ("gemma3", "gpt-neox", "gpt-oss", "qwen3.5")}


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture
def saved(checkpoint, tmp_path):
    """(name, dtype, ...) -> the folder of a small random checkpoint."""

    def of(name, dtype=torch.float32, tied=None, layers=2, shards="1GB"):
        config = FAMILIES.get(name) or CONFIGS[name]
        config = type(config)(**config.to_dict() | {"num_hidden_layers": layers})
        if tied is not None:
            config.tie_word_embeddings = tied
        folder = tmp_path / f"{name}-{dtype}-{config.tie_word_embeddings}-{layers}-{shards}".replace("torch.", "")
        random_model(config).to(dtype).save_pretrained(folder, max_shard_size=shards)
        PreTrainedTokenizerFast.from_pretrained(checkpoint).save_pretrained(folder)
        return folder

    return of


def streamed(folder, memory="auto", dtype="auto"):
    return load_stream(str(folder), dtype, FlashOptions(weights="stream", weights_memory=memory))


def in_memory(folder, dtype="auto"):
    return AutoModelForCausalLM.from_pretrained(folder, dtype=dtype).eval()


def logits(model, rows=3):
    """Of a prefill and of three steps."""
    ids = prompts(rows, 12)
    with torch.no_grad():
        output = model(ids, use_cache=True)
        found = [output.logits]
        for step in range(3):
            output = model(ids[:, step : step + 1], past_key_values=output.past_key_values)
            found.append(output.logits)
    return torch.cat(found, dim=1)


def tensors_of(path):
    """Where each tensor of a file begins and ends, by its header."""
    with path.open("rb") as file:
        length = struct.unpack("<Q", file.read(8))[0]
        header = json.loads(file.read(length))
    return {
        name: tuple(8 + length + at for at in one["data_offsets"])
        for name, one in header.items()
        if name != "__metadata__"
    }


def pages(ranges, size):
    """Bytes of the pages that have a byte of these ranges, without the part of a page at the end of the file."""
    touched = {page for begin, end in ranges for page in range(begin // PAGE, -(-end // PAGE))}
    return PAGE * len(touched - {size // PAGE})


def expected_bytes(folder, layers, head):
    """What a call reads of some layers, and of the head."""
    (path,) = folder.glob("*.safetensors")
    places, size = tensors_of(path), path.stat().st_size
    units = [[at for name, at in places.items() if f"layers.{layer}." in name] for layer in layers]
    return sum(pages(unit, size) for unit in [*units, [places[head]]])


def row_bytes(folder, name, rows, ids):
    """What the rows of these tokens are read with, each once."""
    (path,) = folder.glob("*.safetensors")
    begin, end = tensors_of(path)[name]
    width, size = (end - begin) // rows, path.stat().st_size
    used = sorted(set(ids.flatten().tolist()))
    return sum(pages([(begin + one * width, begin + (one + 1) * width)], size) for one in used)


@by_value({"name": FAMILIES, "dtype": [torch.float32, torch.bfloat16]})
def test_logits_have_the_bits_of_the_model_in_memory(name, dtype, saved):
    folder = saved(name, dtype)
    with closing(streamed(folder)) as checkpoint:
        assert checkpoint.weights.report()["layers_in_memory"] == 0
        assert checkpoint.model.dtype == dtype
        assert torch.equal(logits(checkpoint.model), logits(in_memory(folder)))


@pytest.mark.parametrize("name", ["llama", "opt"])
@pytest.mark.parametrize("tied", [True, False])
def test_tied_embeddings_are_stored_once_and_untied_ones_twice(name, tied, saved):
    folder = saved(name, tied=tied)
    assert ("lm_head.weight" in tensors_of(folder / "model.safetensors")) is not tied
    with closing(streamed(folder)) as checkpoint:
        assert torch.equal(logits(checkpoint.model), logits(in_memory(folder)))


@pytest.mark.parametrize(("stored", "computed"), [(torch.bfloat16, "float32"), (torch.float32, "bfloat16")], ids=str)
@pytest.mark.parametrize("memory", ["auto", Fraction(9, 10), Fraction(1)], ids=str)
def test_other_precisions_are_converted_as_they_come(stored, computed, memory, saved):
    folder = saved("opt", stored, layers=6)
    with closing(streamed(folder, memory, computed)) as checkpoint:
        assert torch.equal(logits(checkpoint.model), logits(in_memory(folder, getattr(torch, computed))))


@pytest.mark.parametrize("shift", [8, 24, 40, 4080])
def test_tensors_at_any_place_in_their_pages_give_the_same_bits(shift, saved):
    folder = saved("llama")
    path = folder / "model.safetensors"
    tensors, expected = load_file(path), logits(in_memory(folder))
    save_file(tensors, path, {"format": "pt", "shift": "x" * shift})
    with closing(streamed(folder)) as checkpoint:
        assert torch.equal(logits(checkpoint.model), expected)


def test_several_files_are_read_as_one(saved):
    folder = saved("llama", shards="800KB")
    assert len(list(folder.glob("*.safetensors"))) > 3
    with closing(streamed(folder)) as checkpoint:
        assert torch.equal(logits(checkpoint.model), logits(in_memory(folder)))


def test_each_call_reads_every_layer_once_for_all_rows(saved):
    folder = saved("llama", tied=False, layers=3)
    with closing(streamed(folder)) as checkpoint, torch.no_grad():
        weights, model = checkpoint.weights, checkpoint.model
        call = expected_bytes(folder, range(3), "lm_head.weight")
        assert weights.streamed_bytes - call in (0, PAGE)  # the last bytes of the file are in memory
        before = weights.file.bytes
        for rows, tokens in ((1, 5), (3, 20), (64, 1)):
            ids = prompts(rows, tokens, seed=rows)
            model(ids)
            if rows == 1:  # the first call reads the first layer twice: for itself, and ahead for the next call
                before += expected_bytes(folder, [0], "lm_head.weight") - pages(
                    [tensors_of(folder / "model.safetensors")["lm_head.weight"]], 1 << 40
                )
            rows_read = row_bytes(folder, "model.embed_tokens.weight", 300, ids)
            assert weights.file.bytes - before == call + rows_read
            before = weights.file.bytes
        assert weights.report()["flash_bytes"] == weights.file.bytes


def test_layers_that_fit_into_memory_are_read_once(saved):
    folder = saved("llama", tied=False, layers=6)
    expected = logits(in_memory(folder))
    previous = None
    for memory in (Fraction(6, 10), Fraction(8, 10), Fraction(9, 10), Fraction(1)):
        with closing(streamed(folder, memory)) as checkpoint, torch.no_grad():
            weights = checkpoint.weights
            assert torch.equal(logits(checkpoint.model), expected)
            report = weights.report()
            resident, before = report["layers_in_memory"], weights.file.bytes
            assert report["memory_bytes"] <= report["bytes"] * memory
            ids = prompts(2, 3)
            checkpoint.model(ids)
            call = 0 if memory == 1 else expected_bytes(folder, range(resident, 6), "lm_head.weight")
            read = weights.file.bytes - before
            assert read == call + row_bytes(folder, "model.embed_tokens.weight", 300, ids)
        assert previous is None or resident > previous
        previous = resident
    assert resident == 6


def test_the_least_memory_is_said_and_suffices(saved):
    folder = saved("llama", tied=False, layers=8)
    with pytest.raises(InputError, match=r"give `weights_memory=(\d+)M` or more; all weights take \d+M") as refused:
        streamed(folder, 1 << 20)
    least = int(str(refused.value).partition("weights_memory=")[2].partition("M")[0]) << 20
    with pytest.raises(InputError, match="or more"):
        streamed(folder, least - (1 << 20))
    with closing(streamed(folder, least)) as checkpoint:
        report = checkpoint.weights.report()
        assert report["memory_bytes"] <= least < report["bytes"]
        assert torch.equal(logits(checkpoint.model), logits(in_memory(folder)))


def test_between_calls_no_parameter_of_a_layer_has_memory(saved):
    with closing(streamed(saved("llama"))) as checkpoint:
        before = dict(checkpoint.model.named_parameters())
        logits(checkpoint.model)
        after = dict(checkpoint.model.named_parameters())
        assert all(after[name] is one for name, one in before.items())
        layers = [one for name, one in after.items() if ".layers." in name or "lm_head" in name or "embed" in name]
        assert len(layers) > 18
        assert all(one.is_meta for one in layers)


def test_the_next_layer_is_read_while_one_computes(saved, monkeypatch):
    """Each unit but the first is on its way when it is asked for, also the first one of the next call."""
    ready, take = [], Arena.take

    def watched(self, number):
        ready.append(self._ahead is not None and self._ahead.unit == number)
        return take(self, number)

    monkeypatch.setattr(Arena, "take", watched)
    with closing(streamed(saved("llama", layers=4))) as checkpoint:
        logits(checkpoint.model)
    assert ready == [False] + [True] * (4 * 5 - 1)


def test_a_call_that_ends_halfway_leaves_a_model_that_computes(saved):
    folder = saved("llama", layers=3)
    with closing(streamed(folder)) as checkpoint, torch.no_grad():
        expected = logits(in_memory(folder))

        def stop(*_):
            raise KeyboardInterrupt

        hook = checkpoint.model.model.layers[1].mlp.register_forward_pre_hook(stop)
        with pytest.raises(KeyboardInterrupt):
            checkpoint.model(prompts(1, 4))
        hook.remove()
        assert all(one.is_meta for name, one in checkpoint.model.named_parameters() if ".layers." in name)
        checkpoint.model.model(prompts(1, 4))  # without the head, which was read ahead
        assert torch.equal(logits(checkpoint.model), expected)
        with pytest.raises(IndexError, match="out of range"):
            checkpoint.model(torch.tensor([[300]]))


def damage(path, how):
    """Change a file behind the reader's back."""
    begin, end = tensors_of(path)["model.layers.1.mlp.up_proj.weight"]
    if how == "truncated":
        with path.open("r+b") as file:
            file.truncate(begin + 100)
    elif how == "replaced":
        shutil.copy(path, path.with_suffix(".new"))
        path.with_suffix(".new").replace(path)
    else:
        with path.open("r+b") as file:
            file.seek((begin + end) // 2)
            file.write(b"\x55")


@pytest.mark.parametrize("how", ["truncated", "replaced", "written"])
def test_a_checkpoint_that_changes_ends_the_text(how, saved):
    folder = saved("llama")
    with closing(streamed(folder)) as checkpoint:
        logits(checkpoint.model)
        damage(folder / "model.safetensors", how)
        with pytest.raises(TargetError, match=r"has changed while|cannot read"):
            logits(checkpoint.model)


def test_other_bytes_of_a_file_that_claims_to_be_the_same_end_the_text(saved, monkeypatch):
    """A disk that returns wrong bytes changes neither size nor times."""
    folder = saved("llama")
    with closing(streamed(folder)) as checkpoint:
        logits(checkpoint.model)
        damage(folder / "model.safetensors", "written")
        files = checkpoint.weights.file
        monkeypatch.setattr(files, "_require_same", lambda file: None)
        with pytest.raises(TargetError, match="has other bytes behind byte"):
            logits(checkpoint.model)


def test_a_truncated_file_is_no_checkpoint(saved):
    folder = saved("llama")
    damage(folder / "model.safetensors", "truncated")
    with pytest.raises(InputError, match="is truncated"):
        streamed(folder)


def test_a_closed_checkpoint_says_so(saved):
    checkpoint = streamed(saved("llama"))
    checkpoint.close()
    with pytest.raises(TargetError, match="is closed"):
        logits(checkpoint.model)


def renamed_away(folder):
    path = folder / "model.safetensors"
    tensors = load_file(path)
    del tensors["model.layers.1.mlp.up_proj.weight"]
    save_file(tensors, path, {"format": "pt"})


def quantised(folder):
    path = folder / "model.safetensors"
    tensors = load_file(path)
    tensors["model.layers.1.mlp.up_proj.weight"] = tensors["model.layers.1.mlp.up_proj.weight"].to(torch.int8)
    save_file(tensors, path, {"format": "pt"})


def another_shape(folder):
    path = folder / "model.safetensors"
    tensors = load_file(path)
    tensors["model.layers.1.mlp.up_proj.weight"] = tensors["model.layers.1.mlp.up_proj.weight"][:-1].contiguous()
    save_file(tensors, path, {"format": "pt"})


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (renamed_away, r"the checkpoint lacks model.layers.1.mlp.up_proj.weight"),
        (quantised, "only float32, bfloat16 and float16 are read from flash; take"),
        (another_shape, r"has the shape \[255, 256\], the model's \[256, 256\]"),
    ],
)
def test_checkpoints_that_cannot_be_read_as_they_are_say_why(change, sentence, saved):
    folder = saved("llama")
    change(folder)
    with pytest.raises((InputError, UnsupportedError), match=sentence):
        streamed(folder)


def test_experts_in_parts_and_gguf_files_are_refused(tmp_path):
    folder = moe_models.save("mixtral", tmp_path / "mixtral")
    with pytest.raises(UnsupportedError, match=r"stores in parts, such as .* take weights=flash"):
        streamed(folder)


def test_attention_in_a_drive_and_all_weights_on_flash(saved, target, tmp_path):
    folder = saved("llama")
    expected = step_logits(in_memory(folder), target)
    with closing(streamed(folder)) as checkpoint:
        assert torch.equal(step_logits(checkpoint.model, target), expected)


def test_a_session_continues_in_another_process_and_not_with_other_weights(saved, opened):
    folder, ids = saved("llama", layers=6), prompts(1, 100)
    found, tokens, memories = [], [], ("auto", Fraction(9, 10), "auto")
    for number, memory in enumerate(memories):
        if number == 2:
            path = folder / "model.safetensors"
            tensors = load_file(path)
            tensors["model.layers.5.mlp.up_proj.weight"][3, 4] += 1
            save_file(tensors, path, {"format": "pt"})
        with closing(streamed(folder, memory)) as checkpoint, opened(checkpoint.model) as attached:
            cache = attached.sessions.cache(ids)
            found.append(cache.get_seq_length())
            tokens.append(greedy(checkpoint.model, ids, 5, past_key_values=cache))
    assert found == [0, 99, 0]
    assert torch.equal(tokens[0], tokens[1])


def test_fingerprints_tell_checkpoints_and_precisions_apart(saved):
    folder = saved("llama")
    found = []
    for memory, dtype in (("auto", "auto"), (Fraction(1), "auto"), ("auto", "bfloat16")):
        with closing(streamed(folder, memory, dtype)) as checkpoint:
            found.append(of_model(checkpoint.model))
            logits(checkpoint.model)
            assert of_model(checkpoint.model) == found[-1]
    assert found[0] == found[1] != found[2]


def run(*arguments):
    return CliRunner().invoke(app, [str(one) for one in arguments])


def test_generate_checks_its_tokens_and_reports_what_it_read(saved):
    folder = saved("llama", layers=4)
    asked = ("--prompt", "The drive", "--max-new-tokens", "8", "--ignore-stop", "--threads", "1")
    result = run("generate", "--model", folder, *asked, "--weights", "stream", "--check", "--json", "--verbose")
    assert result.exit_code == 0, result.output
    report = json.loads(result.stdout)
    assert report["check"]["identical"] == report["check"]["total"] == 8
    assert report["options"]["weights"] == "stream"
    assert report["weights"]["layers"] == 4
    rows = report["weights"]["bytes_per_token"] - report["weights"]["bytes_per_call"]
    assert -PAGE <= rows <= 2 * PAGE
    assert "bytes of layers that each call reads" in result.stderr


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (("--weights-file", "W"), "it reads the checkpoint's own files; take"),
        (("--ffn", "fatrelu:0.1"), "it reads every neuron; take"),
        (("--device", "cuda"), "computed on the cpu"),
        (("--dtype", "int8"), "layers are computed as they are stored"),
        (("--xcache", "0.5"), "when their layer does not compute"),
        (("--mini-batches", "2", "--prompt", "b"), "weights are read for the whole batch"),
        (("--weights-cache", "lru"), "--weights-cache goes with --weights flash"),
        (("--look-ahead", "off"), "--look-ahead goes with --weights flash"),
        (("--weights-memory", "1M"), "give --weights-memory"),
    ],
)
def test_what_does_not_go_with_it_is_a_sentence(options, sentence, saved, tmp_path):
    (tmp_path / "W").touch()
    given = [tmp_path / "W" if one == "W" else one for one in options]
    result = run("generate", "--model", saved("llama"), "--prompt", "a", "--weights", "stream", *given)
    assert result.exit_code != 0
    assert sentence in str(result.exception)
