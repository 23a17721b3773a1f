"""The drive's hls engine gives golden's results for argtopk and page_filter, on the cases of csim."""

import numpy as np
import pytest

import golden
from csim import argtopk, page_filter
from golden.abi import KeyType

native = pytest.importorskip("kvdrive._native", reason="the native extension is not built: make setup")

SEED = 31


@pytest.fixture(scope="module")
def engine() -> "native.Engine":
    return native.Engine("hls")


def test_argtopk_equals_golden(engine: "native.Engine") -> None:
    compared = 0
    for case in argtopk.cases(np.random.default_rng(SEED), True):
        values = dict(case)
        if not 0 <= values["k"] < 2**32:  # the engine's k is unsigned
            continue
        status, indices, bitmap = engine.argtopk(values["keys"], values["k"])
        expected = golden.argtopk(values["keys"], values["k"], KeyType(values["key_type"]))
        assert status == expected.status, values["label"]
        np.testing.assert_array_equal(indices, expected.indices, values["label"])
        np.testing.assert_array_equal(bitmap, expected.bitmap, values["label"])
        compared += 1
    assert compared > 100


def test_page_filter_equals_golden(engine: "native.Engine") -> None:
    compared = 0
    for case in page_filter.cases(np.random.default_rng(SEED), True):
        values = dict(case)
        sizes = [values[name] for name in ("rows", "row_bytes", "page_bytes")]
        if min(sizes) < 0 or values["rows"] > 8 * values["bitmap"].size:  # the Python binding refuses these
            continue
        got = engine.page_filter(values["pages"], values["bitmap"], *sizes)
        expected = golden.page_filter(values["pages"], values["bitmap"], *sizes)
        assert got[0] == expected.status, values["label"]
        np.testing.assert_array_equal(got[1], expected.rows, values["label"])
        assert (got[2], got[3]) == (expected.rows_seen, expected.rows_kept)
        np.testing.assert_array_equal(got[4], expected.page_needed, values["label"])
        compared += 1
    assert compared > 100


def test_a_part_of_a_page_is_refused(engine: "native.Engine") -> None:
    pages = np.zeros(4096 + 64, np.uint8)
    bitmap = np.full(64, 255, np.uint8)
    assert engine.page_filter(pages, bitmap, 1, 64, 4096)[0] == golden.page_filter(pages, bitmap, 1, 64, 4096).status
