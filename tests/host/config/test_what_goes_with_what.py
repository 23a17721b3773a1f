"""Each pair of options either runs, with the tokens that its policy and format stand for, or is refused in a sentence.

`make test` runs a few configurations that together have every part and most pairs that are allowed, `make test-full`
those that have the others, and every pair alone.
"""

from contextlib import closing
from dataclasses import replace
from fractions import Fraction
from functools import cache
from itertools import combinations

import pytest
import torch
from pairs import some_quick
from rich.console import Console

from kvdrive._native import Drive, Subsystem, TcpServer
from kvdrive.choices import DTYPES
from kvdrive.config.abilities import ConflictError
from kvdrive.config.resolve import resolve
from kvdrive.config.run import FIELDS, RunConfig
from kvdrive.config.table import EVERY, FREE
from kvdrive.generation import batches, checkpoints, places
from kvdrive.generation.assistant import load_assistant
from kvdrive.policies import POLICIES
from kvdrive.policies.auto import Auto
from kvdrive.policies.choice import Choice, Text
from kvdrive.targets.opening import open_drives
from kvdrive.weights.cuts import Cost, Cuts, keep_cuts
from kvdrive.weights.file import WeightsFile
from kvdrive.weights.making import make_file, put_on_drive
from kvdrive.weights.opening import load_from
from kvdrive.weights.predictor import Predictor, Predictors, keep_predictors

PROMPT, LONG, NEW = 70, 400, 6  # tokens; some groups must be whole before others can be removed
HOST = "nqn.2014-08.org.nvmexpress:uuid:11111111-2222-3333-4444-555555555555"
QUARTER = {"ratio": Fraction(1, 4)}
AUTO = Auto(choice=Choice(((Fraction(1), Fraction(1, 4)),) * 4, 16, 0.0, None, 1.0, Text("", 0, 0, 0)))

# What each part of the table is in a configuration, with what it cannot do without. FOLDER, FILE, ... are made below.
PARTS = {
    "attention=exact": {},
    "attention=groups": {"attention": "groups", "unit": 16, **QUARTER},
    "attention=auto": {"attention": AUTO},
    "attention=sparf": {"attention": "sparf", **QUARTER},
    "attention=sparq": {"attention": "sparq", **QUARTER},
    "attention=h2o": {"attention": "h2o", **QUARTER},
    "attention=local": {"attention": "local", **QUARTER},
    "active=memory": {"active": "memory"},
    "session_memory": {"session_memory": 1 << 24},
    "kv_format=int8": {"kv_format": "int8"},
    "kv_format=int4": {"kv_format": "int4"},
    "kv_format=fp8": {"kv_format": "fp8"},
    "on_failure=recompute": {"on_failure": "recompute"},
    "overflow=trim": {"overflow": "trim", "context": LONG + 4},
    "xcache": {"xcache": 0.5},
    "sessions": {"sessions": True},
    "mini_batches": {"mini_batches": 2},
    "assistant": {"assistant": "mini_relu"},
    "lookup": {"lookup": 3},
    "dtype=int8": {"dtype": "int8"},
    "device": {"device": "cuda"},
    "weights=flash": {"weights": "flash", "weights_file": "FILE", "weights_memory": Fraction(9, 10)},
    "weights=drive": {"weights": "drive", "folder": "FOLDER", "weights_memory": Fraction(9, 10)},
    "weights=stream": {"weights": "stream", "weights_memory": Fraction(9, 10)},
    "weights_file": {"weights_file": "FILE"},
    "weights_copy": {"weights_copy": "COPY"},
    "ffn=fatrelu:THRESHOLD": {"ffn": "fatrelu:0.02"},
    "ffn=fatrelu:SHARE": {"ffn": "fatrelu:50%"},
    "ffn=predictor": {"ffn": "predictor"},
    "ffn=drive": {"ffn": "drive"},
    "target=cpu": {"target": "cpu"},
    "target=ADDRESS": {"target": "ADDRESS"},
    "target=smartssd": {"target": "smartssd"},
    "image": {"image": "IMAGE"},
    "preset": {"preset": "zn540"},
    "folder": {"folder": "FOLDER"},
    "drives": {"drives": 2},
    "identity": {"identity": "IDENTITY"},
    "cache_bytes": {"cache_bytes": 1 << 20},
    "index": {"index": "memory"},
    "hot_bytes": {"hot_bytes": 1 << 20},
    "format": {"format": True},
}
DEFAULTS = [
    "active=drive",
    "kv_format=f16",
    "on_failure=raise",
    "overflow=error",
    "weights=memory",
    "ffn=exact",
    "target=emulator",
    *(f"dtype={name}" for name in DTYPES),
]
WITH = {  # what a part needs, where the pair does not say otherwise
    "session_memory": "active=memory",
    "weights_file": "weights=flash",
    "weights_copy": "weights=flash",
    "ffn=fatrelu:THRESHOLD": "weights=flash",
    "ffn=fatrelu:SHARE": "weights=flash",
    "ffn=predictor": "weights=flash",
    "ffn=drive": "weights=drive",
    "identity": "target=ADDRESS",
    "image": "target=smartssd",
    "cache_bytes": "target=cpu",
    "format": "folder",
}
MISSING = {"device": "a GPU", "target=smartssd": "a SmartSSD", "image": "a SmartSSD"}  # on most machines
FAST = set(PARTS) - {  # these have the abilities of others, so pairs with them run in `make test-full`
    *("attention=auto", "attention=sparf", "attention=sparq", "attention=local"),
    *("lookup", "kv_format=int4", "kv_format=fp8", "ffn=predictor", "ffn=fatrelu:SHARE", "weights_file"),
}
ANSWERS = {"attention", "kv_format", "overflow", "ffn", "dtype"}  # may change an answer. Where K and V are rounded,
# so does `active`: a first call in memory attends to rounded numbers, one on drives to its own.


