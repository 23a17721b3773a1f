"""All options of a run are fields of one value, each with a name of its own."""

from dataclasses import is_dataclass
from fractions import Fraction
from typing import get_type_hints

import pytest
import torch
from small_models import prompts

import kvdrive
from kvdrive.cli.fields import PANELS, with_flags
from kvdrive.config.abilities import ConflictError
from kvdrive.config.resolve import resolve
from kvdrive.config.run import GROUPS, RunConfig
from kvdrive.config.text import OPTIONS, configured, named
from kvdrive.errors import InputError
from kvdrive.prefix.options import SessionOptions


def test_no_two_groups_have_a_field_of_the_same_name():
    names = [name for group in GROUPS.values() for name in group]
    assert len(names) == len(set(names))
    assert all(is_dataclass(kind) for name, kind in get_type_hints(RunConfig).items() if name != "sessions")


def test_fields_are_changed_by_name_whatever_group_they_are_in():
    config = RunConfig.of(attention="local", kv_format="int8", threads=3, context=64, sessions=True)
    assert (config.policy.attention, config.placement.kv_format, config.target.threads) == ("local", "int8", 3)
    assert config.limits.context == 64
    assert config.sessions == SessionOptions()
    assert config.changed(sessions=False, threads=1).sessions is None
    assert config.target.threads == 3


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"kv_fromat": "int8"}, "there is no option kv_fromat: choose from accepted, active"),
        ({"active": "disk"}, "active is 'drive' or 'memory', not 'disk'"),
        ({"kv_format": "int3"}, "kv_format is 'f16' or 'int8'"),
        ({"on_failure": "ignore"}, "on_failure is 'raise' or 'recompute'"),
        ({"xcache": 2}, "the share of X-cache is 'auto' or a number from 0 to 1"),
        ({"dtype": "int2"}, "dtype is 'float32'"),
        ({"attention": "all"}, "no attention policy 'all'"),
    ],
)
def test_what_no_option_can_have_is_refused(given, sentence):
    with pytest.raises(InputError, match=sentence):
        resolve(RunConfig.of(**given))


def test_attach_takes_a_configuration_or_fields_with_the_same_result(llama):
    ids, found = prompts(2, 40), []
    for given in ({"config": RunConfig.of(kv_format="int8", spill=4)}, {"kv_format": "int8", "spill": 4}):
        with kvdrive.attach(llama, "cpu", **given), torch.no_grad():
            found.append(llama.generate(ids, max_new_tokens=4, do_sample=False))
    assert torch.equal(*found)
    with pytest.raises(InputError, match="config has all options"):
        kvdrive.attach(llama, "cpu", config=RunConfig(), spill=4)


def test_the_share_of_x_cache_that_is_chosen_gives_way(caplog):
    plan = resolve(RunConfig.of(xcache="auto", kv_format="int8"))
    assert plan.config.placement.xcache == 0
    assert "X-cache takes none of the sequences: `kv_format=int8` does not go with `xcache`" in caplog.text
    with pytest.raises(ConflictError):
        resolve(RunConfig.of(xcache=0.5, kv_format="int8"))


def test_what_is_typed_becomes_the_value_of_a_field():
    names = named("target", "policy", "active", "memory")
    config = configured(names, {"cache": "1M", "target": "cpu", "attention": "groups", "ratio": "1/8", "threads": "2"})
    assert (config.target.cache_bytes, config.target.target, config.target.threads) == (1 << 20, "cpu", 2)
    assert config.policy.ratio == Fraction(1, 8)
    assert config.placement.active == "drive"
    assert configured(names, {"memory": "1M"}).placement.active == "memory"
    with pytest.raises(InputError, match="`threads=many` is no number"):
        configured(names, {"threads": "many"})
    with pytest.raises(InputError, match="`hot_bytes` goes with policy groups"):
        configured(names, {"hot": "1M"})


def test_nothing_typed_gives_the_defaults():
    assert configured(named(*GROUPS), {}) == RunConfig.of(threads=0, accepted="auto")  # all cores; as accepted so far


def test_every_option_of_a_group_has_a_panel_and_a_sentence():
    assert set(PANELS) == set(GROUPS)
    for name, (_, _, what) in OPTIONS.items():
        assert len(what.help) > 20, name
        assert not what.help.endswith("."), name


def test_sentences_name_flags_in_place_of_fields():
    assert with_flags("raise `hot_bytes`, or take `target=cpu`") == "raise --hot, or take --target cpu"
    assert with_flags("`kvdrive convert` writes `folder`") == "`kvdrive convert` writes --drive"
    assert with_flags("`out` and `windows`", ["out"]) == "--out and `windows`"
