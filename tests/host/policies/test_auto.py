"""Policy auto: a ratio for each KV head, the file it comes from, and the bits of the same ratios given by hand."""

import json
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
import torch
from small_models import CONFIGS, prompts, random_model

import kvdrive
from kvdrive import abi
from kvdrive.errors import InputError
from kvdrive.identity.model import of_model
from kvdrive.policies import make_policy
from kvdrive.policies.auto import Auto
from kvdrive.policies.choice import Choice, Text, keep_choices, place_of
from kvdrive.policies.parameters import Parameters

HALF, EIGHTH, ALL = Fraction(1, 2), Fraction(1, 8), Fraction(1)
PROMPT = prompts(1, 200)
RATIOS = ((HALF, ALL), (EIGHTH, HALF))  # of two layers with two KV heads
CHOICE = Choice(RATIOS, 16, 0.008, 0.001, 0.4, Text("ab", 180, 2, 8))


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def logits(model, target, attention, **options):
    """Logits of four decode steps behind the prompt."""
    with kvdrive.attach(model, target, attention, spill=1, **options) as attached, torch.no_grad():
        cache = attached.cache()
        found = [model(PROMPT[:, :196], past_key_values=cache).logits[:, -1]]
        for token in range(196, 200):
            found.append(model(PROMPT[:, token : token + 1], past_key_values=cache).logits[:, -1])
        return torch.cat(found)


def test_each_head_asks_for_its_own_ratio():
    policy = Auto(choice=CHOICE)
    asked = [[one.parameters(320, 64) for one in policy.of_heads(layer, 2)] for layer in range(2)]
    half, eighth = Parameters(abi.Mode.GROUPS, 16, 10), Parameters(abi.Mode.GROUPS, 16, 3)
    assert asked == [[half, Parameters()], [eighth, half]]
    needed = [make_policy("groups", share, unit=16).bytes_needed(320, 64, 128) for row in RATIOS for share in row]
    assert policy.bytes_needed(320, 64, 128) == round(sum(needed) / 4)


def test_equal_ratios_are_policy_groups(llama, target):
    same = Auto(choice=replace(CHOICE, ratios=((EIGHTH, EIGHTH),) * 2))
    want = logits(llama, target, make_policy("groups", EIGHTH, unit=16))
    assert torch.equal(logits(llama, target, same), want)
    exact = Auto(choice=replace(CHOICE, ratios=((ALL, ALL),) * 2))
    assert torch.equal(logits(llama, target, exact), logits(llama, target, "exact"))
    assert not torch.equal(want, logits(llama, target, "exact"))


@pytest.mark.parametrize("kv_format", ["f16", "int8", "fp8"])
def test_heads_in_one_layer_differ(llama, target, kv_format):
    """The outputs of a layer's heads are those of the policies that each head has."""
    found = {}
    for name, policy in {
        "auto": Auto(choice=CHOICE),
        "half": make_policy("groups", HALF, unit=16),
        "exact": make_policy("exact"),
    }.items():
        taken = []
        project = llama.model.layers[0].self_attn.o_proj
        hook = project.register_forward_pre_hook(lambda module, inputs, taken=taken: taken.append(inputs[0].clone()))
        logits(llama, target, policy, kv_format=kv_format)
        hook.remove()
        found[name] = taken[-4].reshape(2, 4, -1)  # the first of four steps behind the prompt: KV head, query heads, d
    assert torch.equal(found["auto"][0], found["half"][0])
    assert torch.equal(found["auto"][1], found["exact"][1])
    assert not torch.equal(found["half"], found["exact"])


def test_the_stored_choice_gives_the_bits_of_the_same_ratios_by_hand(llama, target):
    keep_choices(of_model(llama), {"0.01": CHOICE})
    by_hand = logits(llama, target, Auto(choice=CHOICE))
    assert torch.equal(logits(llama, target, "auto:0.01"), by_hand)
    assert torch.equal(logits(llama, target, "auto"), by_hand)
    assert torch.equal(logits(llama, target, "auto:1e-2"), by_hand)


