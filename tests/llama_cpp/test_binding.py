"""The binding is that of the headers, and of no other release."""

import ctypes
import re

import pytest
from llama_host import LLAMA

from kvdrive.errors import UnsupportedError
from kvdrive.llama import functions
from kvdrive.llama.functions import FUNCTIONS, LOG_CALLBACK, Functions
from kvdrive.llama.structures import STRUCTURES, Batch, ContextParams, ModelParams, plausible

NUMBERS = {
    **{"int32_t": ctypes.c_int32, "uint32_t": ctypes.c_uint32, "uint64_t": ctypes.c_uint64, "size_t": ctypes.c_size_t},
    **{
        "int8_t": ctypes.c_int8,
        "uint8_t": ctypes.c_uint8,
        "float": ctypes.c_float,
        "bool": ctypes.c_bool,
        "void": None,
    },
    **{"llama_token": ctypes.c_int32, "llama_pos": ctypes.c_int32, "llama_seq_id": ctypes.c_int32},
}
CALLBACKS = ("llama_progress_callback", "ggml_backend_sched_eval_callback", "ggml_abort_callback")
OBJECTS = ("llama_model", "llama_context", "llama_vocab", "void")  # behind pointers that are only passed on


@pytest.fixture(scope="module")
def headers(built):
    text = "\n".join((LLAMA / "include" / name).read_text() for name in ("llama.h", "ggml.h", "ggml-backend.h"))
    return re.sub(r"/\*.*?\*/", " ", re.sub(r"//[^\n]*", "", text), flags=re.S)


def kind(text):
    """The type that the binding has for one of C."""
    words = re.sub(r"\b(const|struct|enum|LLAMA_API|GGML_API)\b", " ", text)
    base, stars = words.replace("*", " ").split()[0], words.count("*")
    if f"enum {base}" in " ".join(text.split()):
        assert not stars
        return ctypes.c_int
    if base in CALLBACKS:
        return ctypes.c_void_p
    if base == "ggml_log_callback":
        return LOG_CALLBACK
    if base in ("llama_memory_t", "ggml_backend_reg_t") and not stars:
        return ctypes.c_void_p
    if base in STRUCTURES and not stars:
        return STRUCTURES[base]
    if base == "char" and stars == 1:
        return ctypes.c_char_p
    if base in OBJECTS and stars == 1:
        return ctypes.c_void_p
    found = NUMBERS[base]
    for _ in range(stars):
        found = ctypes.POINTER(found)
    return found


def declared(part):
    """Name and type of a declaration without its semicolon."""
    name = re.search(r"(\w+)\s*$", part)
    return name[1], part[: name.start()]


def of_structure(text):
    """The type of a field: pointers to what the binding leaves null are plain."""
    words = text.replace("*", " * ").split()
    null = {"ggml_backend_dev_t", "llama_model_tensor_buft_override", "llama_model_kv_override"}
    null |= {"llama_sampler_seq_config", "llama_context"}
    return ctypes.c_void_p if "*" in words and null & set(words) else kind(text)


@pytest.mark.parametrize("name", STRUCTURES)
def test_structures_are_those_of_the_header(headers, name):
    body = re.search(rf"struct {name} \{{(.*?)\n    \}}", headers, re.S)[1]
    fields = [declared(part) for part in body.split(";") if part.strip()]
    plain = {"tensor_split"}  # never set
    wanted = [(field, ctypes.c_void_p if field in plain else of_structure(text)) for field, text in fields]
    assert STRUCTURES[name]._fields_ == wanted


@pytest.mark.parametrize("name", [name for library in FUNCTIONS.values() for name in library])
def test_functions_are_those_of_the_headers(headers, name):
    found = re.search(rf"(?:LLAMA_API|GGML_API)([^;()]*?)\b{name}\s*\(([^;]*?)\)\s*;", headers, re.S)
    parts = [part.strip() for part in found[2].split(",") if part.strip() not in ("", "void")]
    wanted = kind(found[1]), [kind(declared(part)[1]) for part in parts]
    [bound] = [library[name] for library in FUNCTIONS.values() if name in library]
    assert bound == wanted


def test_a_release_that_was_not_tried_is_refused(built, monkeypatch):
    monkeypatch.setattr(functions, "RELEASES", ("0.0.1",))
    with pytest.raises(UnsupportedError, match=r"kvdrive is not tested with llama\.cpp 0\.5"):
        Functions(LLAMA / "bin")


def test_other_libraries_are_refused(tmp_path):
    with pytest.raises(UnsupportedError, match="make get WHAT=llama-plugin"):
        Functions(tmp_path)


@pytest.mark.parametrize("moved", [ModelParams, ContextParams])
def test_structures_with_another_field_are_refused(built, moved):
    """A field more, anywhere before the booleans, moves the defaults behind it."""
    found = Functions(LLAMA / "bin")
    defaults = [found.llama_model_default_params(), found.llama_context_default_params()]
    assert plausible(*defaults)
    place = [ModelParams, ContextParams].index(moved)
    content = bytes(defaults[place])
    for at in range(8, moved.n_gpu_layers.offset if moved is ModelParams else moved.type_k.offset, 4):
        defaults[place] = moved.from_buffer_copy((content[:at] + b"\1\0\0\0" + content[at:])[: len(content)])
        assert not plausible(*defaults), at


def test_a_batch_has_the_size_of_seven_fields():
    assert ctypes.sizeof(Batch) == 56
