"""scripts/structure.py finds circles, imports and parameters beyond their bounds, and host has no exceptions. It
finds imports against the order of the compiler's stages."""

import structure
from structure import Found, Stage, circles, compiler_stages, complaints, examine, exceptions, misplaced


def test_host_is_within_its_bounds_and_exceptions():
    assert list(complaints(examine(structure.ROOT / "host/kvdrive"), exceptions())) == []


def test_host_needs_no_exceptions():
    assert exceptions() == Found()


def test_circles_are_the_nodes_that_reach_each_other():
    graph = {"a": {"b"}, "b": {"c"}, "c": {"b", "d"}, "d": set(), "e": {"f"}, "f": {"e"}}
    assert circles(graph) == [["b", "c"], ["e", "f"]]


def test_a_package_is_examined(tmp_path):
    host = tmp_path / "own"
    host.mkdir()
    for number in range(16):
        (host / f"part{number}.py").write_text("")
    (host / "__init__.py").write_text("from own.many import few\n")
    lines = [f"    import own.part{number}\n" for number in range(16)]
    (host / "many.py").write_text("def few(a, b, *, c):\n" + "".join(lines))
    (host / "left.py").write_text("from own import right\nclass A:\n    def b(self, c, d, e, f, g, h, i, j, k): ...\n")
    (host / "right.py").write_text("def later():\n    from own.left import A\n")
    assert examine(host) == Found([["own.left", "own.right"]], {"own.many": 16}, {"own.left:A.b": 9})


def test_the_product_needs_nothing_of_the_study(tmp_path):
    host = tmp_path / "own"
    (host / "study").mkdir(parents=True)
    (host / "study/__init__.py").write_text("")
    (host / "study/claims.py").write_text("from own import study\nfrom own.rates import rate\n")
    (host / "__init__.py").write_text("")
    (host / "rates.py").write_text("")
    assert examine(host).study == []
    (host / "plan.py").write_text("def later():\n    from own.study import claims\n")
    assert examine(host).study == ["own.plan"]
    assert list(complaints(examine(host), Found())) == [
        "own.plan imports the study of papers: move what both need out of study/"
    ]


def test_what_is_new_larger_or_gone_is_said():
    circle, smaller = ["a", "b", "c"], ["a", "b"]
    allowed = Found([circle], {"many": 20}, {"f": 10})
    assert list(complaints(allowed, allowed)) == []
    said = list(complaints(Found([smaller], {"many": 21, "new": 16}, {"f": 9}), allowed))
    assert said == [
        "a, b import each other: the circle is smaller now, write it down",
        "many has 21 imports, and 20 are allowed: give a part of its work to a file of its own",
        "new has 16 imports, and 15 are allowed: give a part of its work to a file of its own",
        "f has fewer than 10 parameters now: write that down among the exceptions",
    ]
    assert list(complaints(Found(), Found([circle]))) == [
        "a, b, c do not import each other any more: take them out of the exceptions"
    ]


def test_the_compiler_keeps_the_order_of_its_stages():
    assert list(misplaced(structure.ROOT / "sim/openhls", compiler_stages())) == []


def test_stages_of_the_compiler_are_in_an_order():
    """A stage may know only those before it in the file, so that no table of stages has a circle."""
    known = []
    for name, stage in compiler_stages().items():
        assert set(stage.imports) <= set(known), name
        known.append(name)


def test_imports_against_the_order_of_stages_are_said(tmp_path):
    own = tmp_path / "own"
    for folder in ("early", "late"):
        (own / folder).mkdir(parents=True)
        (own / folder / "__init__.py").write_text("")
    (own / "__init__.py").write_text("")
    (own / "early/reader.py").write_text("def read():\n    from own.late.writer import write\n")
    (own / "late/writer.py").write_text("from own.early import names\nfrom own.late import text\n")
    (own / "late/text.py").write_text("")
    (own / "early/names.py").write_text("from own.early import reader\n")
    (own / "stray.py").write_text("")
    stages = {"early": Stage(["__init__", "early"], []), "late": Stage(["late"], ["early"])}
    circle, stray, against = misplaced(own, stages)
    assert circle.startswith("own.early.names, own.early.reader, own.late.writer import each other")
    assert stray.startswith("own.stray is in 0 stages")
    assert against.startswith("own.early.reader imports own.late.writer, and the stage early may not know late")
