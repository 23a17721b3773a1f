"""Caches that outlive their process, and the model fingerprint that they carry."""

import json
import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import forked
import pytest
import small_models
import torch
from family_models import SERVED
from small_models import CONFIGS, prompts, random_model

from kvdrive.errors import InputError, UnsupportedError
from kvdrive.generation.generate import greedy
from kvdrive.identity.model import of_model
from kvdrive.plugins.transformers import attach
from kvdrive.targets.emulator import Emulator

PROMPT = prompts(2, 30)


def drives(folder, count=2):
    return [Emulator(folder / f"{i}.kv", "fast", capacity_bytes=1 << 26) for i in range(count)]


def close(group):
    for drive in group:
        drive.close()


def save(model, folder, new_tokens=10):
    """Generate, save, close. Returns the tokens so far."""
    group = drives(folder)
    with attach(model, group, spill=7) as attached:
        cache = attached.cache()
        tokens = greedy(model, PROMPT, new_tokens, padding(PROMPT), past_key_values=cache)
        attached.save(cache, folder / "chat.json")
    close(group)
    return tokens


def padding(ids):
    mask = torch.ones_like(ids)
    mask[0, :9] = 0
    return mask


def test_another_process_continues(tmp_path, llama):
    tokens = save(llama, tmp_path)
    group = drives(tmp_path)
    for _ in range(2):  # reopened, saved again, reopened
        with attach(llama, group, spill=16) as attached:
            cache = attached.reopen(tmp_path / "chat.json")
            assert torch.equal(cache.batch.token_ids(), tokens[:, :-1])
            new = greedy(llama, tokens, 8, padding(tokens), past_key_values=cache)
            attached.save(cache, tmp_path / "chat.json")
        assert torch.equal(new, greedy(llama, tokens, 8, padding(tokens)))
        tokens = new
        assert [len(drive._drive.sessions()) for drive in group] == [1, 1]  # the earlier sessions were trimmed
    with attach(llama, group) as attached:
        cache = attached.reopen(tmp_path / "chat.json")
        cache.crop(-1)  # removed tokens cannot be reopened
        assert not (tmp_path / "chat.json").exists()
    assert [drive._drive.sessions() for drive in group] == [[], []]
    close(group)


TESTS = [
    str(Path(file).parent) for file in (__file__, small_models.__file__, forked.__file__)
]  # for the child's imports

CHILD = """
    import sys, torch
    from pathlib import Path
    torch.set_num_threads(1)
    sys.path[:0] = {tests!r}
    from test_saved_caches import CONFIGS, PROMPT, drives, random_model
    from kvdrive.plugins.transformers import attach
    folder, model = Path({folder!r}), random_model(CONFIGS["llama"])
    with attach(model, drives(folder), spill=7) as attached, torch.no_grad():
        cache, ids = attached.cache(), PROMPT
        for step in range(1000):
            logits = model(ids, past_key_values=cache).logits[:, -1]
            ids = logits.argmax(-1)[:, None]
            if step % 3 == 2:
                attached.save(cache, folder / "chat.json")
            print(step, flush=True)
"""


@pytest.mark.parametrize("steps", [13, pytest.param(4, marks=pytest.mark.slow)])
def test_a_killed_process_loses_nothing_that_was_saved(tmp_path, llama, steps):
    """SIGKILL in the middle of a generation that saves every three tokens. The text continues unchanged."""
    script = textwrap.dedent(CHILD.format(tests=TESTS, folder=str(tmp_path)))
    child = forked.popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    for line in child.stdout:
        if int(line) == steps:
            os.kill(child.pid, signal.SIGKILL)
            break
    child.wait()
    child.stdout.close()
    group = drives(tmp_path)
    assert [drive._drive.check() for drive in group] == [[], []]
    with attach(llama, group) as attached:
        cache = attached.reopen(tmp_path / "chat.json")
        kept = cache.batch.token_ids()
        assert kept.shape[1] >= 30 + steps // 3 * 3 - 1
        cache.crop(-1)
        text = greedy(llama, kept, 12, past_key_values=cache)
    close(group)
    assert torch.equal(text, greedy(llama, PROMPT, text.shape[1] - 30))


def other_weights(model):
    model.model.layers[1].mlp.up_proj.weight.data[0, 0] += 0.001
    return model


def other_positions(model):
    model.config.rope_parameters = model.config.rope_parameters | {"rope_theta": 5e5}
    return model


