"""docs/design/arithmetic.md implemented literally, one number at a time, with Python integers and Fractions.

Slow and simple on purpose. It imports nothing from golden and shares no trick (limbs, words, sticky bits) with it.
"""

from fractions import Fraction

import numpy as np


def value16(pattern):
    """Exact value of a finite binary16 pattern."""
    return Fraction(float(np.uint16(pattern).view(np.float16)))


def value32(pattern):
    """Exact value of a finite binary32 pattern."""
    return Fraction(float(np.uint32(pattern).view(np.float32)))


def rne(x):
    """Nearest integer of a Fraction, ties to even (Python's own rule for Fractions)."""
    return round(x)


def _fl(x, precision, smallest, largest_exponent):
    """(negative, integer, exponent) of the nearest number of a format, or None for overflow."""
    magnitude = abs(x)
    if magnitude == 0:
        return 0, smallest
    exponent = magnitude.numerator.bit_length() - magnitude.denominator.bit_length()
    if Fraction(2) ** exponent > magnitude:
        exponent -= 1
    lsb = max(exponent - precision + 1, smallest)
    units = rne(magnitude / Fraction(2) ** lsb)
    if units * Fraction(2) ** lsb >= Fraction(2) ** (largest_exponent + 1):
        return None
    return units, lsb


def fl32(x):
    """Pattern of RNE(x) in binary32, zeros positive, overflow infinite."""
    result = _fl(x, 24, -149, 127)
    sign = 0x80000000 if x < 0 else 0
    if result is None:
        return sign | 0x7F800000
    units, lsb = result
    value = np.float32(np.ldexp(float(units), lsb))
    return 0 if units == 0 else sign | int(value.view(np.uint32))


def fl16(x):
    """Pattern of RNE(x) in binary16, zeros positive, overflow infinite."""
    result = _fl(x, 11, -24, 15)
    sign = 0x8000 if x < 0 else 0
    if result is None:
        return sign | 0x7C00
    units, lsb = result
    value = np.float16(np.ldexp(float(units), lsb))
    return 0 if units == 0 else sign | int(value.view(np.uint16))


def score(dot, c):
    """sat_int32(RNE(fl32(dot * c) * 2^20)) of two patterns."""
    pattern = fl32(value32(dot) * value32(c))
    if pattern & 0x7FFFFFFF == 0x7F800000:
        return -(2**31) if pattern >> 31 else 2**31 - 1
    return max(-(2**31), min(2**31 - 1, rne(value32(pattern) * 2**20)))


def dot(q, k):
    """fl32 of the exact dot product of two lists of binary16 patterns."""
    return fl32(sum((value16(a) * value16(b) for a, b in zip(q, k, strict=True)), Fraction(0)))


def mantissa(f, tables):
    """m of the contract's exp2 for a fraction f in [0, 2^20)."""
    c0, c1, c2 = tables
    i, r = f >> 14, f & 16383
    return (c0[i] + (((c1[i] + ((c2[i] * r) >> 14)) * r) >> 15) + 5) >> 3


def probability(x, maximum, tables):
    """p (LSB 2^-31) of the score x under the maximum M."""
    y = x - maximum * 2**20
    n, f = y >> 20, y & (2**20 - 1)
    m = mantissa(f, tables)
    if n >= -12:
        return m << (12 + n)
    s = -12 - n
    return 0 if s > 20 else (m + (1 << (s - 1))) >> s


