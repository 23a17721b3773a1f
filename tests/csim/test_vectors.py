"""The file of test cases: C++ reads the values that Python writes."""

import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from csim import vectors

pytestmark = pytest.mark.xdist_group("csim")

Show = Callable[[list[vectors.Case], str, str], list[str]]


@pytest.fixture
def show(program: Callable[..., Path], tmp_path: Path) -> Show:
    """Write the cases, and return what the C++ reader prints of one array as one type."""
    executable = program("container")

    def lines(cases: list[vectors.Case], name: str, kind: str) -> list[str]:
        path = tmp_path / "cases"
        assert vectors.write(path, cases) == len(cases)
        done = subprocess.run([executable, path, name, kind], capture_output=True, text=True, check=False, timeout=60)
        return done.stdout.splitlines()

    return lines


@pytest.mark.parametrize(
    ("value", "kind", "expected"),
    [
        (np.array([[1, 2, 3], [4, 5, 4294967295]], np.uint32), "u32", ": 2 3 = 1 2 3 4 5 4294967295"),
        (np.array([[1, 2], [3, 4]], np.uint32).T, "u32", ": 2 2 = 1 3 2 4"),
        (np.array([-1, -(2**31)], np.int32), "i32", ": 2 = -1 -2147483648"),
        (np.array([1.0, -2.0], np.float16), "u16", ": 2 = 15360 49152"),
        (np.array([1.0], np.float32), "u32", ": 1 = 1065353216"),
        (np.array([True, False]), "u8", ": 2 = 1 0"),
        (np.zeros((0, 4), np.uint16), "u16", ": 0 4 ="),
        (np.array([1, 2], ">u4"), "u32", ": 2 = 1 2"),
        (-(2**63), "i64", f": 1 = {-(2**63)}"),
        (-7, "int", ": 1 = -7"),
        ("ab", "u8", ": 2 = 97 98"),
        (np.array([513], np.uint16), "beats", ": 1 = 1 2" + " 0" * 62),
    ],
)
def test_values_arrive_as_they_were(show: Show, value: np.ndarray | int | str, kind: str, expected: str) -> None:
    assert show([[("x", value)]], "x", kind) == [expected]


def test_cases_come_in_order_with_their_labels(show: Show) -> None:
    cases = [[("label", f"case {i}"), ("x", np.arange(i, dtype=np.uint8))] for i in range(3)]
    assert show(cases, "x", "u8") == ["case 0: 0 =", "case 1: 1 = 0", "case 2: 2 = 0 1"]


@pytest.mark.parametrize("kind", ["u8", "u16", "i32", "i64", "int"])
def test_a_wrong_type_is_refused(show: Show, kind: str) -> None:
    assert show([[("x", np.zeros(3, np.uint32))]], "x", kind)[-1].startswith(': 3 =array "x" is')


def test_a_missing_array_is_named(show: Show) -> None:
    assert show([[("x", 1)]], "y", "int") == [':the case has no array "y"']


def test_a_cut_file_is_refused_at_every_length(program: Callable[..., Path], tmp_path: Path) -> None:
    path = tmp_path / "cases"
    vectors.write(path, [[("x", np.arange(3, dtype=np.uint16))]])
    whole = path.read_bytes()
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        done = subprocess.run([program("container"), path, "x", "u16"], capture_output=True, text=True, check=False)
        if length == 8:  # a file without cases
            assert (done.returncode, done.stdout) == (0, "")
        else:
            assert (done.returncode, done.stdout) == (2, "the csim cases end too early\n")


def test_a_file_of_another_kind_is_refused(program: Callable[..., Path], tmp_path: Path) -> None:
    path = tmp_path / "cases"
    path.write_bytes(b"something else")
    done = subprocess.run([program("container"), path, "x", "u16"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, f"{path} holds no csim cases\n")


@pytest.mark.parametrize("value", [np.zeros(1, np.complex128), np.array(["text"])])
def test_other_dtypes_are_refused(tmp_path: Path, value: np.ndarray) -> None:
    with pytest.raises(ValueError, match="does not carry"):
        vectors.write(tmp_path / "cases", [[("x", value)]])


def test_repeated_names_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="twice"):
        vectors.write(tmp_path / "cases", [[("x", 1), ("x", 2)]])
