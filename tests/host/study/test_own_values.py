"""No prediction knows its own answer: what the ledger counts as agreement is computed without the claim's number."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import kvdrive
from kvdrive.study import claims_page as page
from kvdrive.study import stated
from kvdrive.study.attention_store import evaluation, inputs
from kvdrive.study.attention_store import stated as attention_store_stated
from kvdrive.study.claim import AGREEMENT, Claim, Kind, Verdict, computed, evaluate
from kvdrive.study.hilos.machine import HILOS
from kvdrive.study.instinfer import inputs as instinfer_inputs

PACKAGE = Path(kvdrive.__file__).parent
REPLAYED = {"SPA-04"}  # takes seconds without what other claims have computed
WITHOUT_OWN = (*AGREEMENT, Verdict.arithmetic)

pytestmark = pytest.mark.xdist_group("claims")  # what one test computes is kept for the others


class OwnNumberError(Exception):
    """A claim's value was computed from the claim's number."""


@pytest.fixture
def refusing(monkeypatch):
    """A claim's stated numbers refuse to be read. Nothing that was computed before is kept."""

    def refuse(key):
        original = stated.read

        def read(*claims):
            if key in claims:
                raise OwnNumberError(key)
            original(*claims)

        monkeypatch.setattr(stated, "read", read)
        stated.forget()

    yield refuse
    stated.forget()


def claim(key, ours, value=1.0):
    return Claim(key, "there", "so much", (value,), kind=Kind.modelled, ours=ours)


@pytest.fixture(scope="module")
def entries():
    """Of all claims but those that replay traces."""
    return [evaluate(claim) for paper in page.PAPERS.values() for claim in paper if claim.key not in REPLAYED]


@pytest.mark.parametrize("replayed", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_what_agrees_is_computed_without_its_own_number(entries, refusing, replayed):
    """It refuses to be read, and no code that runs holds a copy of it."""
    if replayed:
        checked = [evaluate(claim) for paper in page.PAPERS.values() for claim in paper if claim.key in REPLAYED]
        assert {entry.verdict for entry in checked} <= set(WITHOUT_OWN)
    else:
        checked = [entry for entry in entries if entry.verdict in WITHOUT_OWN]
        assert {entry.verdict for entry in checked} == set(WITHOUT_OWN)
    assert checked
    for entry in checked:
        key, values, again = entry.claim.key, entry.claim.value, []
        refusing(key)
        found = literals(lambda one=entry.claim, rows=again: rows.extend(computed(one)), PACKAGE)
        assert entry.values in again, key
        if entry.verdict in AGREEMENT:
            assert found, key
            assert not any(copies(value, found) for value in values), key


def test_inputs_are_noticed_because_they_read_their_own_number(entries, refusing):
    read = [entry.claim for entry in entries if entry.verdict is Verdict.input and entry.claim.key in entry.reads]
    assert len(read) > 10
    for one in read:
        refusing(one.key)
        with pytest.raises(OwnNumberError):
            computed(one)


@pytest.mark.parametrize(
    ("key", "ours"),
    [
        ("AS-05", lambda: attention_store_stated.PREFILL_SECONDS.value),
        ("AS-05", lambda: inputs.A100_USE.value),
        ("AS-05", lambda: HILOS.use.value),
        ("AS-05", lambda: evaluation.prefill_speedup("llama-13b")),
        ("AS-02", lambda: evaluation.statistics()[1]),
        ("AS-13", lambda: evaluation.prefill_speedup("llama-13b")),
        ("INST-08", lambda: instinfer_inputs.DEEPSPEED_SWAP.value),
    ],
    ids=["number", "input", "machine", "recorded replay", "fitted trace", "chosen order of turns", "input of an input"],
)
def test_a_claim_that_is_told_its_answer_is_an_input_each_time(key, ours, refusing):
    for _ in range(2):  # the second time from what is remembered
        assert evaluate(claim(key, lambda: (ours(),), ours())).verdict is Verdict.input
        assert evaluate(claim("X", lambda: (ours(),), ours())).verdict is Verdict.predicted
    refusing(key)
    with pytest.raises(OwnNumberError):
        computed(claim(key, lambda: (ours(),)))


def test_a_difference_comes_before_all_other_verdicts():
    told = claim("AS-05", lambda: (attention_store_stated.PREFILL_SECONDS.value,), 1.0)
    assert evaluate(told).verdict is Verdict.differs


def test_no_stated_number_is_read_while_a_module_is_imported():
    """A constant of a module would hide the number from who watches."""
    modules = sorted(reaching(sources()))
    assert {"kvdrive.study.model.decode", "kvdrive.study.attention_store.figures", "kvdrive.study.claims_page"} < set(
        modules
    )
    code = f"""
from importlib import import_module
from kvdrive.study import stated
from kvdrive.study.instinfer.stated import KV_SAVED

def refuse(*claims):
    raise AssertionError(f"read at import: {{claims}}")

stated.read = refuse
for name in {modules!r}:
    import_module(name)
try:
    exec("RATE = KV_SAVED.value")
except AssertionError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stderr == ""
    assert done.stdout == "read at import: ('INST-16',)\n"


def imports(source):
    """Names of the package's modules that a source imports, anywhere."""
    found = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found |= {name.name for name in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module, *(f"{node.module}.{name.name}" for name in node.names)}
    return {name for name in found if name.startswith("kvdrive")}


def keeps_results(source):
    return any(
        isinstance(node, ast.ImportFrom)
        and node.module == "functools"
        and {name.name for name in node.names} & {"cache", "lru_cache", "cached_property"}
        for node in ast.walk(ast.parse(source))
    )


def sources():
    """The text of each module of the models, by the module's name."""
    return {
        ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts): path.read_text()
        for folder in ("perf", "study")
        for path in (PACKAGE / folder).rglob("*.py")
        if path.name != "__init__.py"
    }


