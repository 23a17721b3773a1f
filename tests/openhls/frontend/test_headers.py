# SPDX-License-Identifier: Apache-2.0
"""Numbers of the headers have the values that plain Python arithmetic gives them."""

import math
import random
import subprocess
from collections.abc import Callable, Sequence
from fractions import Fraction
from itertools import product
from pathlib import Path

import pytest
from ir_interpreter import interpret

from openhls.frontend.toolchain import COMMON
from openhls.pipeline import compile_program

HEAD = """#include <ap_fixed.h>
#include <ap_int.h>
#include <hls_math.h>
#include <hls_stream.h>
using Words = hls::stream<ap_uint<32>>;
"""
SEED = 7
Run = Callable[[str, Sequence[int]], list[int]]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """What a loop over the words of `in` writes to `out`; its body is C++."""

    def words(body: str, given: Sequence[int]) -> list[int]:
        source = tmp_path / "program.cpp"
        source.write_text(
            f"{HEAD}void top(Words& in, Words& out, int n) {{\n  for (int i = 0; i < n; ++i) {{\n"
            f"    const ap_uint<32> word = in.read();\n{body}\n  }}\n}}\n"
        )
        program = compile_program(source, "top")
        return interpret(program, {"n": len(given)}, {"in": list(given)}).streams["out"]

    return words


def random_words(count: int, bits: int) -> list[int]:
    """The ends of the range, and numbers between them."""
    rng = random.Random(SEED)
    return [0, 1, (1 << bits) - 1, 1 << bits - 1, *(rng.getrandbits(bits) for _ in range(count))]


def signed(bits: int, width: int) -> int:
    return bits - (1 << width) if bits >> width - 1 else bits


QUANTISED: dict[str, Callable[[Fraction], int]] = {
    "AP_TRN": math.floor,
    "AP_TRN_ZERO": math.trunc,
    "AP_RND": lambda x: math.floor(x + Fraction(1, 2)),
    "AP_RND_ZERO": lambda x: math.ceil(x - Fraction(1, 2)) if x > 0 else math.floor(x + Fraction(1, 2)),
    "AP_RND_MIN_INF": lambda x: math.ceil(x - Fraction(1, 2)),
    "AP_RND_INF": lambda x: math.floor(x + Fraction(1, 2)) if x > 0 else math.ceil(x - Fraction(1, 2)),
    "AP_RND_CONV": round,
}


def kept_in_range(number: int, width: int, is_signed: bool, overflow: str) -> int:
    """The bits of a number in `width` bits."""
    most = (1 << width - is_signed) - 1
    least = (-most - (overflow != "AP_SAT_SYM")) if is_signed else 0
    if overflow != "AP_WRAP" and not least <= number <= most:
        number = 0 if overflow == "AP_SAT_ZERO" else most if number > most else least
    return number % (1 << width)


@pytest.mark.parametrize("is_signed", [True, False], ids=["signed", "unsigned"])
def test_every_mode_of_rounding_and_saturation_is_exact(run: Run, is_signed: bool) -> None:
    modes = list(product(QUANTISED, ("AP_WRAP", "AP_SAT", "AP_SAT_ZERO", "AP_SAT_SYM")))
    target = "ap_fixed" if is_signed else "ap_ufixed"
    lines = ["ap_fixed<14, 6> x; x.range(13, 0) = word(13, 0);"]
    for q, o in modes:
        lines.append(f"{{ const {target}<7, 4, {q}, {o}> y = x; out.write(ap_uint<7>(y.range(6, 0))); }}")
    given = random_words(60, 14)
    found = run("\n".join(lines), given)
    wanted = [
        kept_in_range(QUANTISED[q](Fraction(signed(word, 14), 32)), 7, is_signed, o) for word in given for q, o in modes
    ]
    assert found == wanted


def test_fixed_point_is_changed_in_place(run: Run) -> None:
    body = """ap_fixed<10, 6> x; x.range(9, 0) = word(9, 0);
      ap_fixed<10, 6> a = x, b = x, c = x, d = x, e = x; a <<= 2; b >>= 3; ++c; d--; const ap_fixed<10, 6> f = e++;
      const ap_fixed<10, 6> all[6] = {a, b, c, d, e, f};
      for (int k = 0; k < 6; ++k) {
#pragma HLS UNROLL
        out.write(ap_uint<10>(all[k].range(9, 0)));
      }"""
    given = random_words(40, 10)
    wanted = []
    for word in given:
        x = signed(word, 10)
        wanted += [each % 1024 for each in (x << 2, x >> 3, x + 16, x - 16, x + 16, x)]
    assert run(body, given) == wanted


