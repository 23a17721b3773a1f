# SPDX-License-Identifier: Apache-2.0
"""All tests of the compiler check the rules of the IR after every pass."""

from collections.abc import Iterator

import pytest

from openhls.pipeline import checked


@pytest.fixture(autouse=True)
def every_pass_is_checked() -> Iterator[None]:
    with checked():
        yield
