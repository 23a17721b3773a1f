"""What goes with what: for each value of an option, what it can do for others and what it needs of them.

A value that is not in this table, or that does not name an ability, does not have it: an unknown combination is
refused. Policies say the same of themselves (`policies.base`), models in `plugins.traits`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import fields, replace
from typing import Any

from kvdrive.choices import DTYPES
from kvdrive.config.abilities import Ability, ConflictError, Part, conflicts

A = Ability
_EXACT_ONLY = "the model's own attention reads every token there"
_IN_PARTS = "while drives attend to one mini-batch, the host computes another one"
_WHOLE_BATCH = "weights are read for the whole batch"
_OWN_FORMATS = "the file of weights has formats of its own"

# One of several values of an option.
VALUES = (
    Part("active", "drive", frozenset({A.ON_DRIVE, A.REMOVAL})),
    Part("active", "memory", frozenset({A.REMOVAL, A.LOADING}), requires={A.EVERY_TOKEN: _EXACT_ONLY}),
    Part("kv_format", "f16"),
    *(
        Part("kv_format", name, requires={A.FORMATS: "K and V are rounded where they are stored"})
        for name in ("int8", "int4", "fp8")
    ),
    Part("on_failure", "raise"),
    Part("on_failure", "recompute"),
    Part("overflow", "error", frozenset({A.DRAFTS})),
    Part(
        "overflow",
        "trim",
        requires={A.REMOVAL: "it removes K and V on drives"},
        lacks={A.DRAFTS: "what was drafted could not be removed any more"},
    ),
    Part("weights", "memory", frozenset({A.PARTS, A.ANY_DEVICE, A.ROUNDING, A.FORGETTING, A.BETWEEN_CALLS})),
    Part(
        "weights",
        "flash",
        frozenset({A.FILE, A.SPARSE, A.FORGETTING, A.BETWEEN_CALLS}),
        lacks={A.PARTS: _WHOLE_BATCH, A.ROUNDING: _OWN_FORMATS},
    ),
    Part(
        "weights",
        "stream",
        frozenset({A.FORGETTING}),
        lacks={
            A.PARTS: _WHOLE_BATCH,
            A.FILE: "it reads the checkpoint's own files",
            A.SPARSE: "it reads every neuron",
            A.ROUNDING: "layers are computed as they are stored",
        },
    ),
    Part(
        "weights",
        "drive",
        frozenset({A.SPARSE, A.COMPUTING, A.BETWEEN_CALLS}),
        requires={A.STAYING: "`kvdrive convert` has put them on a drive that stays"},
        lacks={A.PARTS: _WHOLE_BATCH, A.FORGETTING: "the drive holds the weights", A.ROUNDING: _OWN_FORMATS},
    ),
    *(Part("dtype", name, frozenset({A.MATRICES})) for name in DTYPES if name != "int8"),
    Part("dtype", "int8", requires={A.ROUNDING: "matrices are rounded when they are loaded"}),
    Part("ffn", "exact"),
    Part("ffn", "fatrelu:THRESHOLD", requires={A.SPARSE: "it leaves out neurons that are on flash"}),
    Part("ffn", "fatrelu:SHARE", requires={A.FILE: "`kvdrive sparsify` keeps thresholds beside the file of weights"}),
    Part("ffn", "predictor", requires={A.FILE: "`kvdrive train-predictor` keeps it beside the file of weights"}),
    Part("ffn", "drive", requires={A.COMPUTING: "the drive that holds the weights computes"}),
    Part("target", "emulator", frozenset({A.FLASH_MODEL, A.FOLDER, A.COUNT, A.OWN_MEMORY})),
    Part(
        "target",
        "cpu",
        frozenset({A.FOLDER, A.COUNT, A.PAGE_CACHE, A.OWN_MEMORY}),
        lacks={A.FLASH_MODEL: "it models no flash"},
    ),
    Part("target", "ADDRESS", frozenset({A.HOST_NAME}), lacks={A.OWN_MEMORY: "such a drive has memory of its own"}),
    Part("target", "smartssd", frozenset({A.IMAGE, A.FOLDER}), lacks={A.OWN_MEMORY: "a card has memory of its own"}),
)

SESSIONS = Part("sessions", requires={A.KEEPING: "a session is stored on drives"})
MINI_BATCHES = Part("mini_batches", requires={A.PARTS: _IN_PARTS})

# Any value of an option but its default.
SET = (
    Part(
        "xcache",
        requires={
            A.EVERY_TOKEN: "X-cache rebuilds K and V for exact attention",
            A.ON_DRIVE: "sequences in memory hold K and V",
            A.MATRICES: "X-cache multiplies by the projections of K and V as they are",
            A.BETWEEN_CALLS: "X-cache multiplies by the projections of K and V when their layer does not compute",
        },
        lacks={A.FORMATS: "X-cache stores layer inputs as they are"},
    ),
    SESSIONS,
    Part("session_memory", requires={A.LOADING: "where drives attend, nothing is loaded, so a copy gains nothing"}),
    MINI_BATCHES,
    Part(
        "assistant",
        requires={A.DRAFTS: "drafted tokens are computed together, and rejected ones are removed"},
        lacks={A.PARTS: "it drafts for one sequence"},
    ),
    Part("lookup", requires={A.DRAFTS: "drafted tokens are computed together, and rejected ones are removed"}),
    Part("device", requires={A.ANY_DEVICE: "weights that are read when they are needed are computed on the cpu"}),
    Part("weights_file", requires={A.FILE: "it names the file that `kvdrive convert` has made"}),
    Part("weights_copy", requires={A.FILE: "it names a copy of the file that `kvdrive convert` has made"}),
    Part("image", requires={A.IMAGE: "only SmartSSDs load an image"}),
    Part("preset", requires={A.FLASH_MODEL: "it has flash of its own"}),
    Part("folder", provides=frozenset({A.STAYING}), requires={A.FOLDER: "it has files of its own"}),
    Part("drives", requires={A.COUNT: "it says itself how many drives there are"}),
    Part("identity", requires={A.HOST_NAME: "only drives at tcp:// ask who this host is"}),
    Part("cache_bytes", requires={A.PAGE_CACHE: "only the cpu target reads through the page cache"}),
    Part("index", requires={A.OWN_MEMORY: "such a drive has memory of its own"}),
    Part("hot_bytes", requires={A.OWN_MEMORY: "such a drive has memory of its own"}),
    Part(
        "format",
        requires={A.STAYING: "such a drive is always new", A.FORGETTING: "it forgets what the drive holds"},
    ),
)
NO_FOLDER = Part("folder", "a temporary drive")
FREE = frozenset(
    {
        *("accepted", "look_ahead", "weights_cache", "weights_memory", "weights_window", "on_drive"),
        *("attention", "ratio", "unit", "unread", "overflow_ratio", "context", "memory", "spill"),
        *("model", "engine", "threads", "capacity_bytes", "needed_bytes", "group", "slowdown"),
    }
)  # go with all others; `attention` is in the table by its policies
EVERY = (*VALUES, *SET)
_VALUES = {(one.option, one.value): one for one in VALUES}
_CHOSEN = {one.option for one in VALUES}
_SET = {one.option: one for one in SET}
_NOTHING = {"mini_batches": 1}  # values that ask for nothing, beside the default


def value_of(option: str, value: str, shown: str = "") -> Part:
    """The part of an option's value, which sentences call `shown`."""
    return replace(_VALUES[option, value], value=shown or value)


def of_group(options: Any) -> Iterator[Part]:
    """The parts of a group of options."""
    for one in fields(options):
        value = getattr(options, one.name)
        if one.name == "ffn":
            number = "fatrelu:SHARE" if value.endswith("%") else "fatrelu:THRESHOLD"
            yield value_of("ffn", value if ("ffn", value) in _VALUES else number, value)
        elif one.name in _CHOSEN and one.name != "target":
            yield _VALUES[one.name, value]
        elif one.name in _SET and value not in (one.default, _NOTHING.get(one.name, one.default)):
            yield _SET[one.name]


def require(parts: Iterable[Part]) -> None:
    """Raises ConflictError for the first parts that exclude each other."""
    for conflict in conflicts(list(parts), EVERY):
        raise ConflictError(conflict)