def test_bits_are_reversed_and_turned(run: Run) -> None:
    body = """ap_uint<11> a = word(10, 0), b = a; ap_int<11> c = a, d = a;
      a.reverse(); b.lrotate(3); c.rrotate(4); d.reverse();
      out.write(a); out.write(b); out.write(ap_uint<11>(c)); out.write(ap_uint<11>(d));
      out.write(ap_uint<2>((ap_uint<1>(ap_int<3>::sign_flag), ap_uint<1>(ap_uint<3>::sign_flag))));"""
    given = random_words(40, 11)
    wanted = []
    for word in given:
        text = f"{word:011b}"
        turned = [text[::-1], text[3:] + text[:3], text[-4:] + text[:-4], text[::-1]]
        wanted += [*(int(each, 2) for each in turned), 2]
    assert run(body, given) == wanted


def test_numbers_are_made_of_texts(run: Run) -> None:
    rng = random.Random(SEED)
    prefixes, digits = {2: "0b", 8: "0o", 10: "0d", 16: "0x"}, "0123456789abcdef"
    lines, wanted = [], []
    for number in range(60):
        radix, width = rng.choice(tuple(prefixes)), rng.choice((1, 4, 9, 31, 32))
        text = "".join(rng.choice(digits[:radix]) for _ in range(rng.randrange(1, 8)))
        if radix == 16 and number % 2:
            text = text.upper()
        sign, prefix = rng.choice(("", "-")), rng.choice(("", prefixes[radix]))
        # Without a prefix, the radix is said, unless it is 10.
        given = f", {radix}" if not prefix and (radix != 10 or number % 2) else ""
        # The digits b and d behind a 0 would be a prefix.
        if not prefix and text[:1] == "0":
            text = "1" + text[1:]
        lines.append(f'out.write(ap_uint<{width}>(ap_int<{width}>("{sign}{prefix}{text}"{given})));')
        wanted.append(int(f"{sign}{text}", radix) % (1 << width))
    assert run("\n".join(lines), [0]) == wanted


def root(number: int) -> int:
    return math.isqrt(number)


def test_functions_of_fixed_point_are_exact(run: Run) -> None:
    body = """ap_fixed<12, 5> x; x.range(11, 0) = word(11, 0);
      ap_ufixed<9, 3> y; y.range(8, 0) = word(20, 12);
      const ap_fixed<12, 5> all[5] = {hls::floor(x), hls::ceil(x), hls::round(x), hls::trunc(x), hls::sqrt(x)};
      for (int k = 0; k < 5; ++k) {
#pragma HLS UNROLL
        out.write(ap_uint<12>(all[k].range(11, 0)));
      }
      const ap_ufixed<9, 3> other = hls::sqrt(y);
      out.write(ap_uint<9>(other.range(8, 0)));
      out.write(hls::sqrt(ap_uint<17>(word)));
      out.write(ap_uint<9>(hls::sqrt(ap_int<9>(word))));
      out.write(ap_uint<12>(hls::abs(ap_int<12>(word))));"""
    given = random_words(80, 32)
    wanted = []
    for word in given:
        raw, y = signed(word % 4096, 12), word >> 12 & 511
        x = Fraction(raw, 128)
        nearest = math.floor(x + Fraction(1, 2)) if x > 0 else math.ceil(x - Fraction(1, 2))
        whole = [math.floor(x), math.ceil(x), nearest, math.trunc(x)]
        wanted += [(each * 128) % 4096 for each in whole]
        wanted += [root(raw * 128) if raw > 0 else 0, root(y * 64), root(word % (1 << 17))]
        narrow = signed(word % 512, 9)
        wanted += [root(narrow) if narrow > 0 else 0, abs(raw) % 4096]
    assert run(body, given) == wanted


def test_software_gives_a_vector_as_many_elements_as_it_has(tmp_path: Path) -> None:
    source, program = tmp_path / "lanes.cpp", tmp_path / "lanes"
    source.write_text(
        "#include <hls_vector.h>\nint main(int count, char**) {\n"
        "  const hls::vector<int, 3> lanes = count > 1 ? hls::vector<int, 3>{1, 2, 3} : hls::vector<int, 3>{1, 2};\n"
        "  return lanes[1];\n}\n"
    )
    subprocess.run(["g++", "-std=gnu++17", f"-I{COMMON}", "-o", program, source], check=True)
    assert subprocess.run([program, "three"], check=False).returncode == 2
    failed = subprocess.run([program], check=False, capture_output=True, text=True)
    assert "values.size() == N" in failed.stderr
