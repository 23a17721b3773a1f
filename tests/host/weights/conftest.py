"""Dense checkpoints and their files of weights."""

import pytest
from rich.console import Console
from small_models import CONFIGS, random_model
from transformers import PreTrainedTokenizerFast

from kvdrive.generation import places
from kvdrive.weights.making import make_file


@pytest.fixture(scope="session")
def dense(checkpoint, tmp_path_factory):
    """mini, mini_relu, or a family of small_models -> checkpoint folder and its file of weights."""
    made = {}

    def of(name):
        if name not in made:
            if name in ("mini", "mini_relu"):
                folder = places.find(name)
            else:
                folder = tmp_path_factory.mktemp(name)
                random_model(CONFIGS[name]).save_pretrained(folder)
                PreTrainedTokenizerFast.from_pretrained(checkpoint).save_pretrained(folder)
            path = tmp_path_factory.mktemp("weights") / "w.kvw"
            made[name] = folder, make_file(folder, path, "auto", Console(quiet=True)).path
        return made[name]

    return of
