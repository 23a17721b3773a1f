"""A model of a GGUF file, with its weights as they are there."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import ClassVar

from kvdrive.errors import InputError, UnsupportedError
from kvdrive.llama.environment import variables
from kvdrive.llama.functions import Functions
from kvdrive.llama.libraries import Libraries
from kvdrive.llama.log import Log
from kvdrive.llama.plugin import Plugin
from kvdrive.llama.structures import NO_SPLIT
from kvdrive.llama.vocabulary import Vocabulary

_ALL_LAYERS = 999


@dataclass(frozen=True)
class Settings:
    """`drive`: the plugin's variables; None: K and V are in memory, without the plugin. `threads`: that compute."""

    drive: dict[str, str] | None
    threads: int = 1


class Model:
    """The model in `file`. `vocabulary`: its texts; `plugin`: None without a drive.

    Raises InputError for a file that llama.cpp cannot load, UnsupportedError, TargetError.
    """

    _loaded: ClassVar[set[Path]] = set()  # folders whose backends ggml has

    def __init__(self, file: Path, libraries: Libraries, settings: Settings) -> None:
        self.file = file
        self.settings = settings
        self.pointer: int | None = None
        self.functions = functions = Functions(libraries.folder)
        self._log = Log(functions)
        if libraries.folder not in Model._loaded:
            with variables({}):
                functions.ggml_backend_load_all_from_path(str(libraries.folder).encode())
            Model._loaded.add(libraries.folder)
        self.plugin = None if settings.drive is None else Plugin(functions, libraries.plugin, settings.drive)
        functions.llama_backend_init()
        parameters = functions.llama_model_default_params()
        if self.plugin:
            parameters.n_gpu_layers = _ALL_LAYERS
        else:  # on no device, not even the plugin's of another model
            parameters.n_gpu_layers, parameters.split_mode, parameters.main_gpu = 0, NO_SPLIT, -1
        self.pointer = functions.llama_model_load_from_file(str(file).encode(), parameters)
        if not self.pointer:
            raise InputError(
                f"llama.cpp cannot load {file}: {self.reason('the file is damaged or of an unknown model')}"
            )
        if not functions.llama_model_has_decoder(self.pointer) or functions.llama_model_has_encoder(self.pointer):
            raise UnsupportedError(f"{file.name} is no model that continues a text: choose another one")
        if functions.llama_model_is_diffusion(self.pointer):
            raise UnsupportedError(f"{file.name} makes no text token by token: choose another model")
        template = functions.llama_model_chat_template(self.pointer, None) or b""
        pointer = functions.llama_model_get_vocab(self.pointer)
        self.vocabulary = Vocabulary(functions, pointer, template.decode(errors="replace"))

    @property
    def positions(self) -> int:
        """Tokens that the model was trained for."""
        return int(self.functions.llama_model_n_ctx_train(self.pointer))

    @property
    def description(self) -> str:
        """What llama.cpp calls the model: family, size and format of the weights."""
        text = ctypes.create_string_buffer(256)
        self.functions.llama_model_desc(self.pointer, text, len(text))
        return text.value.decode(errors="replace")

    @property
    def parameters(self) -> int:
        """Number of weights."""
        return int(self.functions.llama_model_n_params(self.pointer))

    @property
    def bytes(self) -> int:
        """Bytes of the weights."""
        return int(self.functions.llama_model_size(self.pointer))

    def reason(self, otherwise: str) -> str:
        """Why the last call failed: what the plugin says, or llama.cpp's first error, or `otherwise`."""
        otherwise = self._log.error() or otherwise
        return self.plugin.reason(otherwise) if self.plugin else otherwise

    def close(self) -> None:
        """Release the weights and close the drive. Its sequences are closed before."""
        if self.pointer:
            self.functions.llama_model_free(self.pointer)
            if self.plugin is not None:
                self.plugin.close()
        self.pointer = None

    def __enter__(self) -> Model:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