def softmax(scores, valid, tables):
    """(p, M, Z) of a list of scores and a list of booleans."""
    maximum = max(-(-x // 2**20) for x, ok in zip(scores, valid, strict=True) if ok)
    p = [probability(x, maximum, tables) if ok else 0 for x, ok in zip(scores, valid, strict=True)]
    return p, maximum, sum(p)


def attention(q, k, v, c, valid, inline_scores, inline_v, tables, partial=False):
    """(out patterns, M, Z) of one head: patterns q [d], k, v [s][d], inline_v [t][d]; valid [s]; inline scores [t]."""
    scores = [score(dot(q, row), c) if ok else 0 for row, ok in zip(k, valid, strict=True)]
    p, maximum, total = softmax(scores + list(inline_scores), list(valid) + [True] * len(inline_scores), tables)
    rows = [row for row, weight in zip(list(v) + list(inline_v), p, strict=True) if weight]
    weights = [weight for weight in p if weight]
    rounding = fl32 if partial else fl16
    out = []
    for j in range(len(q)):
        acc = sum((w * value16(row[j]) for w, row in zip(weights, rows, strict=True)), Fraction(0))
        out.append(rounding(acc / total))
    return out, maximum, total


def sparf(q, k, v, c, r, k_top, local, valid, inline_scores, inline_v, tables):
    """All ten steps for patterns q [g][d], k, v [s][d], inline scores [g][t], inline_v [t][d].

    Returns (out [g][d], rows, tokens, alpha patterns [g]); rows and tokens are ascending indices.
    """
    g, d, s = len(q), len(q[0]), len(k)
    magnitude = [[abs(value16(x)) for x in head] for head in q]
    keys = [fl32(sum((magnitude[h][i] for h in range(g)), Fraction(0))) for i in range(d)]
    rows = sorted(sorted(range(d), key=lambda i: (-value32(keys[i]), i))[:r])
    p, sums = [], []
    for h in range(g):
        scale = _head_scale(magnitude[h], rows, c)
        scores = [
            score(dot([q[h][i] for i in rows], [row[i] for i in rows]), scale) if ok else 0
            for row, ok in zip(k, valid, strict=True)
        ]
        weights, _, total = softmax(scores + list(inline_scores[h]), list(valid) + [True] * len(inline_v), tables)
        p.append(weights)
        sums.append(total)
    tokens = _tokens(p, sums, s, k_top, local, valid)
    alpha = [fl32(Fraction(sum(p[h][t] for t in tokens) + sum(p[h][s:]), sums[h])) for h in range(g)]
    used = [row for row, ok in zip(v, valid, strict=True) if ok] + list(inline_v)
    mean = [fl32(sum((value16(row[j]) for row in used), Fraction(0)) / len(used)) for j in range(d)]
    out = []
    for h in range(g):
        chosen_k, chosen_v = [k[t] for t in tokens], [v[t] for t in tokens]
        near, _, _ = attention(
            q[h], chosen_k, chosen_v, c, [True] * len(tokens), inline_scores[h], inline_v, tables, partial=True
        )
        beta = fl32(1 - value32(alpha[h]))
        blend = [
            fl32(value32(fl32(value32(alpha[h]) * value32(o))) + value32(fl32(value32(beta) * value32(m))))
            for o, m in zip(near, mean, strict=True)
        ]
        out.append([fl16(value32(x)) for x in blend])
    return out, rows, tokens, alpha


def _head_scale(magnitude, rows, c):
    """c_h = fl32(c * fl32(sqrt(fl32(L1 / Lr)))), c where Lr is 0."""
    whole = value32(fl32(sum(magnitude, Fraction(0))))
    part = value32(fl32(sum((magnitude[i] for i in rows), Fraction(0))))
    if part == 0:
        return c
    ratio = np.uint32(fl32(whole / part)).view(np.float32)
    root = int(np.sqrt(ratio).view(np.uint32))  # IEEE 754 square root: rounded once
    return fl32(value32(c) * value32(root))


def _tokens(p, sums, s, k_top, local, valid):
    """Steps 4 to 6: chosen dense tokens, ascending, without masked ones."""
    weights = [min(sums) * 2**24 // total for total in sums]
    keys = []
    for t in range(s):
        key = value32(fl32(Fraction(sum(head[t] * w for head, w in zip(p, weights, strict=True)))))
        if t >= s - local:
            key = value32(0x7F7FFFFF)
        keys.append(key if valid[t] else value32(0xFF7FFFFF))
    best = sorted(range(s), key=lambda t: (-keys[t], t))[:k_top]
    return sorted(t for t in best if valid[t])


def group_span(k, e):
    """(lo, step, codes) of a span of patterns k [32][d] under u = 2^e, with Fractions; codes [32][d]."""
    u = Fraction(2) ** e * Fraction(1, 2**24)
    lo, step, codes = [], [], [[] for _ in k]
    for column in zip(*k, strict=True):
        values = [value16(x) for x in column]
        low = max(-128, min(127, min(values) // u))
        width = max(1, min(255, -(-4 * (max(values) - low * u) // (3 * u))))
        for row, value in zip(codes, values, strict=True):
            row.append(int(max(0, min(3, (value - low * u) / (width * u / 4) + Fraction(1, 2)) // 1)))
        lo.append(int(low))
        step.append(int(width))
    return lo, step, codes


def quantised_query(q):
    """(q8, f) of one head of patterns."""
    values = [value16(x) * 2**24 for x in q]
    f = 0
    while max(abs(v) for v in values) > 127 * 2**f:
        f += 1
    return [rne(v / 2**f) for v in values], f


def group_choice(q, spans, e, unit, k_top, c, valid, inline_scores, tables):
    """Chosen units, and per head M, Z and the mass of the others: patterns q [g][d], spans as `group_span` gives them.

    valid [32 n], inline scores [g][t].
    """
    heads = []
    for head, inline in zip(q, inline_scores, strict=True):
        q8, f = quantised_query(head)
        scores = []
        for lo, step, codes in spans:
            for row in codes:
                terms = zip(q8, lo, step, row, strict=True)
                total = sum(x * (low + Fraction(width * code, 4)) for x, low, width, code in terms)
                scores.append(score(fl32(total * Fraction(2) ** (f + e - 48)), c))
        heads.append(softmax(scores + list(inline), list(valid) + [True] * len(inline), tables))
    s = len(valid)
    units = [range(first, min(first + unit, s)) for first in range(0, s, unit)]
    least = min(total for _, _, total in heads)
    keys = []
    for members in units:
        mass = sum(sum(p[t] for t in members) * (least * 2**24 // total) for p, _, total in heads)
        keys.append(value32(fl32(Fraction(mass))))
    keys[0] = keys[-1] = value32(0x7F7FFFFF)
    chosen = sorted(sorted(range(len(units)), key=lambda n: (-keys[n], n))[:k_top])
    others = [t for n, members in enumerate(units) if n not in chosen for t in members]
    return chosen, [m for _, m, _ in heads], [z for _, _, z in heads], [sum(p[t] for t in others) for p, _, _ in heads]