def option(part):
    return part.partition("=")[0]


def together(*parts):
    """The fields of parts and of what they need; None if two of them give an option two values."""
    chosen = list(dict.fromkeys(parts))
    for part in parts:
        needed = WITH.get(part)
        if needed and option(needed) not in map(option, chosen):
            chosen.append(needed)
    if len(set(map(option, chosen))) < len(chosen):
        return None
    fields = {}
    for part in chosen:
        fields |= PARTS[part]
    if fields.get("target") == "ADDRESS" and fields.get("weights") == "drive" and "folder" not in parts:
        del fields["folder"]  # the address says where the weights are
    return fields


@cache
def refusal(*parts):
    """The error that refuses parts; None if they go together."""
    try:
        resolve(configured(together(*parts), ADDRESS="tcp://127.0.0.1:1"))
    except ConflictError as error:
        return error
    return None


def configured(fields, **made):
    """The configuration of fields, with what was made in place of words in capitals."""
    given = {name: made.get(value, value) if isinstance(value, str) else value for name, value in fields.items()}
    return RunConfig.of(**{"model": "mini_relu", "threads": 1, "capacity_bytes": 1 << 27} | given)


PAIRS = [pair for pair in combinations(PARTS, 2) if together(*pair) is not None]
ALLOWED = [pair for pair in PAIRS if refusal(*pair) is None]
REFUSED = [pair for pair in PAIRS if refusal(*pair) is not None]
HERE = {frozenset(pair) for pair in ALLOWED if not set(pair) & set(MISSING)}


def covering(chosen):
    """Sets of `chosen` parts that have every pair of them that runs here: greedily, each takes what covers most."""
    missing = {pair for pair in HERE if pair <= chosen}
    rows = []
    while missing:
        row = sorted(min(missing, key=sorted))
        while True:
            found = {}
            for part in sorted(chosen - set(row)):
                if all(frozenset((part, one)) in HERE for one in row) and together(*row, part) is not None:
                    found[part] = sum(frozenset((part, one)) in missing for one in row)
            best = max(found, key=found.get, default=None)
            if best is None or not found[best]:
                break
            row.append(best)
        rows.append(tuple(row))
        missing -= {frozenset(pair) for pair in combinations(row, 2)}
    return rows


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """(fields) -> a configuration with the files and drives that the words in capitals stand for."""
    root = tmp_path_factory.mktemp("parts")
    file = make_file(places.find("mini_relu"), root / "w.kvw", "float16", Console(quiet=True), gates=False).path
    (root / "copy.kvw").write_bytes(file.read_bytes())
    (root / "identity.toml").write_text(f'[[host]]\nnqn = "{HOST}"\n')
    (root / "identity.toml").chmod(0o600)
    measure_neurons(file)
    drive = Drive(root / "served.kv", "fast", 1, 1 << 27)
    server = TcpServer(Subsystem(drive, nqn="nqn.2026-01.org.kvdrive:pairs"), "127.0.0.1", 0)
    address = f"tcp://127.0.0.1:{server.port}"
    places_made = set()

    def of(fields):
        kind, preset = fields.get("target", "emulator"), fields.get("preset", "")
        stays = not fields.get("format")
        folder = root / f"{kind}-{preset}-{stays}"
        found = configured(
            fields, FOLDER=folder, FILE=file, COPY=root / "copy.kvw", IDENTITY=root / "identity.toml", ADDRESS=address
        )
        place = found.target.folder or address
        if fields.get("weights") == "drive" and place not in places_made:
            put_on_drive(file, replace(found.target, drives=1, format=False), Console(quiet=True))
            places_made.add(place)
        return found

    yield of
    del server


