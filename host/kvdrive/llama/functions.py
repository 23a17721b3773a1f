"""The functions of llama.cpp's libraries that are used, and their types. A test compares them with the headers."""

from __future__ import annotations

import ctypes
from ctypes import (
    CFUNCTYPE,
    POINTER,
    c_bool,
    c_char_p,
    c_float,
    c_int,
    c_int32,
    c_size_t,
    c_uint8,
    c_uint64,
    c_void_p,
)
from pathlib import Path
from typing import Any

from kvdrive.errors import UnsupportedError
from kvdrive.llama.structures import RELEASES, Batch, ContextParams, ModelParams, plausible

LOG_CALLBACK = CFUNCTYPE(None, c_int, c_char_p, c_void_p)
_TOKENS = POINTER(c_int32)

# By library: name, what it returns, what it takes. Pointers to llama.cpp's own objects are c_void_p.
FUNCTIONS: dict[str, dict[str, tuple[Any, list[Any]]]] = {
    "libggml-base.so": {
        "ggml_version": (c_char_p, []),
        "ggml_log_set": (None, [LOG_CALLBACK, c_void_p]),
    },
    "libggml.so": {
        "ggml_backend_load": (c_void_p, [c_char_p]),
        "ggml_backend_load_all_from_path": (None, [c_char_p]),
    },
    "libllama.so": {
        "llama_version": (c_char_p, []),
        "llama_backend_init": (None, []),
        "llama_log_set": (None, [LOG_CALLBACK, c_void_p]),
        "llama_model_default_params": (ModelParams, []),
        "llama_context_default_params": (ContextParams, []),
        "llama_model_load_from_file": (c_void_p, [c_char_p, ModelParams]),
        "llama_model_free": (None, [c_void_p]),
        "llama_init_from_model": (c_void_p, [c_void_p, ContextParams]),
        "llama_free": (None, [c_void_p]),
        "llama_model_get_vocab": (c_void_p, [c_void_p]),
        "llama_model_n_ctx_train": (c_int32, [c_void_p]),
        "llama_model_n_params": (c_uint64, [c_void_p]),
        "llama_model_size": (c_uint64, [c_void_p]),
        "llama_model_desc": (c_int32, [c_void_p, c_char_p, c_size_t]),
        "llama_model_chat_template": (c_char_p, [c_void_p, c_char_p]),
        "llama_model_has_encoder": (c_bool, [c_void_p]),
        "llama_model_has_decoder": (c_bool, [c_void_p]),
        "llama_model_is_diffusion": (c_bool, [c_void_p]),
        "llama_vocab_type": (c_int, [c_void_p]),
        "llama_vocab_n_tokens": (c_int32, [c_void_p]),
        "llama_vocab_is_eog": (c_bool, [c_void_p, c_int32]),
        "llama_vocab_bos": (c_int32, [c_void_p]),
        "llama_vocab_eos": (c_int32, [c_void_p]),
        "llama_vocab_get_text": (c_char_p, [c_void_p, c_int32]),
        "llama_vocab_get_attr": (c_int, [c_void_p, c_int32]),
        "llama_tokenize": (c_int32, [c_void_p, c_char_p, c_int32, _TOKENS, c_int32, c_bool, c_bool]),
        "llama_token_to_piece": (c_int32, [c_void_p, c_int32, c_char_p, c_int32, c_int32, c_bool]),
        "llama_get_memory": (c_void_p, [c_void_p]),
        "llama_memory_seq_rm": (c_bool, [c_void_p, c_int32, c_int32, c_int32]),
        "llama_state_seq_set_data": (c_size_t, [c_void_p, POINTER(c_uint8), c_size_t, c_int32]),
        "llama_decode": (c_int32, [c_void_p, Batch]),
        "llama_get_logits_ith": (POINTER(c_float), [c_void_p, c_int32]),
    },
}


class Functions:
    """The functions as attributes, found in the libraries in `folder`.

    Raises UnsupportedError for libraries that cannot be loaded, and for a release that was not tried.
    """

    def __init__(self, folder: Path) -> None:
        self._found: dict[str, Any] = {}
        try:
            for name, functions in FUNCTIONS.items():
                library = ctypes.CDLL(str(folder / name))
                for function, (returned, taken) in functions.items():
                    found = getattr(library, function)
                    found.restype, found.argtypes = returned, taken
                    self._found[function] = found
        except (OSError, AttributeError) as error:
            raise UnsupportedError(
                f"llama.cpp's libraries in {folder} are not those that kvdrive uses ({error}): {INSTALL}"
            ) from error
        self.release = self.llama_version().decode(errors="replace")
        if self.release not in RELEASES:
            raise UnsupportedError(
                f"kvdrive is not tested with llama.cpp {self.release}, which is in {folder}: {INSTALL}"
            )
        if not plausible(self.llama_model_default_params(), self.llama_context_default_params()):
            raise UnsupportedError(
                f"the structures of llama.cpp {self.release} in {folder} are not those of its release: {INSTALL}"
            )

    def __getattr__(self, name: str) -> Any:
        try:
            return self.__dict__["_found"][name]
        except KeyError:
            raise AttributeError(name) from None


INSTALL = "install the one that goes with it by `make get WHAT=llama-plugin`"