def test_choices_for_other_limits_stay(llama):
    label = of_model(llama)
    other = replace(CHOICE, kl=0.015)
    keep_choices(label, {"0.01": CHOICE})
    keep_choices(label, {"0.02": other})
    assert Auto(kl="0.01").fitted(lambda: label).choice == CHOICE
    assert Auto(kl="0.02").fitted(lambda: label).choice == other
    with pytest.raises(InputError, match=r"those for 0\.01, 0\.02 are there: `kvdrive calibrate --kl 0.05` finds"):
        Auto(kl="0.05").fitted(lambda: label)


def test_a_model_without_a_calibration_is_refused(llama, target):
    with pytest.raises(InputError, match=r"`kvdrive calibrate --kl 0\.01` finds them"):
        kvdrive.attach(llama, target, "auto:0.01")
    assert llama.config._attn_implementation != "kvdrive"


def test_another_format_of_k_and_v_needs_its_own_calibration(llama, target):
    keep_choices(of_model(llama), {"0.01": CHOICE})
    with pytest.raises(InputError, match="for this model, precision and format"):
        kvdrive.attach(llama, target, "auto:0.01", kv_format="int8")


def test_the_file_of_another_model_is_refused(llama, target):
    other = of_model(random_model(CONFIGS["llama"], seed=2))
    place_of(of_model(llama)).parent.mkdir(parents=True)
    keep_choices(other, {"0.01": CHOICE}).rename(place_of(of_model(llama)))
    with pytest.raises(InputError, match="is of another model, precision or format: remove it"):
        kvdrive.attach(llama, target, "auto:0.01")


def test_ratios_for_other_heads_are_refused(llama, target):
    for ratios in (RATIOS[:1], tuple((*row, ALL) for row in RATIOS)):
        with pytest.raises(InputError, match=r"are for other heads: run `kvdrive calibrate` again"):
            logits(llama, target, Auto(choice=replace(CHOICE, ratios=ratios)))


@pytest.mark.parametrize(
    "change",
    [
        lambda file, one: file.clear(),
        lambda file, one: file.update(choices=3),
        lambda file, one: one.update(ratios=[]),
        lambda file, one: one.update(ratios=[["1/0", "1"]]),
        lambda file, one: one.update(ratios=[["2", "1"]]),
        lambda file, one: one.update(unit=48),
        lambda file, one: one.update(kl=0.5),
        lambda file, one: one.update(kl="little"),
        lambda file, one: one.update(kl=float("nan")),
        lambda file, one: one.pop("text"),
        lambda file, one: one.update(more=1),
    ],
)
def test_damaged_files_are_one_sentence(llama, target, change):
    path = keep_choices(of_model(llama), {"0.01": CHOICE})
    file = json.loads(path.read_text())
    change(file, file["choices"]["0.01"])
    path.write_text(json.dumps(file))
    with pytest.raises(InputError, match=r"is damaged: remove it, and run `kvdrive calibrate` again"):
        kvdrive.attach(llama, target, "auto:0.01")


def test_a_cut_file_is_damaged(llama):
    path = keep_choices(of_model(llama), {"0.01": CHOICE})
    path.write_text(path.read_text()[:-20])
    with pytest.raises(InputError, match="is damaged"):
        Auto().fitted(lambda: of_model(llama))


@pytest.mark.parametrize("name", ["auto:", "auto:0", "auto:-1", "auto:inf", "auto:nan", "auto:much"])
def test_limits_that_are_none(name):
    with pytest.raises(InputError, match=r"write auto:0\.01"):
        make_policy(name)


def test_what_does_not_go_together():
    with pytest.raises(InputError, match="leave the ratio out"):
        make_policy("auto:0.01", EIGHTH)
    with pytest.raises(InputError, match="no parameter unit"):
        make_policy("auto:0.01", unit=32)
    with pytest.raises(InputError, match="the policy groups takes nothing after its name: write groups"):
        make_policy("groups:0.01")
    with pytest.raises(InputError, match="no ratios yet"):
        make_policy("auto").of_heads(0, 2)


def test_heads_are_spread_over_drives(llama, target, tmp_path):
    """Each drive gets the policies of the heads that it has."""
    from kvdrive.targets.emulator import Emulator
    from kvdrive.targets.group import DriveGroup

    want = logits(llama, target, Auto(choice=CHOICE))
    with Emulator(tmp_path / "second.kv", "fast", capacity_bytes=1 << 26) as second:
        got = logits(llama, DriveGroup([target, second]), Auto(choice=CHOICE))
    np.testing.assert_array_equal(got.numpy(), want.numpy())