def measure_neurons(file):
    """Beside a file of mini_relu: predictors that call every neuron active, and thresholds for half of them."""
    model = checkpoints.load("mini_relu").model
    with closing(WeightsFile(file)) as weights:
        parts = {}
        for array in weights.manifest.neurons:
            rows = array.parts[0].shape[0]
            neurons, hidden = array.count * rows, model.config.hidden_size
            parts[array.name] = Predictor(torch.zeros(1, hidden), torch.zeros(neurons, 1), torch.ones(neurons))
        keep_cuts(file, weights.manifest, {"50%": Cuts(dict.fromkeys(parts, 0.02), Cost(1.0, 1.0, 0.5))})
        keep_predictors(file, weights.manifest, Predictors(parts, {}, Cost(1.0, 1.0, 0.0)))


def tokens_of(config, rows):
    """The tokens of a greedy generation of so many sequences."""
    length = LONG if config.limits.overflow == "trim" else PROMPT
    texts = [[3 + (7 * i + 11 * row) % 1800 for i in range(length)] for row in range(rows)]
    with closing(load_from(config)) as checkpoint:
        assistant = load_assistant(config.model, checkpoint) if config.model.assistant else None
        with open_drives(replace(config.target, group=checkpoint.shape.group)) as drives:
            return batches.generate(checkpoint, batches.batch(texts, NEW), drives, config, assistant=assistant).tokens


@pytest.fixture(scope="module")
def run(made):
    """(parts) -> runs a configuration, whose tokens must be those of the parts that may change an answer."""
    known = {}

    def of(*parts):
        rows = 1 if "assistant" in parts else 2  # it drafts for one
        counts = {*ANSWERS, "active"} if any(option(part) == "kv_format" for part in parts) else ANSWERS
        meaning = tuple(sorted(part for part in parts if option(part) in counts))
        if (meaning, rows) not in known:
            known[meaning, rows] = tokens_of(made(together(*meaning)), rows)
        found = tokens_of(made(together(*parts)), rows)
        assert [len(row) for row in found] == [NEW] * rows
        assert found == known[meaning, rows], meaning

    return of


def those_that_bring_much(rows):
    """Rows with a part that no row before has, or with eight pairs."""
    found, parts, pairs = [], set(), set()
    for row in rows:
        new = {frozenset(pair) for pair in combinations(row, 2)} - pairs
        if set(row) - parts or len(new) >= 8:
            found.append(row)
        parts |= set(row)
        pairs |= new
    return found


ROWS = covering(FAST)


@pytest.mark.parametrize(
    "row", some_quick(range(len(ROWS)), map(ROWS.index, those_that_bring_much(ROWS))), ids=map("+".join, ROWS)
)
def test_options_that_go_together_change_no_token(row, run):
    run(*ROWS[row])


@pytest.mark.slow
@pytest.mark.parametrize("pair", sorted(map(sorted, HERE)), ids="+".join)
def test_each_pair_that_is_allowed_runs(pair, run):
    run(*pair)


def test_every_other_pair_is_refused_in_a_sentence():
    assert len(REFUSED) > 80
    for pair in REFUSED:
        error = refusal(*pair)
        named = {error.conflict.a.option, error.conflict.b.option}
        given = {option(part) for part in (*pair, *filter(None, map(WITH.get, pair)))}
        assert named & given, (pair, str(error))
        assert named <= given | {"folder"} | {option(part) for part in DEFAULTS}, (pair, str(error))
        assert " does not go with " in str(error)
        assert "; take " in str(error) or "; leave " in str(error)


def test_each_part_of_the_table_is_tried():
    tried = [one for one in EVERY if one.requires or one.lacks or one.provides]
    assert {f"{one.option}={one.value}" if one.value else one.option for one in tried} <= {*PARTS, *DEFAULTS}
    assert {f"attention={name}" for name in POLICIES} <= set(PARTS)


def test_each_option_is_in_the_table_or_goes_with_everything():
    assert set(FIELDS) == {one.option for one in EVERY} | FREE
    assert not {one.option for one in EVERY} & FREE