@pytest.mark.parametrize(
    "change", [other_weights, other_positions, lambda model: model.half()], ids=["weights", "positions", "precision"]
)
def test_another_models_cache_is_never_used(tmp_path, llama, change):
    save(llama, tmp_path)
    other, group = change(random_model(CONFIGS["llama"])), drives(tmp_path)
    assert of_model(other) != of_model(llama)
    with attach(other, group) as attached, pytest.raises(InputError, match="another model, other weights or another"):
        attached.reopen(tmp_path / "chat.json")
    path = tmp_path / "chat.json"  # the file may be wrong; labels on the drive identify the sessions' model
    path.write_text(path.read_text().replace(of_model(llama).hex(), of_model(other).hex()))
    with attach(other, group) as attached, pytest.raises(InputError, match="belongs to another model"):
        attached.reopen(path)
    close(group)


def test_the_fingerprint_is_the_models_own(llama):
    assert of_model(llama) == of_model(random_model(CONFIGS["llama"]))
    assert len(of_model(llama)) == 32
    assert of_model(llama) != of_model(random_model(CONFIGS["llama"], seed=2))


def test_unusable_files_are_named(tmp_path, llama):
    save(llama, tmp_path)
    good = json.loads((tmp_path / "chat.json").read_text())
    gone = [
        row | {"slices": [[drive, number + 77, *rest] for drive, number, *rest in row["slices"]]}
        for row in good["rows"]
    ]
    cases = {
        "cannot read": None,
        "is no saved cache:": "{",
        "is no saved cache of this version": json.dumps(good | {"version": 99}),
        "lies on 3 drives, not 2": json.dumps(good | {"drives": 3}),
        "names sessions that the drives do not have": json.dumps(good | {"rows": gone}),
    }
    group = drives(tmp_path)
    with attach(llama, group) as attached:
        for number, (message, content) in enumerate(cases.items()):
            path = tmp_path / f"{number}.json"
            if content:
                path.write_text(content)
            with pytest.raises(InputError, match=message):
                attached.reopen(path)
        assert [len(drive._drive.sessions()) for drive in group] == [1, 1]  # failed attempts left no sessions
        assert torch.equal(attached.reopen(tmp_path / "chat.json").batch.token_ids(), torch.tensor(good["token_ids"]))
    close(group)


def test_a_file_of_version_3_is_converted_once(tmp_path, llama, caplog):
    tokens, path = save(llama, tmp_path), tmp_path / "chat.json"
    found = json.loads(path.read_text())
    rows = found.pop("rows")
    record = rows[0]["record"]
    earlier = {"version": 3, "fingerprint": record["model"], "tokens": tokens.shape[1] - 1, "arithmetic": None}
    earlier |= {name: record[name] for name in ("removals", "append_options", "layers")}
    earlier |= {"rows": [row["slices"] for row in rows], "inputs": [None] * len(rows)}
    path.write_text(json.dumps(found | earlier))
    group = drives(tmp_path)
    for converted in (True, False):
        caplog.clear()
        with attach(llama, group) as attached:
            cache = attached.reopen(path)
            assert torch.equal(greedy(llama, tokens, 8, padding(tokens), past_key_values=cache)[:, :-8], tokens)
            attached.save(cache, path)
        assert ("saved by an earlier version" in caplog.text) == converted
        tokens = cache_tokens(path)
    close(group)


def cache_tokens(path):
    """The tokens of a saved cache, and one more."""
    ids = torch.tensor(json.loads(path.read_text())["token_ids"])
    return torch.cat([ids, ids[:, :1]], dim=1)


def test_unknown_tokens_cannot_be_saved(tmp_path, target, llama):
    with attach(llama, target) as attached, torch.no_grad():
        cache = attached.cache()
        llama(inputs_embeds=torch.zeros(1, 3, 256), past_key_values=cache)
        with pytest.raises(UnsupportedError, match="without input_ids"):
            attached.save(cache, tmp_path / "chat.json")


@pytest.mark.parametrize("name", ["gemma3", "qwen3-next"])
def test_a_batch_of_a_model_with_layers_in_memory_goes_on(tmp_path, name):
    model, ids = random_model(SERVED[name][0]), prompts(2, 40)
    group = drives(tmp_path)
    with attach(model, group) as attached, torch.no_grad():
        cache = attached.cache()
        model(ids, attention_mask=padding(ids), past_key_values=cache)
        attached.save(cache, tmp_path / "chat.json")
        step = ids[:, :1]
        mask = torch.cat([padding(ids), torch.ones_like(step)], dim=1)
        wanted = model(step, attention_mask=mask, past_key_values=cache).logits
    with attach(model, group) as attached, torch.no_grad():
        cache = attached.reopen(tmp_path / "chat.json")
        assert torch.equal(model(step, attention_mask=mask, past_key_values=cache).logits, wanted)
    described = json.loads((tmp_path / "chat.json").read_text())
    for state in (None, "", "AAAA", described["state"][:-8]):
        (tmp_path / "other.json").write_text(json.dumps(described | {"state": state}))
        with attach(model, group) as attached, pytest.raises(InputError, match="layers that this model does not have"):
            attached.reopen(tmp_path / "other.json")
    close(group)
