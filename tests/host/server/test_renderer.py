"""Texts are rendered in a process that is ended when one takes too long, and begun again for the next one."""

import gc
import os

from kvdrive.server.renderer import Renderer

SLOW = "[" * (256 << 10)  # minutes


def test_texts_come_back_in_their_order():
    assert Renderer(60, 60).render(["*a*", "", "\N{SNOWMAN}\n\nb"]) == [
        "<p><em>a</em></p>\n", "", "<p>\N{SNOWMAN}</p>\n<p>b</p>\n",
    ]  # fmt: skip


def test_a_text_that_takes_too_long_is_given_up_and_the_next_one_is_rendered():
    renderer = Renderer(0.2, 60)
    assert renderer.render([SLOW]) == [None]
    renderer = Renderer(60, 60)
    renderer.render([""])
    renderer._each = 0.2
    assert renderer.render([SLOW]) == [None]
    renderer._each = 60
    assert renderer.render(["a"]) == ["<p>a</p>\n"]


def test_texts_of_a_call_have_a_time_together():
    renderer = Renderer(60, 0.2)
    assert renderer.render([SLOW, "a", "b"]) == [None, None, None]
    assert Renderer(60, 60).render([]) == []


def test_a_process_that_has_died_is_replaced():
    renderer = Renderer(60, 60)
    renderer.render(["a"])
    os.kill(renderer._process.pid, 9)
    renderer._process.wait()
    assert renderer.render(["a"]) == [None]
    assert renderer.render(["a"]) == ["<p>a</p>\n"]


def test_the_process_ends_with_its_object():
    renderer = Renderer(60, 60)
    renderer.render(["a"])
    process = renderer._process
    del renderer
    gc.collect()
    assert process.returncode is not None
