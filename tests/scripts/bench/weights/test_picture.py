"""The picture of docs/guide/weights.md: a bar for each contender, whose parts add up to its token."""

from bench.weights.dense import SPLIT, split
from bench.weights.picture import picture

MMAP = {"name": "mmap", "way": "mmap", "milliseconds": 9.0, "layers_milliseconds": 7.0}
FLASH = MMAP | {"name": "flash", "way": "flash", "waited": 3.0, "managing": 1.5}
EXPERTS = {"routers": "balanced", "name": "balanced: mmap at 25%", "tokens_per_second": 2.5}


def test_the_parts_add_up_to_the_token():
    assert split(FLASH) == [3.0, 1.5, 2.5, 2.0]
    assert split(MMAP) == [None, None, 7.0, 2.0]


def test_a_picture_is_drawn(tmp_path):
    steps = [(one["name"], split(one)) for one in (MMAP, FLASH)]
    picture(steps, SPLIT, [EXPERTS, EXPERTS | {"routers": "random"}], tmp_path / "weights.png")
    assert (tmp_path / "weights.png").read_bytes().startswith(b"\x89PNG")
