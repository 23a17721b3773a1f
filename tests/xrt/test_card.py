# SPDX-License-Identifier: Apache-2.0
"""XRT itself on emulated cards: images, kernels, two cards, faults."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from emulated_cards import Cards

from kvdrive import abi
from kvdrive.xrt.single import IMAGE_VARIABLE
from openhls.cosim import simulate

MakeCards = Callable[..., Cards]
HERE = Path(__file__).parent


def attention_arrays(path: Path, group: int = 1) -> Path:
    rng = np.random.default_rng(1)
    arrays = {
        name: rng.standard_normal((rows, 64)).astype(np.float16)
        for name, rows in (("q", group), ("k", 100), ("v", 100))
    }
    np.savez(path, **arrays)
    return path


def log_of(cards: Cards) -> list[dict]:
    return [json.loads(line) for line in (cards.folder / "card.log").read_text().splitlines()]


def test_images_say_what_is_in_them_and_two_cards_have_memory_of_their_own(cards: MakeCards) -> None:
    made = cards(cards=2)
    done = made.python(HERE / "use_card.py", made.image("attention_g1", "argtopk", units=2), "2")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["platform"] == "xilinx_u2_gen3x4_xdma_gc_2_202110_1"
    assert found["kernels"] == ["attention_g1", "argtopk"]
    assert found["arguments"] == [5, 6]
    assert found["banks"] == ["bank0"]
    assert found["read"] == [[number, number, found["platform"]] for number in (1, 2)]
    assert len(log_of(made)) == 2  # a process each


def test_kernels_give_the_golden_bits(cards: MakeCards) -> None:
    made = cards()
    image = made.image("attention_g1", "argtopk")
    keys = np.random.default_rng(2).standard_normal(3000).astype(np.float32)
    np.savez(made.folder / "keys.npz", keys=keys, k_top=70)
    attention_arrays(made.folder / "rows.npz")
    for kernel, source in (("attention", "rows.npz"), ("argtopk", "keys.npz")):
        command = ["kernel", "compare", kernel, "--in", source, "--engines", "golden,xrt", "--json"]
        done = made.kvdrive(*command, **{IMAGE_VARIABLE: str(image)})
        assert done.returncode == 0, done.stderr
        rows = json.loads(done.stdout.splitlines()[-1])
        assert len(rows) > 2
        assert all(row["identical"] for row in rows)
    assert [sum(entry["starts"].values()) for entry in log_of(made)] == [1, 1]


def test_a_status_word_comes_back_through_the_return_register(cards: MakeCards) -> None:
    made = cards()
    np.savez(made.folder / "keys.npz", keys=np.ones(5, np.float32), k_top=6)
    command = ["kernel", "run", "argtopk", "--in", "keys.npz", "--out", "out.npz", "--engine", "xrt", "--json"]
    done = made.kvdrive(*command, **{IMAGE_VARIABLE: str(made.image("argtopk"))})
    assert done.returncode == 2
    assert json.loads(done.stdout.splitlines()[-1])["status"] == abi.Status.BAD_K


def test_what_an_image_lacks_is_named(cards: MakeCards) -> None:
    made = cards()
    attention_arrays(made.folder / "rows.npz", group=2)
    command = ["kernel", "run", "attention", "--in", "rows.npz", "--out", "out.npz", "--engine", "xrt"]
    without = made.kvdrive(*command)
    assert without.returncode == 2
    assert "needs an image" in without.stderr
    wrong = made.kvdrive(*command, **{IMAGE_VARIABLE: str(made.image("attention_g1"))})
    assert wrong.returncode == 2
    assert "no attention_g2" in wrong.stderr


def test_the_example_runs(cards: MakeCards) -> None:
    made = cards()
    done = made.python(HERE.parents[1] / "examples/card.py", made.image("argtopk"))
    assert done.returncode == 0, done.stderr
    assert "as numpy chooses: True" in done.stdout


def test_a_card_refuses_an_image(cards: MakeCards) -> None:
    made = cards(fault="image")
    attention_arrays(made.folder / "rows.npz")
    command = ["kernel", "run", "attention", "--in", "rows.npz", "--out", "out.npz", "--engine", "xrt"]
    done = made.kvdrive(*command, **{IMAGE_VARIABLE: str(made.image("attention_g1"))})
    assert done.returncode == 2
    assert "does not take" in done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["sw_emu", "hw_emu"])
def test_the_verilated_kernel_answers_through_its_registers(cards: MakeCards, mode: str) -> None:
    try:
        simulate.verilator()
    except simulate.ToolError as error:
        pytest.skip(str(error))
    made = cards(kernels="rtl", mode=mode)
    keys = np.random.default_rng(2).standard_normal(500).astype(np.float32)
    np.savez(made.folder / "keys.npz", keys=keys, k_top=40)
    command = ["kernel", "compare", "argtopk", "--in", "keys.npz", "--engines", "golden,xrt", "--json"]
    done = made.kvdrive(*command, **{IMAGE_VARIABLE: str(made.image("argtopk"))})
    assert done.returncode == 0, done.stderr
    assert all(row["identical"] for row in json.loads(done.stdout.splitlines()[-1]))
    assert [entry["starts"] for entry in log_of(made)] == [{"argtopk_1": 1}]