def reaching(texts):
    """The modules that import the stated numbers, themselves or through others."""
    needs = {name: imports(text) for name, text in texts.items()}
    found = {"kvdrive.study.stated"}
    while more := {name for name, others in needs.items() if others & found} - found:
        found |= more
    return found


def beyond_the_watch(texts):
    """Modules that reach the stated numbers and keep results in a way that forgets what was read."""
    return {name for name in reaching(texts) if keeps_results(texts[name])}


def test_results_that_stated_numbers_go_into_are_kept_with_the_reads():
    texts = sources()
    assert beyond_the_watch(texts) == set()
    texts["kvdrive.study.more"] = "from functools import cache\nfrom kvdrive.study.hilos import figures\n"
    assert beyond_the_watch(texts) == {"kvdrive.study.more"}


def printed_elsewhere(source):
    """Lines that read `printed` outside of `Published(...)`, the pictures' own points."""
    tree = ast.parse(source)
    within = {
        id(node)
        for call in ast.walk(tree)
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id == "Published"
        for node in ast.walk(call)
    }
    reads = [node for node in ast.walk(tree) if isinstance(node, ast.Attribute) and node.attr == "printed"]
    return [node.lineno for node in reads if id(node) not in within]


def test_models_read_stated_numbers_where_it_is_noticed():
    for path in PACKAGE.rglob("*.py"):
        if path != PACKAGE / "study/stated.py":
            text = path.read_text()
            assert "printed" not in text or printed_elsewhere(text) == [], path
    assert printed_elsewhere("a = Published(KV_SAVED.printed)\nb = KV_SAVED.printed\n") == [2]


def numbers(of):
    if isinstance(of, tuple | list | set | frozenset):
        return {number for one in of for number in numbers(one)}
    if isinstance(of, dict):
        return numbers(list(of.values()))
    return {of} if isinstance(of, int | float) and not isinstance(of, bool) else set()


def literals(run, folder):
    """Numbers in the code in `folder` that runs: its literals and the modules' constants that it names."""
    codes = {}

    def called(frame, event, _):
        if event == "call" and frame.f_code.co_filename.startswith(str(folder)):
            codes[frame.f_code] = frame.f_globals

    before = sys.getprofile()
    sys.setprofile(called)
    try:
        run()
    finally:
        sys.setprofile(before)
    return {
        number
        for code, names in codes.items()
        for number in numbers([*code.co_consts, *(names.get(name) for name in code.co_names)])
    }


def copies(value, found):
    """The numbers that are a claim's value, its share of one, or what is left of 100 %. Round values are no sign."""
    if float(value).is_integer() and (value < 11 or value == 2 ** (int(value).bit_length() - 1)):
        return set()
    forms = {value, value / 100, 1 - value / 100, 100 - value}
    return {number for number in found if any(abs(number - form) < 1e-9 * abs(form) for form in forms)}


SAVED = 0.881


def test_a_copied_number_is_found():
    folder = Path(__file__).parent
    assert copies(88.1, literals(lambda: (lambda: 1 - SAVED)(), folder)) == {0.881}
    assert copies(6.85, literals(lambda: (lambda: 6.85)(), folder)) == {6.85}
    assert copies(6.85, literals(lambda: (lambda: (1, 6.85))(), folder)) == {6.85}
    assert copies(64, {64}) == set()
